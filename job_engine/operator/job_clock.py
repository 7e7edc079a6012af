"""The watermarks of a job's source partitions: up to where each has been read.

Pure functions: the wall clock comes in as the timestamp of the micro-batch in ms, which the
driver logs. All other times are in µs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from job_engine.operator.group_clock import GroupClock, Position
from job_engine.wire.clock_sources import IdleTimes
from job_engine.wire.source_progress import SourceProgress, Unread, UnreadFiles, partition_text
from runtime.instants import NO_TIME

NOTHING_UNREAD: Mapping[str, UnreadFiles | None] = {}


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """The watermark of one source partition.

    source: name of the source
    partition: number of the partition; None = the whole source is one
    arrival: largest arrival time so far, µs; NO_TIME = none yet
    updated: timestamp, ms, since which it is silent: of the last micro-batch with records of it, or
        of the first one of a run
    reached: arrival, µs, before which nothing comes any more, because a listed file is still to be
        read; None = `arrival`
    """

    source: str
    partition: int | None
    arrival: int
    updated: int
    reached: int | None = None

    @property
    def settled(self) -> int:
        """The arrival before which nothing comes any more, µs; NO_TIME = none yet."""
        return self.arrival if self.reached is None else self.reached


@dataclass(frozen=True, slots=True)
class JobClock:
    """The watermarks of all source partitions, in order of name and number.

    A source that has brought nothing yet is there as a whole.

    unread: listed files that are still to be read, by source
    """

    sources: tuple[SourceWatermark, ...] = ()
    unread: tuple[UnreadFiles, ...] = ()

    def expecting(self, names: Iterable[str], timestamp: int) -> JobClock:
        """The clock that also waits for these sources, if it does not know them yet."""
        known = {item.source for item in self.sources}
        new = [SourceWatermark(name, None, NO_TIME, timestamp) for name in names if name not in known]
        return self if not new else replace(self, sources=_sorted((*self.sources, *new)))

    def advanced(self, progress: Iterable[SourceProgress], timestamp: int, unread: Unread = NOTHING_UNREAD) -> JobClock:
        """The clock after a micro-batch."""
        waiting = {item.source: item for item in self.unread}
        waiting = {source: files for source, files in {**waiting, **unread}.items() if files is not None}
        before = {(item.source, item.partition): item.settled for item in self.sources}
        found = {(item.source, item.partition): item for item in self.sources}
        for item in progress:
            name = (item.source, item.partition)
            known = found[name].arrival if name in found else NO_TIME
            found[name] = SourceWatermark(*name, max(known, item.arrival), timestamp)
        with_partitions = {source for source, partition in found if partition is not None}
        kept = [
            _settled(item, before.get((item.source, item.partition), NO_TIME), waiting.get(item.source))
            for item in found.values()
            if item.partition is not None or item.source not in with_partitions
        ]
        return JobClock(_sorted(kept), tuple(waiting[source] for source in sorted(waiting)))

    def resumed(self, timestamp: int) -> JobClock:
        """The clock at the beginning of a run: nobody looked at the sources until now."""
        return replace(self, sources=tuple(replace(item, updated=timestamp) for item in self.sources))

    def of(self, names: Collection[str] | None, timestamp: int, idle: IdleTimes) -> GroupClock:
        """The clock of a partition group that meets these sources; None = all."""
        return GroupClock(
            timestamp * 1000,
            tuple(
                Position(
                    (item.source, _number(item)), item.settled, item.updated * 1000, idle.of(item.source), item.arrival
                )
                for item in self.sources
                if names is None or item.source in names
            ),
            tuple(self._not_before(item) for item in self.unread if names is None or item.source in names),
        )

    def _not_before(self, files: UnreadFiles) -> UnreadFiles:
        """Listed files as they count: what arrives before the clock of their source joins at it."""
        least = min((item.settled for item in self.sources if item.source == files.source), default=NO_TIME)
        return files if files.arrival >= least else replace(files, arrival=least)

    def settled_of(self, source: str, partition: int | None) -> int:
        """The arrival of a source partition before which nothing comes, µs; NO_TIME = none yet."""
        found = (item.settled for item in self.sources if (item.source, item.partition) == (source, partition))
        return next(found, NO_TIME)

    def to_plain(self) -> list[list[Any]]:
        """The watermarks as JSON can hold them, for state and files."""
        return [
            [item.source, item.partition, item.arrival, item.updated, *([] if item.reached is None else [item.reached])]
            for item in self.sources
        ]

    @staticmethod
    def from_plain(rows: Sequence[Sequence[Any]], unread: Sequence[Sequence[Any]] = ()) -> JobClock:
        """The inverse of `to_plain`; `unread`: as `UnreadFiles` has it in plain form."""
        return JobClock(tuple(SourceWatermark(*row) for row in rows), tuple(map(UnreadFiles.of_plain, unread)))


def _settled(item: SourceWatermark, before: int, unread: UnreadFiles | None) -> SourceWatermark:
    """A watermark that is not ahead of listed files that are unread, and does not go back.

    before: where it was, µs
    """
    if unread is None or unread.arrival >= item.arrival:
        return replace(item, reached=None)
    reached = max(before, unread.arrival)
    return replace(item, reached=None if reached >= item.arrival else reached)


FILE = ": "
"""Between the name of a source and that of a file, in the text for people."""


def place_name(source: str, partition: int | None) -> str:
    """A source partition for people; a source with one partition only goes by its name."""
    return f"{source}/{partition_text(partition)}" if partition else source


def file_name(source: str, path: str) -> str:
    """A file that is still to be read, for people."""
    return f"{source}{FILE}{path}"


def _sorted(items: Iterable[SourceWatermark]) -> tuple[SourceWatermark, ...]:
    return tuple(sorted(items, key=lambda item: (item.source, _number(item))))


def _number(item: SourceWatermark) -> int:
    return -1 if item.partition is None else item.partition
