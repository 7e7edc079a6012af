"""The settings of a sink of Kafka; what is wrong with them is reported, with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from spark_backend.document.yaml_document import Node
from spark_backend.sinks.kafka.kafka_sink import KafkaSink
from spark_backend.sources.kafka.client_options import PRODUCER_OPTIONS
from spark_backend.sources.kafka.client_settings import read_client

_REFUSED = {
    "kafka.acks": "transactions need the answer of all replicas",
    "kafka.enable.idempotence": "transactions are always idempotent",
    "kafka.transactional.id": "the job has an id per checkpoint and sink",
    "kafka.key.serializer": "messages are JSON",
    "kafka.value.serializer": "messages are JSON",
}

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)


def read_kafka_sink(
    name: str, node: Node, found: Mapping[str, Node], folder: Path, *, is_channel: bool
) -> KafkaSink | None:
    """The settings among a sink's entries; None = mistakes were reported.

    folder: that relative paths are relative to
    """
    for key in ("path", "shared", "formulas"):
        if key in found:
            found[key].wrong(f"'{key}' is a setting of folders; '{name}' is a topic of Kafka")
    if "layout" in found:
        found["layout"].wrong("'layout' is a setting of folders; a topic has the matches of all queries")
    if "options" not in found:
        node.wrong(f"'{name}' has no 'options'; a sink of Kafka needs 'kafka.bootstrap.servers' and 'topic'")
        return None
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
        return None
    said = topic.parsed(_topic, "the name of a topic: letters, digits, `.`, `_` or `-`")
    return KafkaSink(name, said or "", is_channel, read_client(found["options"], options, folder))


def _topic(text: str) -> str | None:
    return text if _TOPIC.fullmatch(text) else None
