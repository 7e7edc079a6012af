"""Which topics of a broker are meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field


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


# Whether what a source reads and a sink writes have a topic in common. A job that reads what it
# writes would feed itself, and never end with `--once`.

_DEFAULT_PORT = "9092"


@dataclass(frozen=True, slots=True)
class TopicsAt:
    """Topics of a broker; `client`: options of librdkafka, which may be secret."""

    client: Mapping[str, str] = field(repr=False)
    choice: TopicChoice
    retry: float | None = None

    def has(self, topic: str) -> bool:
        """Whether a topic of that name is one of these."""
        return topic in self.choice.named or (self.choice.pattern is not None and bool(self.choice.of([topic])))

    def may_be_at(self, other: TopicsAt) -> bool:
        """Whether an address of a broker is the same."""
        return bool(_addresses(self.client) & _addresses(other.client))


def _addresses(client: Mapping[str, str]) -> frozenset[str]:
    """Host and port of each broker that is named, in lower case."""
    found = []
    for text in client.get("bootstrap.servers", "").split(","):
        address = text.strip().rpartition("://")[2].lower()
        is_whole = address.rpartition(":")[2].isdecimal() and not address.endswith("]")
        found.append(address if is_whole else f"{address}:{_DEFAULT_PORT}")
    return frozenset(found)


def in_common(source: str, sink: str, topic: str) -> str:
    """What is said of a topic that a source and a sink have in common; both as in `source 'a'`."""
    return (
        f"the topic '{topic}' is read by {source} and written by {sink}: the job would read its own results."
        " Let it write to another topic"
    )
