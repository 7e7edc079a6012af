"""The settings of a sink of Kafka; what is wrong with them is reported, with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from job_engine.kafka_broker import TopicChoice
from job_engine.kafka_settings import PRODUCER_OPTIONS, TopicsAt, read_client
from job_engine.sinks.kinds import Sink, SinkEntry, SinkKind
from job_engine.sinks.names import channel_sink
from querylang.dataclass import dataclass, field, replace

_REFUSED = {
    "kafka.acks": "transactions need the answer of all replicas",
    "kafka.enable.idempotence": "transactions are always idempotent",
    "kafka.transactional.id": "the job has an id per checkpoint and sink",
    "kafka.key.serializer": "messages are JSON",
    "kafka.value.serializer": "messages are JSON",
}

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicSink:
    """What only a sink of Kafka has.

    name: of the sink in its job
    topic: its name
    is_channel: whether messages are the events that a query has sent, not rows of results
    client: options of librdkafka; they may be secret
    drafts: the folder where tasks put messages for the driver; "" = they pass through the driver
    retry: seconds that a broker which does not answer is asked again; None = as is usual
    """

    name: str
    topic: str
    is_channel: bool = False
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    drafts: str = ""
    retry: float | None = None


class TopicKind(SinkKind):
    """Topics of Kafka; see `SinkKind`."""

    keys: Mapping[str, str] = {"topic": "Kafka", "layout": "folders"}

    def read(self, entry: SinkEntry) -> Sink:
        """As `SinkKind.read`."""
        name = channel_sink(entry.name) if entry.is_channel else entry.name
        return entry.sink(_topic_sink(name, entry))

    def asked_again(self, own: TopicSink, retry: float | None) -> TopicSink:
        """As `SinkKind.asked_again`."""
        return replace(own, retry=retry)

    def stream(self, own: TopicSink) -> TopicsAt:
        """As `SinkKind.stream`."""
        return TopicsAt(own.client, TopicChoice((own.topic,)), own.retry)

    def in_words(self, format_: str) -> str:  # noqa: ARG002
        """As `SinkKind.in_words`."""
        return "a topic of Kafka"

    def shown(self, sink: Sink) -> str:  # noqa: ARG002
        """As `SinkKind.shown`."""
        return "its topic"


KIND = TopicKind()


def _topic_sink(name: str, entry: SinkEntry) -> TopicSink:
    """name: among all sinks of the job."""
    node, found = entry.node, entry.found
    if "layout" in found:
        found["layout"].wrong("'layout' is a setting of folders; a topic has the matches of all queries")
    if "options" not in found:
        node.wrong(f"'{name}' has no 'options'; a sink of Kafka needs 'kafka.bootstrap.servers' and 'topic'")
        return TopicSink(name, "")
    options = found["options"].mapping(("topic", *PRODUCER_OPTIONS, *_REFUSED))
    for key, reason in _REFUSED.items():
        if key in options:
            options[key].wrong(f"'{key}' is not an option here: {reason}")
    if "kafka.compression.type" in options:
        options["kafka.compression.type"].one_of({codec: codec for codec in _CODECS})
    if "topic" in found and "topic" in options:
        options["topic"].wrong(f"'{name}' says its topic twice")
    topic = found.get("topic", options.get("topic"))
    if topic is None:
        node.wrong(f"'{name}' has no 'topic'")
        return TopicSink(name, "")
    said = topic.parsed(_topic, "the name of a topic: letters, digits, `.`, `_` or `-`")
    return TopicSink(name, said or "", entry.is_channel, read_client(found["options"], options, entry.folders.base))


def _topic(text: str) -> str | None:
    return text if _TOPIC.fullmatch(text) else None
