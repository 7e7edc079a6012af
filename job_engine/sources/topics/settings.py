"""The settings of a Kafka source; what is wrong with them is reported, with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

from job_engine.document.setting_keys import Change
from job_engine.document.setting_values import duration
from job_engine.document.yaml_document import Node
from job_engine.kafka.client_options import CLIENT_OPTIONS, ISOLATION
from job_engine.kafka.client_settings import read_client
from job_engine.kafka.topic_choice import TopicChoice
from job_engine.sources.kinds import KindSettings, SourceEntry, SourceKind
from job_engine.sources.topics.avro_settings import OPTIONS as AVRO_OPTIONS
from job_engine.sources.topics.avro_settings import read_avro, refuse_avro
from job_engine.sources.topics.kafka_source import SECOND, KafkaSource
from runtime.instants import parse_moment
from runtime.json_reader import DamagedJson, json_of_text
from runtime.policies.settings_text import parse_duration

if TYPE_CHECKING:
    from job_engine.sources.source import Source

_REFUSED = {
    "startingOffsets": "say where a new job begins with 'start' beside 'options': earliest, latest or a time",
    "startingOffsetsByTimestamp": "say where a new job begins with 'start' beside 'options', such as a time",
    "startingTimestamp": "say where a new job begins with 'start' beside 'options', such as a time",
    "endingOffsets": "`ensue run --once` ends with the messages that are there when it starts",
    "failOnDataLoss": "lost messages always stop a job; `ensue run --accept-loss` continues without them",
}

_TYPE_KEYS = ("event", "type", "type_field")

_CHOICES = ("subscribe", "subscribePattern", "assign")


class TopicsKind(SourceKind):
    """Topics of Kafka; see `SourceKind`."""

    title = "Kafka sources"
    keys: Mapping[str, Change] = {"start": Change.FIXED, "skew": Change.FREE}
    options: Mapping[str, Change] = {
        "subscribe": Change.FIXED,
        "subscribePattern": Change.FIXED,
        "assign": Change.FIXED,
        "maxOffsetsPerTrigger": Change.FREE,
        "minPartitions": Change.FREE,
        ISOLATION: Change.FIXED,  # others of the client choose no records
    }
    needed: Mapping[str, Any] = {
        "required": ["options"],
        "anyOf": [
            *({"required": [key]} for key in _TYPE_KEYS),
            {"required": ["decode"], "properties": {"decode": {"not": {"const": "json"}}}},  # they name their type
        ],
    }
    usual: Mapping[str, str] = {"start": "earliest", "decode": "json"}
    control_keys = ()
    tells_arrival = True
    is_log = True

    def read(self, entry: SourceEntry) -> KindSettings:
        """As `SourceKind.read`."""
        name, node, found, folder = entry.name, entry.node, entry.found, entry.folders.base
        decode = _decode(found)
        if "arrival" in found and found["arrival"].text() != "timestamp":
            found["arrival"].wrong("a message arrives at its timestamp: 'arrival' can only be `timestamp`")
        if not entry.is_control and decode == "json" and found.keys().isdisjoint(_TYPE_KEYS):
            node.wrong(f"'{name}' needs 'event', the type of all its messages, or 'type', the field that has it")
        if "options" not in found:
            node.wrong(f"'{name}' has no 'options'; a Kafka source needs 'kafka.bootstrap.servers' and 'subscribe'")
            return KindSettings(None)
        start: str | int | None = "earliest"
        if "start" in found:
            start = cast("str | int | None", found["start"].parsed(_start, "`earliest`, `latest` or a time"))
        skew = (
            found["skew"].parsed(parse_duration, "a length of time such as `1 second`") if "skew" in found else SECOND
        )
        options = found["options"].mapping((*self.options, *CLIENT_OPTIONS, *AVRO_OPTIONS, *_REFUSED))
        for key, reason in _REFUSED.items():
            if key in options:
                options[key].wrong(f"'{key}' is not an option here: {reason}")
        topics, client = _topics(name, found["options"], options), read_client(found["options"], options, folder)
        if decode == "json":
            refuse_avro(options)
        own = KafkaSource(
            name,
            topics,
            client,
            start="earliest" if start is None else start,
            skew=SECOND if skew is None else skew,
            max_offsets=_count(options, "maxOffsetsPerTrigger"),
            min_partitions=_count(options, "minPartitions"),
            is_control=entry.is_control,
            ahead=duration(found, "ahead", None),
            avro=read_avro(name, found["options"], options, client, folder) if decode == "avro" else None,
        )
        return KindSettings(own)

    def asked_again(self, own: KafkaSource, retry: float | None) -> KafkaSource:
        """As `SourceKind.asked_again`."""
        return replace(own, retry=retry)

    def shown(self, source: Source) -> str:  # noqa: ARG002
        """As `SourceKind.shown`."""
        return "its topics"


KIND = TopicsKind()


def _decode(found: Mapping[str, Node]) -> str:
    words = {word: word for word in ("json", "avro")}
    return (found["decode"].one_of(words, unsupported=("columns",)) or "") if "decode" in found else "json"


def _start(text: str) -> str | int | None:
    return text if text in ("earliest", "latest") else parse_moment(text)


def _count(options: Mapping[str, Node], key: str) -> int | None:
    return options[key].number(least=1, most=2**62) if key in options else None


def _topics(name: str, node: Node, options: Mapping[str, Node]) -> TopicChoice:
    given = [key for key in _CHOICES if key in options]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "says no topics"
        node.wrong(f"'{name}' {found}; expected one of subscribe, subscribePattern and assign")
        return TopicChoice()
    chosen = options[given[0]]
    match given[0]:
        case "subscribe":
            names = {topic.strip() for topic in chosen.text().split(",")} - {""}
            if not names:
                chosen.expected("names of topics with commas between them")
            return TopicChoice(names=tuple(sorted(names)))
        case "subscribePattern":
            return TopicChoice(pattern=chosen.parsed(_pattern, "a regular expression"))
        case _:
            what = 'partitions by topic as JSON, such as `{"trades": [0, 1]}`'
            return TopicChoice(assigned=chosen.parsed(_assigned, what) or {})


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error:
        return None
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]] | None:
    try:
        found = json_of_text(text, dict[str, list[Annotated[int, range(2**31)]]])
    except DamagedJson:
        return None
    chosen = {topic: tuple(sorted(numbers)) for topic, numbers in found.items()}
    return chosen if chosen and all(chosen.values()) else None
