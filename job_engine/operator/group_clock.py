"""The clock of a partition group, and which records it releases.

The clock is the least watermark of the source partitions that the group can meet. Records are
processed in one total order: by arrival, then source by name, then source partition. So a record
is released once no other partition can bring one that comes before it. The results are those of
one stream in this order, however unevenly the sources are read.

All times are in µs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from job_engine.wire.source_progress import UnreadFiles, clock_partitions
from runtime.columns.arrivals import Arrivals
from runtime.instants import NEVER, NO_TIME

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
