"""What calls with rows bring: found without the engine, while they wait for being read.

A service sends an event and looks at the answer. A call of the engine for each of them would cost
many times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ensue.live.plain_rows import PlainRows
from ensue.live.rows import RowReader
from querylang.plan.model import Plan, QueryPlan
from runtime.reading.column_names import ColumnNames
from runtime.replay.incremental import Incremental
from runtime.replay.records import source_names
from runtime.single_events.events import SingleEvents, can_foresee
from runtime.single_events.results import CallResults, EarlyResults
from runtime.single_events.windows import Finding, SingleEvent, UnforeseenError

_MOST_ROWS = 20
"""More rows that nobody has looked at are left to the engine, which is faster then."""

_LEAST_STORED, _PER_LOOK = 200, 50
"""To know the stored events costs time for each: so many are worth it at once, and so many more
for each look that had to ask the engine."""

Rows = Sequence[Mapping[str, Any]]


class Foresight:
    """What is known of calls that wait for being read.

    names: how users want rows to be read
    """

    def __init__(self, plan: Plan, names: ColumnNames) -> None:
        self._rows = PlainRows(plan, names) if can_foresee(plan) else None
        self._plan, self._results = plan, CallResults(plan)
        self._events: SingleEvents | None = None
        self._known: list[EarlyResults | None] = []
        self._count = 0
        self._looks = 0

    @property
    def nothing(self) -> EarlyResults:
        """The results of every call that is known to bring nothing."""
        return self._results.nothing

    def results_of(self, calls: Sequence[Rows], work: Incremental, reader: RowReader) -> list[EarlyResults | None]:
        """By call, as far as it is known, its results; None = ask the engine.

        calls: all that wait for being read
        work: what was read before them
        reader: will read them
        """
        new = calls[len(self._known) :]
        if self._rows is None or sum(map(len, new)) > _MOST_ROWS:
            return self._known
        if self._events is None and not self._known and not work.is_broken:
            self._events = self._known_events(work)
        if self._events is None:
            return self._known
        try:
            for rows in new:
                self._known.append(self._results_of(rows, self._rows, self._events, reader))
        except UnforeseenError:
            self._events = None
        return self._known

    def were_read(self, calls: int) -> list[EarlyResults | None]:
        """The calls that waited were read; returns what was known of them.

        Other rows may have been read too, which are unknown here.
        """
        if calls != len(self._known):
            self._events = None
        known, self._known, self._count = self._known, [], 0
        return known

    def advance(self, time: int) -> None:
        """The clock has advanced, µs; all rows have been read."""
        if self._events is not None:
            try:
                self._events.advance(time)
            except UnforeseenError:
                self._events = None

    def lose_track(self) -> None:
        """Rows were read that were not among the calls."""
        self._events = None

    def _known_events(self, work: Incremental) -> SingleEvents | None:
        work.work()
        self._looks += 1
        if work.engine.plan is not self._plan:
            return None
        if work.engine.stored_events() > _LEAST_STORED + _PER_LOOK * self._looks:
            return None
        self._looks = 0
        try:
            return SingleEvents(work.engine)
        except UnforeseenError:
            return None

    def _results_of(self, rows: Rows, plain: PlainRows, events: SingleEvents, reader: RowReader) -> EarlyResults | None:
        brought: list[tuple[int, QueryPlan, Finding]] = []
        is_known = True
        (source,) = source_names([rows])
        for number, row in enumerate(rows):
            event = plain.event_of(row, reader.names)
            if event is None or event.arrival < events.clock:
                raise UnforeseenError
            self._count += 1
            place = (source, 0, reader.rows.get(source, 0) + self._count) if event.is_placed else None
            of_timers = events.advance(event.arrival)
            found = events.take(SingleEvent(event.type, event.values, event.arrival, place, event.declared))
            is_known &= of_timers is not None and found is not None
            brought += [(_TIMER, query, finding) for query, finding in of_timers or ()]
            brought += [(number, query, finding) for query, finding in found or ()]
        return self._results.of(brought) if is_known else None


_TIMER = -1
"""In place of the number of a row: a timer has found a match."""
