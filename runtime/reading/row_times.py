"""When each row arrived and when its event happened; which events are intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.columns.expressions import as_array
from runtime.instants import NO_TIME
from runtime.policies.settings_text import TimeForm
from runtime.reading.column_names import END, SHAPE, Roles
from runtime.reading.field_columns import FieldColumns
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.intervals import Intervals, read_intervals
from runtime.reading.plan_needs import interval_events
from runtime.reading.refusals import Refusals
from runtime.reading.row_kinds import RowKinds, event_index
from runtime.timestamps import Timestamps, given_times, microseconds


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
