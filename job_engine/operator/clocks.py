"""The job clock: how far each source partition is read. Clocks of groups, which release records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from job_engine.wire.clock_sources import IdleTimes
from job_engine.wire.reports import SourceProgress, Unread, UnreadFiles, clock_partitions, partition_text
from querylang.dataclass import dataclass, field, replace
from runtime.columns.arrivals import Arrivals
from runtime.instants import NEVER, NO_TIME

# The clock of a partition group, and which records it releases.
#
# The clock is the least watermark of the source partitions that the group can meet. Records are
# processed in one total order: by arrival, then source by name, then source partition. So a record
# is released once no other partition can bring one that comes before it. The results are those of
# one stream in this order, however unevenly the sources are read.
#
# All times are in µs.

Name = tuple[str, int]
"""A source partition: source and number, -1 = the whole source. They are ordered like that."""

_STEPS = 32
"""The longer all sources are silent, the more rarely a bucket is called: for silence / _STEPS."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a source partition is.

    arrival: before it nothing comes any more; NO_TIME = none yet
    since: since when it is silent
    idle: length of silence after which time advances without it; None = never
    read: largest arrival time so far; None = `arrival`
    """

    name: Name
    arrival: int
    since: int
    idle: int | None
    read: int | None = None

    @property
    def furthest(self) -> int:
        """The largest arrival time so far."""
        return self.arrival if self.read is None else self.read

    @property
    def idle_from(self) -> int:
        """The last moment at which time still waits for it; NEVER = it always does."""
        return NEVER if self.idle is None else min(NEVER, self.since + self.idle)


@dataclass(frozen=True, slots=True)
class GroupClock:
    """The clock of a group at a moment of the wall clock, by the positions in order of name.

    unread: listed files, which time always waits for
    """

    moment: int
    positions: tuple[Position, ...]
    unread: tuple[UnreadFiles, ...] = ()

    @property
    def furthest(self) -> int | None:
        """The largest arrival time of all; None = nothing has arrived."""
        arrival = max((item.furthest for item in self.positions), default=NO_TIME)
        return None if arrival == NO_TIME else arrival

    @property
    def now(self) -> int | None:
        """The clock; None = it has not begun.

        While time waits for some partition or file, it is the least arrival of these. When all
        have been silent for too long, it is the furthest arrival, and advances at the pace of the
        wall clock.
        """
        waiting = [item.arrival for item in self._waiting()] + [item.arrival for item in self.unread]
        if waiting:
            least = min(waiting)
            return None if least == NO_TIME else least
        furthest = self.furthest
        return None if furthest is None else furthest + self.moment - max(item.idle_from for item in self.positions)

    def waits_for(self, clock: int | None) -> tuple[Name, ...]:
        """The partitions that have to bring something before time advances from `clock`."""
        least = NO_TIME if clock is None else clock
        files = {item.source for item in self.unread if item.arrival <= least}
        return tuple(item.name for item in self._waiting() if item.arrival <= least and item.name[0] not in files)

    def waits_for_files(self, clock: int | None) -> tuple[UnreadFiles, ...]:
        """The listed files that have to be read before time advances from `clock`."""
        return tuple(item for item in self.unread if item.arrival <= (NO_TIME if clock is None else clock))

    def limits(self) -> ReleaseLimits:
        """Which records are released: none that an unread record of another partition precedes.

        A partition that is read up to t can still bring records of t. A record of t may go before
        those if its own partition comes first in the order of names.
        """
        waiting = self._waiting()
        arrivals = [item.arrival for item in waiting]
        before = [NEVER, *accumulate(arrivals, min)]
        after = [NEVER, *accumulate(reversed(arrivals), min)][::-1]
        own: dict[str, dict[int, int]] = {}
        for place, item in enumerate(waiting):
            source, number = item.name
            own.setdefault(source, {})[number] = min(before[place], _following(after[place + 1]))
        for item in self.positions:
            source, number = item.name
            if number not in own.get(source, {}):  # time does not wait for it
                place = sum(other.name < item.name for other in waiting)
                own.setdefault(source, {})[number] = min(before[place], _following(after[place]))
        now = self.now
        others = before[-1] if waiting else NO_TIME if now is None else now + 1
        return ReleaseLimits(others, own) if not self.unread else self._before_unread(others, own)

    def _before_unread(self, others: int, own: Mapping[str, Mapping[int, int]]) -> ReleaseLimits:
        """The limits, lowered to what listed files of other sources can bring.

        For records of their own source their places decide what arrives together.
        """
        lowered = {}
        for source, limits in own.items():
            least = min(
                (
                    _following(item.arrival) if source < item.source else item.arrival
                    for item in self.unread
                    if item.source != source
                ),
                default=NEVER,
            )
            lowered[source] = {number: min(limit, least) for number, limit in limits.items()}
        least = min(item.arrival for item in self.unread)
        return ReleaseLimits(min(others, least), lowered, {item.source: item for item in self.unread})

    def next_change(self) -> int | None:
        """The next moment at which silence lets the clock advance; None = it never does."""
        coming = [item.idle_from + 1 for item in self.positions if item.idle_from >= self.moment]
        if any(moment < NEVER for moment in coming):
            return min(coming)
        if coming or self.unread or self.furthest is None:
            return None
        silence = self.moment - max(item.since for item in self.positions)
        return self.moment + max(1, silence // _STEPS)

    def _waiting(self) -> list[Position]:
        return [item for item in self.positions if item.idle_from >= self.moment]


NO_CLOCK = GroupClock(0, ())
"""Waits for no source."""


def _following(moment: int) -> int:
    return moment if moment >= NEVER else moment + 1


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """A record is released if it arrived before the limit of its source partition.

    others: limit of records of all other sources, such as the control stream; NEVER = none
    by_partition: limits by source and partition; NEVER = none
    unread: by source, its listed files: what comes before their records is released
    """

    others: int
    by_partition: Mapping[str, Mapping[int, int]]
    unread: Mapping[str, UnreadFiles] = field(default_factory=dict)

    @staticmethod
    def up_to(last: int = NEVER) -> ReleaseLimits:
        """Release all records that arrived at `last` or before, of any source; NEVER = all."""
        return ReleaseLimits(_following(last), {})

    def released_before(self, source: str, arrivals: Arrivals, *, by_topic: bool) -> int | NDArray[np.int64]:
        """The limit of each record of a source; one number if it is the same for all.

        by_topic: as in `ClockSource`
        """
        limit = self._of_partitions(source, arrivals, by_topic=by_topic)
        unread = self.unread.get(source)
        if unread is None:
            return limit
        is_before = arrivals.system("place") < unread.place
        return np.minimum(limit, np.where(is_before, _following(unread.arrival), unread.arrival))

    def _of_partitions(self, source: str, arrivals: Arrivals, *, by_topic: bool) -> int | NDArray[np.int64]:
        own = self.by_partition.get(source)
        if own is None:
            return self.others
        if len(own) == 1:
            return next(iter(own.values()))
        present, numbers = np.unique(clock_partitions(arrivals, by_topic=by_topic), return_inverse=True)
        return np.array([own.get(partition, self.others) for partition in present.tolist()], np.int64)[numbers]


# The watermarks of a job's source partitions: up to where each has been read.
#
# Pure functions: the wall clock comes in as the timestamp of the micro-batch in ms, which the
# driver logs. All other times are in µs.

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
