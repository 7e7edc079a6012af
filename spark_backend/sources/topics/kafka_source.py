"""What the lister and workers have to know of a Kafka source, as plain data."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_backend.sources.topics.avro.avro_form import AvroForm

SECOND = 1_000_000
"""µs."""


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics a source reads; one of these.

    names: of topics, sorted
    pattern: a regular expression for whole names
    assigned: partitions by topic
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that have to exist."""
        return tuple(sorted(self.assigned)) or self.names

    def of(self, present: Iterable[str]) -> list[str]:
        """Those of the topics of a broker that the pattern chooses; Kafka's own are never."""
        assert self.pattern is not None
        chosen = re.compile(self.pattern)
        return sorted(name for name in present if chosen.fullmatch(name) and not name.startswith("__"))

    def partitions(self, topic: str, present: Collection[int]) -> list[int]:
        """The partitions of a topic that are read."""
        return sorted(self.assigned[topic]) if topic in self.assigned else sorted(present)


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A source of messages.

    name: of the source
    topics: which ones are read
    client: options of librdkafka; they may be secret
    start: where a new job begins: `earliest`, `latest`, or a time, µs
    skew: µs that the clock of a broker may be behind the lister's
    max_offsets: most of a micro-batch; None = all
    min_partitions: least number of tasks, if there are so many messages; None = no such number
    is_control: whether its messages are control events
    retry: seconds that a broker which does not answer is asked again; None = as is usual
    ahead: µs that timestamps may be later than a micro-batch's listing; None = no limit
    avro: how messages in Avro are written; None = they are JSON
    """

    name: str
    topics: TopicChoice
    client: Mapping[str, str] = field(repr=False)
    start: str | int = "earliest"
    skew: int = SECOND
    max_offsets: int | None = None
    min_partitions: int | None = None
    is_control: bool = False
    retry: float | None = None
    ahead: int | None = None
    avro: AvroForm | None = None
