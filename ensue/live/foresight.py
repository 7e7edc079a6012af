"""What calls with rows bring: found without the engine, while they wait for being read.

A service sends an event and looks at the answer. A call of the engine for each of them would cost
many times as much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ensue.live.rows import RowReader
from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import EventType, Plan, QueryPlan
from runtime.instants import EARLIEST, LATEST, NO_TIME, SECOND
from runtime.interpreter import Value
from runtime.policies.settings_text import USUAL_TIMES
from runtime.reading import ARRIVAL, NONE, PLACES, SOURCE_TIME, TYPE, ColumnNames, needed_names
from runtime.replay import Incremental, source_names
from runtime.single_events import (
    CallResults,
    EarlyResults,
    FoundMatch,
    SingleEvent,
    SingleEvents,
    UnforeseenError,
    can_foresee,
)
from runtime.timestamps import parse_time

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
        brought: list[tuple[int, QueryPlan, FoundMatch]] = []
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


# Rows in Python that are events at first sight: no cell of them has to be converted.
#
# What such a row means is what the readers of tables make of it. Any other row is left to them.

_EXACT = 1 << 53
"""Smaller integers are floats without rounding."""

_CLOCK = r"\d\d:\d\d:\d\d(\.\d{1,6})?"
_TIME = re.compile(rf"{_CLOCK}|\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(Z|[+-]\d\d:\d\d)?", re.ASCII)


class PlainEvent(NamedTuple):
    """An event.

    arrival: µs
    is_placed: its row number says where it comes from
    declared: source time in the table's column, µs; NO_TIME = none
    """

    type: EventType
    values: dict[str, Value]
    arrival: int
    is_placed: bool
    declared: int


@dataclass(frozen=True, slots=True)
class _Fields:
    """What a row of one event type and these columns holds: per field what makes its value."""

    type: EventType
    fields: tuple[tuple[str, Callable[[Any], Value]], ...]
    is_placed: bool


class PlainRows:
    """Reads the rows of a plan's event types.

    names: how users want rows to be read
    """

    def __init__(self, plan: Plan, names: ColumnNames) -> None:
        self._arrival, self._type, self._source_time = map(names.of, (ARRIVAL, TYPE, SOURCE_TIME))
        self._places = {name.casefold() for role in PLACES if (name := names.of(role)) is not None}
        self._declared = {name.casefold() for role in PLACES if (name := names.given(role)) not in (None, NONE)}
        self._is_usual = names.times == USUAL_TIMES
        self._reserved = {name.casefold() for name in needed_names(plan, names)}
        self._types = {event.name: event for event in reversed(plan.events)}
        needed = {item.event for query in plan.queries for item in query.inputs}
        self._only = needed.pop() if len(needed) == 1 else None
        self._shapes: dict[tuple[Any, ...], _Fields | None] = {}

    def event_of(self, row: Mapping[str, Any], known: Collection[str]) -> PlainEvent | None:
        """The event of a row; None = the readers of tables have to look at it.

        known: the columns that rows before have had
        """
        if self._type is None:
            name: Any = self._only
        elif self._type not in row and self._type in known:
            return None  # only time passes
        else:
            name = row.get(self._type, self._only)
        shape = (name, *row)
        if shape not in self._shapes:
            self._shapes[shape] = self._fields_of(name, row)
        fields, arrival = self._shapes[shape], self._micros(None if self._arrival is None else row.get(self._arrival))
        if fields is None or arrival is None:
            return None
        values = {name: make(row[name]) for name, make in fields.fields}
        happened = None if self._source_time is None else row.get(self._source_time)
        declared = NO_TIME if happened is None else self._micros(happened)
        if declared is None or None in values.values():
            return None
        return PlainEvent(fields.type, values, arrival, fields.is_placed, declared)

    def _fields_of(self, name: Any, row: Mapping[str, Any]) -> _Fields | None:
        event = self._types.get(name) if isinstance(name, str) else None
        if event is None or not self._is_usual or not all(isinstance(column, str) for column in row):
            return None
        own = {field.name for field in event.fields}
        others = {
            column.casefold() for column in row if column not in own | {self._arrival, self._type, self._source_time}
        }
        if others & self._reserved or not own <= row.keys() or self._declared & {name.casefold() for name in row}:
            return None
        makers = [(field.name, _MAKERS.get(field.type)) for field in event.fields]
        fields = tuple((name, make) for name, make in makers if make is not None)
        is_placed = self._places.isdisjoint(name.casefold() for name in own)
        return _Fields(event, fields, is_placed) if len(fields) == len(makers) else None

    @staticmethod
    def _micros(value: Any) -> int | None:
        """The arrival, µs."""
        if type(value) is str and _TIME.fullmatch(value):
            try:
                return parse_time(value)
            except InputError:
                return None
        if type(value) is int:
            micros = value * SECOND
        elif type(value) is float and abs(value) < LATEST:  # not NaN either
            micros = round(value * SECOND)
        else:
            return None
        return micros if EARLIEST <= micros <= LATEST else None


def _float(value: Any) -> Value:
    if type(value) is int:
        return float(value) if -_EXACT <= value <= _EXACT else None
    return value if type(value) is float else None


def _text(value: Any) -> Value:
    if type(value) is not str:
        return None
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return None
    return value


_MAKERS: Mapping[Type, Callable[[Any], Value]] = {
    Type.BOOLEAN: lambda value: value if type(value) is bool else None,
    Type.INTEGER: lambda value: value if type(value) is int else None,
    Type.FLOAT: _float,
    Type.STRING: _text,
}
"""By type of a field: its value of a cell; None = the cell would have to be converted."""
