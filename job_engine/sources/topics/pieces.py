"""What a micro-batch reads of topics, and what was read of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from querylang.dataclass import asdict, astuple, dataclass, field
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
    """What is read of sources next; `positions`: after it."""

    ranges: tuple[OffsetRange, ...] = ()
    advances: tuple[Advance, ...] = ()
    positions: Positions = field(default_factory=dict)


Topics = Mapping[str, TopicPosition]
"""By topic."""


@dataclass(frozen=True, slots=True)
class TopicsPiece:
    """What a manifest has of a source; `position`: after it."""

    position: Topics = field(default_factory=dict)
    ranges: tuple[Annotated[OffsetRange, ROW], ...] = ()
    advances: tuple[Annotated[Advance, ROW], ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "position": topics_to_plain(self.position),
            "ranges": list(map(astuple, self.ranges)),
            "advances": list(map(astuple, self.advances)),
        }


@dataclass(slots=True)
class TopicsMemory:
    """What was read of a source."""

    source: str
    position: Topics = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.position)

    def add(self, number: int, piece: TopicsPiece) -> None:  # noqa: ARG002
        """As `Memory.add`."""
        self.position = piece.position

    def still(self) -> TopicsPiece:
        """As `Memory.still`."""
        return TopicsPiece(self.position)

    def to_plain(self, until: int, piece: TopicsPiece) -> dict[str, Any]:  # noqa: ARG002
        """As `Memory.to_plain`: a piece has the position behind it."""
        return topics_to_plain(piece.position)


@dataclass(frozen=True, slots=True)
class TopicsWork:
    """What one task reads of a source."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class TopicsNews:
    """What every bucket hears of a source."""

    advances: tuple[Advance, ...]


def topics_to_plain(topics: Topics) -> dict[str, Any]:
    """A position as JSON can hold it."""
    return {topic: asdict(position) for topic, position in topics.items()}
