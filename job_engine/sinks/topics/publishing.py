"""Topics as sinks, and the publishers of this process: one per checkpoint and sink."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from job_engine.kafka.asking import AskedBroker
from job_engine.kafka.first_answer import first_answer
from job_engine.kafka.topic_choice import TopicChoice
from job_engine.places.local_path import LocalPath
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Result, Sink
from job_engine.sinks.topics.publisher import TopicPublisher, may_not_write
from job_engine.sinks.topics.settings import TopicSink
from querylang.errors import InputError, did_you_mean
from runtime.threads import in_threads

_NEEDED = frozenset({"READ", "WRITE"})


class Publishing(kinds.Publishing):
    """Sinks of Kafka; see `kinds.Publishing`."""

    def __init__(self) -> None:
        self._publishers: dict[tuple[str, str], TopicPublisher] = {}

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:  # noqa: ARG002
        """Raise InputError for a topic that is missing or may not be written, or without broker."""
        refuse_unwritable(sink.own)

    def publish(self, batch: MicroBatch, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        """Send the messages of a micro-batch: to several topics at the same time."""
        tasks = [(self._publisher(batch.identity, sink.own), own) for sink, own in drafts]
        in_threads(lambda task: task[0].publish(batch.number, task[1]), tasks, len(tasks))
        for draft in (draft for _, own in drafts for draft in own if draft.path):
            LocalPath(draft.path).unlink(missing_ok=True)

    def _publisher(self, identity: str, own: TopicSink) -> TopicPublisher:
        name = (identity, own.name)
        if name not in self._publishers:
            publisher = TopicPublisher(own, identity)
            publisher.open()
            self._publishers[name] = publisher
        return self._publishers[name]

    def remove_leftovers(self, sink: Sink, batch: MicroBatch, written: Collection[str]) -> None:
        """Nothing is left: messages of transactions that were not committed are not read."""

    def results(self, sink: Sink) -> Iterator[Result]:  # noqa: ARG002
        """None: who wrote a message of a topic cannot be asked."""
        return iter(())

    def with_drafts(self, sink: Sink, folder: str) -> Sink:
        """As `kinds.Publishing.with_drafts`."""
        own: TopicSink = sink.own
        return replace(sink, own=replace(own, drafts=folder))

    def begin(self, identity: str, sinks: Sequence[Sink], newest: int) -> None:
        """Connect for a new run of a job; raises InputError where it may not write."""
        self.end(identity)
        for sink in sinks:
            own: TopicSink = sink.own
            published = self._publisher(identity, own).published
            if published > newest + 1:
                raise InputError(
                    f"the topic '{own.topic}' of the sink '{own.name}' has the results of micro-batch"
                    f" {published - 1}, but the checkpoint has reached {'none' if newest < 0 else newest}: it was"
                    " restored from an older copy, and would write results a second time. Restore the newest"
                    " checkpoint, or begin with a new checkpoint and a new topic"
                )

    def end(self, identity: str) -> None:
        """End the connections of a job's run."""
        for name in [name for name in self._publishers if name[0] == identity]:
            self._publishers.pop(name).close()


PUBLISHING = Publishing()


def refuse_unwritable(own: TopicSink) -> None:
    """Raise InputError for a topic that is missing or may not be written, or without broker."""

    def ask(broker: AskedBroker) -> None:
        if own.topic not in broker.listing(TopicChoice(names=(own.topic,))).topics:
            hint = did_you_mean(own.topic, broker.listing(TopicChoice(pattern=".*")).topics)
            raise InputError(f"sink '{own.name}': no such topic: '{own.topic}'{hint}")
        # Nothing is sent before the first result: a job would run for long until it is refused.
        rights = broker.rights(own.topic)
        if rights is not None and not rights >= _NEEDED:
            raise may_not_write(own)

    first_answer(f"sink '{own.name}'", own.client, own.retry, ask)
