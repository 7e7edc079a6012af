"""The watermarks of a job's source partitions: up to where each has been read.

Pure functions: the wall clock comes in as the timestamp of the micro-batch in ms, which Spark
logs. All other times are in µs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtime.instants import NO_TIME
from spark_backend.operator.group_clock import GroupClock, Position
from spark_backend.wire.clock_sources import IdleTimes
from spark_backend.wire.source_progress import SourceProgress, partition_text


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """The watermark of one source partition.

    source: name of the source
    partition: number of the partition; None = the whole source is one
    arrival: largest arrival time so far, µs; NO_TIME = none yet
    updated: timestamp, ms, since which it is silent: of the last micro-batch with records of it, or
        of the first one of a run
    """

    source: str
    partition: int | None
    arrival: int
    updated: int


@dataclass(frozen=True, slots=True)
class JobClock:
    """The watermarks of all source partitions, in order of name and number.

    A source that has brought nothing yet is there as a whole.
    """

    sources: tuple[SourceWatermark, ...] = ()

    def expecting(self, names: Iterable[str], timestamp: int) -> JobClock:
        """The clock that also waits for these sources, if it does not know them yet."""
        known = {item.source for item in self.sources}
        new = [SourceWatermark(name, None, NO_TIME, timestamp) for name in names if name not in known]
        return self if not new else JobClock(_sorted((*self.sources, *new)))

    def advanced(self, progress: Iterable[SourceProgress], timestamp: int) -> JobClock:
        """The clock after a micro-batch."""
        found = {(item.source, item.partition): item for item in self.sources}
        for item in progress:
            name = (item.source, item.partition)
            before = found[name].arrival if name in found else NO_TIME
            found[name] = SourceWatermark(*name, max(before, item.arrival), timestamp)
        with_partitions = {source for source, partition in found if partition is not None}
        kept = [
            item for item in found.values() if item.partition is not None or item.source not in with_partitions
        ]  # fmt: skip
        return JobClock(_sorted(kept))

    def resumed(self, timestamp: int) -> JobClock:
        """The clock at the beginning of a run: nobody looked at the sources until now."""
        return JobClock(tuple(replace(item, updated=timestamp) for item in self.sources))

    def of(self, names: Collection[str] | None, timestamp: int, idle: IdleTimes) -> GroupClock:
        """The clock of a partition group that meets these sources; None = all."""
        return GroupClock(
            timestamp * 1000,
            tuple(
                Position((item.source, _number(item)), item.arrival, item.updated * 1000, idle.of(item.source))
                for item in self.sources
                if names is None or item.source in names
            ),
        )

    def arrival_of(self, source: str, partition: int | None) -> int:
        """Up to where a source partition has been read, µs; NO_TIME = it has brought nothing."""
        found = (item.arrival for item in self.sources if (item.source, item.partition) == (source, partition))
        return next(found, NO_TIME)

    def to_plain(self) -> list[list[Any]]:
        """The watermarks as JSON can hold them, for state and files."""
        return [[item.source, item.partition, item.arrival, item.updated] for item in self.sources]

    @staticmethod
    def from_plain(rows: Sequence[Sequence[Any]]) -> JobClock:
        """The inverse of `to_plain`."""
        return JobClock(tuple(SourceWatermark(*row) for row in rows))


def place_name(source: str, partition: int | None) -> str:
    """A source partition for people; a source with one partition only goes by its name."""
    return f"{source}/{partition_text(partition)}" if partition else source


def _sorted(items: Iterable[SourceWatermark]) -> tuple[SourceWatermark, ...]:
    return tuple(sorted(items, key=lambda item: (item.source, _number(item))))


def _number(item: SourceWatermark) -> int:
    return -1 if item.partition is None else item.partition
