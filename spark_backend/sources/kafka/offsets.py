"""Ranges of offsets and positions in topics, as manifests have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any


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

    ranges: tuple[OffsetRange, ...] = ()
    advances: tuple[Advance, ...] = ()
    positions: Positions = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold them."""
        return {
            "ranges": list(map(astuple, self.ranges)),
            "advances": list(map(astuple, self.advances)),
            "positions": positions_to_plain(self.positions),
        }

    @staticmethod
    def of_plain(data: Mapping[str, Any]) -> Offsets:
        """The inverse of `to_plain`."""
        return Offsets(
            ranges_of_plain(data["ranges"]), advances_of_plain(data["advances"]), positions_of_plain(data["positions"])
        )


def ranges_of_plain(rows: Sequence[Sequence[Any]]) -> tuple[OffsetRange, ...]:
    """Ranges from lists of their fields."""
    return tuple(OffsetRange(*row) for row in rows)


def advances_of_plain(rows: Sequence[Sequence[Any]]) -> tuple[Advance, ...]:
    """Advances from lists of their fields."""
    return tuple(Advance(*row) for row in rows)


def positions_to_plain(positions: Positions) -> dict[str, Any]:
    """Positions as JSON can hold them."""
    return {
        source: {topic: asdict(position) for topic, position in topics.items()} for source, topics in positions.items()
    }


def positions_of_plain(data: Mapping[str, Any]) -> dict[str, dict[str, TopicPosition]]:
    """The inverse of `positions_to_plain`."""
    return {source: {topic: _position(**row) for topic, row in topics.items()} for source, topics in data.items()}


def _position(
    number: int,
    identity: str,
    next: Mapping[str, int],  # noqa: A002
    begun: Mapping[str, int] | None = None,
) -> TopicPosition:
    return TopicPosition(number, identity, _by_partition(next), None if begun is None else _by_partition(begun))


def _by_partition(plain: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in plain.items()}
