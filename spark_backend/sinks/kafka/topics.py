"""Topics as sinks: the table of their format, and the publishers of this process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from querylang.errors import InputError, did_you_mean
from spark_backend.sinks.formats import Draft, Result, Sink, SinkFormat
from spark_backend.sinks.kafka.message_drafts import MessageWriter
from spark_backend.sinks.kafka.publishing import TopicPublisher, may_not_write
from spark_backend.sources.kafka.asking import AskedBroker
from spark_backend.sources.kafka.first_answer import first_answer
from spark_backend.sources.kafka.kafka_source import TopicChoice

_NEEDED = frozenset({"READ", "WRITE"})


class Topics:
    """Sinks of Kafka; see `SinkFormat`."""

    def __init__(self) -> None:
        self._publishers: dict[tuple[str, str], TopicPublisher] = {}

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:  # noqa: ARG002
        """Raise InputError for a topic that is missing or may not be written, or without broker."""
        kafka = sink.kafka
        assert kafka is not None
        name, topic = kafka.name, kafka.topic

        def ask(broker: AskedBroker) -> None:
            if topic not in broker.listing(TopicChoice(names=(topic,))).topics:
                hint = did_you_mean(topic, broker.listing(TopicChoice(pattern=".*")).topics)
                raise InputError(f"sink '{name}': no such topic: '{topic}'{hint}")
            # Nothing is sent before the first result: a job would run for long until it is refused.
            rights = broker.rights(topic)
            if rights is not None and not rights >= _NEEDED:
                raise may_not_write(kafka)

        first_answer(f"sink '{name}'", kafka.client, kafka.retry, ask)

    def open(self, sink: Sink, batch: str, task: int, attempt: int) -> MessageWriter:  # noqa: ARG002
        """A writer for one task; see `SinkFormat`."""
        assert sink.kafka is not None
        return MessageWriter(sink.kafka, f"{batch}{task:05d}")

    def publish(self, batch: str, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        """Send the messages of a micro-batch: to several topics at the same time."""
        identity, number = batch.split("-")[:2]
        tasks = [(self._publisher(identity, sink), own) for sink, own in drafts]
        with ThreadPoolExecutor(len(tasks)) as threads:
            for done in [threads.submit(publisher.publish, int(number), own) for publisher, own in tasks]:
                done.result()

    def _publisher(self, identity: str, sink: Sink) -> TopicPublisher:
        assert sink.kafka is not None
        name = (identity, sink.kafka.name)
        if name not in self._publishers:
            publisher = TopicPublisher(sink.kafka, identity)
            publisher.open()
            self._publishers[name] = publisher
        return self._publishers[name]

    def begin(self, identity: str, sinks: Mapping[str, Sink], newest: int) -> None:
        """Connect for a new run of a job; raises InputError where it may not write.

        newest: number of the newest micro-batch that the checkpoint knows; -1 = none
        """
        self.end(identity)
        for sink in sinks.values():
            if sink.kafka is not None and self._publisher(identity, sink).published > newest + 1:
                published = self._publisher(identity, sink).published
                raise InputError(
                    f"the topic '{sink.kafka.topic}' of the sink '{sink.kafka.name}' has the results of micro-batch"
                    f" {published - 1}, but the checkpoint has reached {'none' if newest < 0 else newest}: it was"
                    " restored from an older copy, and would write results a second time. Restore the newest"
                    " checkpoint, or begin with a new checkpoint and a new topic"
                )

    def end(self, identity: str) -> None:
        """End the connections of a job's run."""
        for name in [name for name in self._publishers if name[0] == identity]:
            self._publishers.pop(name).close()

    def results(self, sink: Sink) -> Iterator[Result]:  # noqa: ARG002
        """None: who wrote a message of a topic cannot be asked."""
        return iter(())

    def remove_leftovers(self, sink: Sink, batch: str, written: Collection[str]) -> None:
        """Nothing is left: messages of transactions that were not committed are not read."""


TOPICS = Topics()

FORMATS: Mapping[str, SinkFormat] = {"kafka": TOPICS}
