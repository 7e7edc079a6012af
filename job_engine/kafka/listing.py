"""What a broker has, as plain data, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from job_engine.errors import SourceProblem
from job_engine.kafka.topic_choice import TopicChoice
from querylang.dataclass import dataclass


class BrokerError(SourceProblem):
    """A broker did not answer, or refused; the text says it for people.

    is_passing: whether it may work when it is asked again
    """

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class PartitionListing:
    """A partition.

    first: its least offset
    until: the offset behind the last message that can be read
    end: that behind all messages, also those that wait for an open transaction; None = `until`
    is_settled: whether no message before the end waits for its transaction
    """

    first: int
    until: int
    is_settled: bool = True
    end: int | None = None

    @property
    def open(self) -> int:
        """How many offsets wait for an open transaction."""
        return 0 if self.end is None else max(0, self.end - self.until)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic.

    identity: a topic of the same name that is made later has another
    is_append_time: whether the broker's clock gives the timestamps, and not the producer's
    """

    identity: str
    is_append_time: bool
    partitions: Mapping[int, PartitionListing]


@dataclass(frozen=True, slots=True)
class Listing:
    """What a broker has for a source; `moment`: µs, the lister's clock before it was asked."""

    moment: int
    topics: Mapping[str, TopicListing]


class Broker(Protocol):
    """A broker that can be asked; each call raises BrokerError."""

    def listing(self, choice: TopicChoice) -> Listing:
        """The topics of a source. A topic that is missing there does not exist."""

    def arrival_of(self, topic: str, partition: int, offset: int) -> int | None:
        """The timestamp (µs) of the first message from an offset on; None = not known."""

    def offsets_at(self, partitions: Sequence[tuple[str, int]], moment: int) -> dict[tuple[str, int], int | None]:
        """By topic and partition: the first offset from a time (µs) on; None = there is none."""
