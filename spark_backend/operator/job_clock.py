"""The job's clock and what it releases: watermark alignment of all source partitions.

The clock is the least watermark of all source partitions. A record is released once no other
partition can still bring an earlier one. So the results are those of one stream in order of
arrival, however unevenly the sources are read.

Pure functions: the wall clock comes in as the timestamp of the micro-batch in ms, which Spark
logs. All other times are in µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.columns.arrivals import Arrivals
from runtime.instants import NEVER, NO_TIME
from spark_backend.wire.packed_rows import SourceProgress


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """The watermark of one source partition.

    source: name of the source
    partition: number of the partition; None = the whole source is one
    arrival: largest arrival time so far, µs
    watermark: up to where the partition counts as read, µs; at least `arrival`
    updated: timestamp of the last micro-batch with records of it, ms
    """

    source: str
    partition: int | None
    arrival: int
    watermark: int
    updated: int

    def at(self, timestamp: int, idle: int | None) -> int:
        """The watermark at `timestamp`: it advances while the partition is idle.

        idle: µs without records after which it does; None = never
        """
        idle_time = 0 if idle is None else max(0, (timestamp - self.updated) * 1000 - idle)
        return self.watermark + idle_time


@dataclass(frozen=True, slots=True)
class JobClock:
    """The watermarks of all source partitions that have reported progress, in order of name."""

    sources: tuple[SourceWatermark, ...] = ()

    def advanced(self, progress: Iterable[SourceProgress], timestamp: int) -> JobClock:
        """The clock after a micro-batch.

        A new partition starts at the least watermark of the others: its older records are treated
        as arriving now.
        """
        found = {(item.source, item.partition): item for item in self.sources}
        start = min((item.watermark for item in self.sources), default=NO_TIME)
        for item in progress:
            name = (item.source, item.partition)
            known = found.get(name, SourceWatermark(*name, item.arrival, start, timestamp))
            arrival = max(known.arrival, item.arrival)
            found[name] = SourceWatermark(*name, arrival, max(known.watermark, arrival), timestamp)
        return JobClock(tuple(found[name] for name in sorted(found, key=_order)))

    def caught_up(self, timestamp: int) -> JobClock:
        """The clock once all available input has been read: all watermarks equal the furthest."""
        furthest = self.furthest
        return JobClock(
            tuple(SourceWatermark(it.source, it.partition, it.arrival, furthest, timestamp) for it in self.sources)
        )

    @property
    def furthest(self) -> int:
        """The largest watermark, µs; NO_TIME = no source has reported progress."""
        return max((item.watermark for item in self.sources), default=NO_TIME)

    def now(self, timestamp: int, idle: int | None) -> int | None:
        """The least watermark, µs; None = no source has reported progress."""
        return min((item.at(timestamp, idle) for item in self.sources), default=None)

    def release_limits(self, timestamp: int, idle: int | None) -> ReleaseLimits:
        """Per source partition, the least watermark of all others."""
        watermarks = [item.at(timestamp, idle) for item in self.sources]
        least, second = (*sorted(watermarks)[:2], NEVER, NEVER)[:2] if watermarks else (NO_TIME, NO_TIME)
        limits: dict[str, dict[int | None, int]] = {}
        for item, watermark in zip(self.sources, watermarks, strict=True):
            limits.setdefault(item.source, {})[item.partition] = second if watermark == least else least
        return ReleaseLimits(least, limits)

    def timestamp_of(self, time: int, idle: int | None) -> int | None:
        """The timestamp (ms) at which the clock reaches `time` without records; None = never."""
        behind = [item for item in self.sources if item.watermark < time]
        if idle is None and behind:
            return None
        return max((item.updated + -(-(time - item.watermark + (idle or 0)) // 1000) for item in behind), default=0)

    def to_plain(self) -> list[list[Any]]:
        """The watermarks as JSON can hold them, for state and files."""
        return [[item.source, item.partition, item.arrival, item.watermark, item.updated] for item in self.sources]

    @staticmethod
    def from_plain(rows: Sequence[Sequence[Any]]) -> JobClock:
        """The inverse of `to_plain`."""
        return JobClock(tuple(SourceWatermark(*row) for row in rows))


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """A record is released if it arrived strictly before the limit of its source partition.

    others: limit of records of all other sources, such as the control stream, µs; NEVER = none
    by_partition: limits by source and partition, µs; NEVER = none
    """

    others: int
    by_partition: dict[str, dict[int | None, int]]

    @staticmethod
    def up_to(last: int = NEVER) -> ReleaseLimits:
        """Release all records that arrived at `last` or before, of any source; NEVER = all."""
        return ReleaseLimits(min(last + 1, NEVER), {})

    def released_before(self, source: str, arrivals: Arrivals) -> int | NDArray[np.int64]:
        """The limit of each record of a source; one number if it is the same for all."""
        own = self.by_partition.get(source)
        if own is None:
            return self.others
        if len(own) == 1:
            return next(iter(own.values()))
        present, numbers = np.unique(arrivals.system("partition"), return_inverse=True)
        return np.array([own.get(partition, self.others) for partition in present.tolist()], np.int64)[numbers]


def _order(name: tuple[str, int | None]) -> tuple[str, int]:
    source, partition = name
    return source, -1 if partition is None else partition
