"""How far each source has come, and the one clock that all of them allow.

Takes what micro-batches brought, by source partition: its largest arrival; gives the moment that has come for all of them,
and for each of them up to where its records have their turn. Results then are those of one stream in which all
records stand in order of arrival, however unevenly the sources are read. Pure: the wall clock comes in as the timestamp
of the micro-batch, which Spark logs, in milliseconds; all else is microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.columns.arrivals import Arrivals
from runtime.instants import NEVER, NO_TIME

EARLIER = ""
"""Stands for all sources in state of a release that did not tell them apart, until one of them is heard of."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a batch of records says of a source partition: its largest arrival. `partition` None: the whole source is one."""

    source: str
    partition: int | None
    arrival: int


@dataclass(frozen=True, slots=True)
class SourceClock:
    """One source partition. `arrival`: its largest; `seen`: the micro-batch that brought records of it last.

    `reached`: the moment up to which it counts as read: its arrival, or a later one where something else says so.
    """

    source: str
    partition: int | None
    arrival: int
    reached: int
    seen: int

    def at(self, timestamp: int, idle: int | None) -> int:
        """How far it has come: while it is silent for longer than `idle`, time goes on without it (None: never)."""
        silence = 0 if idle is None else max(0, (timestamp - self.seen) * 1000 - idle)
        return self.reached + silence


@dataclass(frozen=True, slots=True)
class Clocks:
    """All source partitions that were heard of, in order of their names."""

    sources: tuple[SourceClock, ...] = ()

    def after(self, heard: Iterable[Heard], timestamp: int) -> Clocks:
        """What a micro-batch makes of them. A partition that is new begins where all have come to: earlier is over."""
        found = {(item.source, item.partition): item for item in self.sources}
        begun = min((item.reached for item in self.sources), default=NO_TIME)
        for item in heard:
            place = (item.source, item.partition)
            known = found.get(place, SourceClock(*place, item.arrival, begun, timestamp))
            arrival = max(known.arrival, item.arrival)
            found[place] = SourceClock(*place, arrival, max(known.reached, arrival), timestamp)
        if len(found) > 1:
            found.pop((EARLIER, None), None)
        return Clocks(tuple(found[place] for place in sorted(found, key=_order)))

    def caught_up(self, timestamp: int) -> Clocks:
        """All that was there is read: every partition has come as far as the furthest."""
        furthest = self.furthest
        return Clocks(
            tuple(SourceClock(it.source, it.partition, it.arrival, furthest, timestamp) for it in self.sources)
        )

    @property
    def furthest(self) -> int:
        """The largest arrival of all; NO_TIME where nothing was heard."""
        return max((item.reached for item in self.sources), default=NO_TIME)

    def now(self, timestamp: int, idle: int | None) -> int | None:
        """The moment that has come for all: the clock of the job; None where nothing was heard."""
        return min((item.at(timestamp, idle) for item in self.sources), default=None)

    def turn(self, timestamp: int, idle: int | None) -> Turn:
        """Whose records have their turn up to where."""
        moments = [item.at(timestamp, idle) for item in self.sources]
        least, second = (*sorted(moments)[:2], NEVER, NEVER)[:2] if moments else (NO_TIME, NO_TIME)
        limits: dict[str, dict[int | None, int]] = {}
        for item, moment in zip(self.sources, moments, strict=True):
            limits.setdefault(item.source, {})[item.partition] = second if moment == least else least
        return Turn(least, limits)

    def when(self, moment: int, idle: int | None) -> int | None:
        """The timestamp from which on silence has brought the clock to a moment; None: silence never does."""
        behind = [item for item in self.sources if item.reached < moment]
        if idle is None and behind:
            return None
        return max((item.seen + -(-(moment - item.reached + (idle or 0)) // 1000) for item in behind), default=0)

    def to_plain(self) -> list[list[Any]]:
        """For state and files."""
        return [[item.source, item.partition, item.arrival, item.reached, item.seen] for item in self.sources]

    @staticmethod
    def from_plain(rows: Sequence[Sequence[Any]]) -> Clocks:
        """The inverse."""
        return Clocks(tuple(SourceClock(*row) for row in rows))


@dataclass(frozen=True, slots=True)
class Turn:
    """A record has its turn if it arrived before all that may still come: strictly before the limit of its source partition, the
    least that the others have come to (NEVER: there are none). `others`: the limit for what is none of them."""

    others: int
    limits: dict[str, dict[int | None, int]]

    @staticmethod
    def of_all(moment: int = NEVER) -> Turn:
        """Everything that has arrived by then, whoever brought it."""
        return Turn(min(moment + 1, NEVER), {})

    def limit(self, source: str, arrivals: Arrivals) -> int | NDArray[np.int64]:
        """The moments before which these records of a source have their turn; one number where it is one for all."""
        own = self.limits.get(source)
        if own is None:
            return self.others
        if len(own) == 1:
            return next(iter(own.values()))
        present, place = np.unique(arrivals.system("partition"), return_inverse=True)
        return np.array([own.get(partition, self.others) for partition in present.tolist()], np.int64)[place]


def _order(place: tuple[str, int | None]) -> tuple[str, int]:
    source, partition = place
    return source, -1 if partition is None else partition
