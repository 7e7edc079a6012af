"""Ranges of offsets and positions in topics, as manifests have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Annotated, Any

from runtime.json_shapes import ROW


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages of one partition that a micro-batch reads.

    source: name of the source
    topic, number: the topic's name, and its number in the source, from 0
    start, until: the first offset, and the one behind the last
    is_lost: whether the broker has them no longer
    latest: messages with later timestamps, µs, are refused; None = there is no limit
    """

    source: str
    topic: str
    number: int
    partition: int
    start: int
    until: int
    is_lost: bool = False
    latest: int | None = None

    def __len__(self) -> int:
        return self.until - self.start


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a partition is read without a message that says so.

    number: of the topic in the source
    arrival: µs; no later message arrives before it. NO_TIME: nothing is known but the partition
    offset: of the next message
    """

    source: str
    number: int
    partition: int
    arrival: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """How far a topic has been read.

    number: of the topic in the source
    identity: of the topic: one of the same name that is made later has another
    next: by partition: the offset of the next message
    begun: by partition: the offset where reading began; None = written by an older release
    """

    number: int
    identity: str
    next: Mapping[int, int]
    begun: Mapping[int, int] | None = None


Positions = Mapping[str, Mapping[str, TopicPosition]]
"""By source and topic."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """What a manifest has of Kafka sources; `positions`: after it."""

    ranges: tuple[Annotated[OffsetRange, ROW], ...] = ()
    advances: tuple[Annotated[Advance, ROW], ...] = ()
    positions: Positions = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold them."""
        return {
            "ranges": list(map(astuple, self.ranges)),
            "advances": list(map(astuple, self.advances)),
            "positions": positions_to_plain(self.positions),
        }


def positions_to_plain(positions: Positions) -> dict[str, Any]:
    """Positions as JSON can hold them."""
    return {
        source: {topic: asdict(position) for topic, position in topics.items()} for source, topics in positions.items()
    }
