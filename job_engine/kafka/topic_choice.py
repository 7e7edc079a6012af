"""Which topics of a broker are meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from querylang.dataclass import dataclass, field


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
