"""When each row arrived and when its event happened; which events are intervals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import nearest
from querylang.plan.model import Plan
from runtime.columns.arrivals import Shape
from runtime.columns.expressions import as_array
from runtime.instants import NO_TIME
from runtime.policies.settings_text import TimeForm
from runtime.reading.column_names import END, SHAPE, Roles
from runtime.reading.field_columns import FieldColumns
from runtime.reading.formats.raw_table import RawTable, cell_of, text_column
from runtime.reading.plan_needs import interval_events
from runtime.reading.remarks import Refusals
from runtime.reading.row_kinds import RowKinds, event_index
from runtime.timestamps import Timestamps, given_times, microseconds

WORDS = {shape.name.lower(): shape for shape in Shape}
"""What may be in the column `shape`."""

_UNKNOWN = -1
_NEEDS_END = (Shape.INTERVAL, Shape.END_EDGE)
_CALLED = {
    Shape.POINT: "a point",
    Shape.INTERVAL: "an interval",
    Shape.START_EDGE: "a start edge",
    Shape.END_EDGE: "an end edge",
}


@dataclass(frozen=True, slots=True)
class Intervals:
    """How the events lie in time.

    shape: by row: a `Shape`
    end: by row: when the event ends, µs UTC; NO_TIME = it has no end
    """

    shape: NDArray[np.int8]
    end: NDArray[np.int64]


def read_intervals(
    end: pa.Array | None,
    shape: pa.Array | None,
    rows: NDArray[np.bool_],
    start: NDArray[np.int64],
    form: TimeForm,
    refusals: Refusals,
) -> Intervals:
    """Read the two columns. Without a shape a row with an end is an interval, any other a point.

    end, shape: the columns; None = absent
    rows: rows of event types that may be intervals; all others are points
    start: by row: when the event starts, µs UTC; NO_TIME = unknown
    form: how times are written
    refusals: gets the rows whose shape and end are wrong or do not fit together
    """
    ends = given_times(pa.nulls(len(rows)) if end is None else end, form)
    has_end = ends.micros != NO_TIME
    shapes = np.where(has_end, np.int8(Shape.INTERVAL), np.int8(Shape.POINT))
    if shape is not None:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(text_column(shape)))
        found = pc.index_in(words, value_set=pa.array(list(WORDS)))
        known = pc.fill_null(found, _UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int8)
        shapes = np.where(pc.is_null(words).to_numpy(zero_copy_only=False), shapes, known)
    needs_end = np.isin(shapes, _NEEDS_END)
    is_backwards = has_end & needs_end & (start != NO_TIME) & (ends.micros <= start)
    wrong = rows & ((shapes == _UNKNOWN) | ends.bad | (has_end != needs_end) | is_backwards)
    for row in np.flatnonzero(wrong).tolist():
        is_bad, ends_here = bool(ends.bad[row]), bool(has_end[row])
        refusals.refuse(row, _problem(int(shapes[row]), _cell(shape, row), _cell(end, row), is_bad, ends_here))
    is_event = rows & ~wrong
    return Intervals(
        np.where(is_event, shapes, np.int8(Shape.POINT)).astype(np.int8),
        np.where(is_event, ends.micros, NO_TIME),
    )


def _cell(column: pa.Array | None, row: int) -> object:
    return None if column is None else cell_of(column[row])


def _problem(shape: int, word: object, end: object, is_bad: bool, has_end: bool) -> str:
    if shape == _UNKNOWN:
        meant = nearest(str(word), WORDS)
        hint = f"; did you mean '{meant}'?" if meant is not None else f"; known: {' '.join(WORDS)}"
        return f"{word!r} in 'shape' is not a shape{hint}"
    if is_bad:
        return f"{end!r} in 'end' is not a time"
    if not has_end:
        return f"{_CALLED[Shape(shape)]} needs an 'end'"
    if shape in _NEEDS_END:
        return f"its 'end' {end!r} is not after its start"
    return f"{_CALLED[Shape(shape)]} has no 'end'"


@dataclass(frozen=True, slots=True)
class RowTimes:
    """By row, in microseconds UTC; NO_TIME = unknown.

    declared: source time in the table's column of source times
    source: source time of the event: from its own field if some query says so, else as declared
    arrival: arrival time; if the table is history, `source`
    intervals: ends and shapes; None = all events are points
    """

    declared: NDArray[np.int64]
    source: NDArray[np.int64]
    arrival: NDArray[np.int64]
    intervals: Intervals | None


def read_times(
    raw: RawTable,
    plan: Plan,
    roles: Roles,
    kinds: RowKinds,
    fields: FieldColumns,
    form: TimeForm,
    refusals: Refusals,
) -> RowTimes:
    """The times of all rows; rows with a cell that is not a time are refused."""
    lasting = interval_events(plan)
    may_last = kinds.is_event_of(lasting, plan)
    declared = np.full(len(raw), NO_TIME)
    if roles.source_time is not None:
        declared = _filled(declared, raw, roles.source_time, None, plan, kinds, form, refusals)
    if roles.start is not None:
        declared = _filled(declared, raw, roles.start, may_last, plan, kinds, form, refusals)
    source = _own_times(declared, plan, kinds, fields)
    columns = {name: raw.values(name) for name in (END, SHAPE) if lasting and raw.has(name)}
    intervals = None
    if columns:
        intervals = read_intervals(columns.get(END), columns.get(SHAPE), may_last, source, form, refusals)
    arrival = source if roles.arrival is None else _arrival_times(raw, roles.arrival, form, refusals)
    return RowTimes(declared, source, arrival, intervals)


def _filled(
    micros: NDArray[np.int64],
    raw: RawTable,
    name: str,
    rows: NDArray[np.bool_] | None,
    plan: Plan,
    kinds: RowKinds,
    form: TimeForm,
    refusals: Refusals,
) -> NDArray[np.int64]:
    """The times with those that are missing on `rows` taken from a column; None = no time is known.

    A cell that is not a time refuses its row, unless the column is also a field of the row's event.
    """
    times = _times(raw, name, form)
    if rows is None and not times.bad.any():
        return times.micros
    is_missing = np.ones(len(raw), np.bool_) if rows is None else rows & (micros == NO_TIME)
    for row in np.flatnonzero(times.bad & is_missing).tolist():
        kind = kinds.kinds[row]
        if kind < 0 or all(field.name != name for field in plan.events[kind].fields):
            refusals.refuse_time(row, name, form)
    return np.where(is_missing, times.micros, micros)


def _own_times(declared: NDArray[np.int64], plan: Plan, kinds: RowKinds, fields: FieldColumns) -> NDArray[np.int64]:
    """Source times, from the events' own fields where some query reads them there."""
    sources = list(plan.time_sources())
    times = declared.copy() if sources else declared
    for name, source in sources:
        rows = kinds.kinds == event_index(plan, name)
        if rows.any():
            own = microseconds(as_array(source, pa.table(dict(fields)), plan, plan.event(name)))
            times = np.where(rows, own, times)
    return times


def _arrival_times(raw: RawTable, name: str, form: TimeForm, refusals: Refusals) -> NDArray[np.int64]:
    times = _times(raw, name, form).micros
    for row in np.flatnonzero(times == NO_TIME).tolist():
        refusals.refuse_time(row, name, form)
    return times


def _times(raw: RawTable, name: str, form: TimeForm) -> Timestamps:
    """The times of a column; a cell without a value has none."""
    times = given_times(raw.without_missing(raw.column(name)), form)
    return given_times(raw.values(name), form) if times.bad.any() and not raw.has_types else times
