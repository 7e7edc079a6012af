"""Rows in Python that are events at first sight: no cell of them has to be converted.

What such a row means is what the readers of tables make of it. Any other row is left to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import EventType, Plan
from runtime.instants import EARLIEST, LATEST, NO_TIME, SECOND
from runtime.interpreter.values import Value
from runtime.policies.settings_text import USUAL_TIMES
from runtime.reading.column_names import ARRIVAL, NONE, PLACES, SOURCE_TIME, TYPE, ColumnNames, needed_names
from runtime.timestamps import parse_time

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
