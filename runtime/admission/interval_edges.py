"""Interval edges: the end of an event whose start and end arrive as two records.

A start edge and an end edge belong together if they agree in event type, start and payload. If
several starts agree, an end edge closes the oldest open one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import EventType, Plan
from runtime.arrow_types import has_column, one_chunk
from runtime.columns.arrivals import Shape, column_name
from runtime.columns.keys import number_keys
from runtime.compiling.compiled import kernel
from runtime.instants import NO_TIME
from runtime.number_arrays import Integers

_OF_EDGES = ("start", "end", "shape")
"""Fields that place an event in time: they differ between its two records."""


def ends(table: pa.Table, plan: Plan, is_admitted: NDArray[np.bool_], released: Integers, first: int) -> pa.Array:
    """The column `_end`, filled in where an admitted end edge closes a start edge that is held.

    table: rows in order of arrival
    is_admitted: by row, whether an end edge may close a start edge
    released: the step at which each event was released: its moment, µs, and the record, counted
        from `first`; NEVER = held
    first: the row of the call's first record
    """
    end = one_chunk(table.column("_end")).fill_null(NO_TIME)
    shape = one_chunk(table.column("_shape")).fill_null(int(Shape.POINT)).to_numpy()
    is_edge = (shape == Shape.START_EDGE) | ((shape == Shape.END_EDGE) & is_admitted)
    if not (shape[is_edge] == Shape.END_EDGE).any():
        return end
    moments = end.to_numpy().copy()
    kinds = table.column("_kind").to_numpy()
    for kind in np.unique(kinds[is_edge]):
        rows = np.flatnonzero(is_edge & (kinds == kind))
        numbers, count = number_keys(_identity(table.take(pa.array(rows)), plan.events[kind]), len(rows))
        arrival = table.column("_arrival").to_numpy()
        is_end = shape[rows] == Shape.END_EDGE
        _close(rows, numbers, is_end, moments, released, arrival, first, np.full(count, -1, np.int64))
    return pa.array(moments)


def _identity(table: pa.Table, event: EventType) -> list[pa.Array]:
    """The columns in which both edges of an event agree; a null equals a null."""
    columns = [one_chunk(table.column("_source_time"))]
    for field in event.fields:
        name = column_name(field.name, field.type)
        if field.name not in _OF_EDGES and has_column(table, name):
            column = one_chunk(table.column(name))
            if not pa.types.is_nested(column.type):
                columns += [column.is_null().cast(pa.int8()), _without_nulls(column)]
    return columns


def _without_nulls(column: pa.Array) -> pa.Array:
    if not column.null_count:
        return column
    codes = column.dictionary_encode().indices
    return codes.fill_null(-1).cast(pa.int64())


@kernel
def _close(
    rows: Integers,
    numbers: Integers,
    is_end: NDArray[np.bool_],
    end: Integers,
    released: Integers,
    arrival: Integers,
    first: int,
    oldest: Integers,
) -> None:
    """Stores each end with the oldest open start edge of its number.

    numbers: by entry of `rows`, the number of the edge's identity
    oldest: by number, the first entry of its queue of open start edges; -1 = empty
    """
    # The queues are linked lists over entries: `following` links an entry to the next, `newest` is
    # a queue's last.
    following = np.full(len(rows), -1, np.int64)
    newest = np.full(len(oldest), -1, np.int64)
    for at in range(len(rows)):
        number, row = numbers[at], rows[at]
        # A start edge goes to the end of its queue, unless an earlier call has closed it.
        if not is_end[at]:
            if end[row] != NO_TIME:
                continue
            if oldest[number] < 0:
                oldest[number] = at
            else:
                following[newest[number]] = at
            newest[number] = at
            continue
        # An end edge takes the first start edge that was still held when it arrived. Those before
        # it were released earlier, and later end edges arrive later still: so they can be dropped
        # from the queue for good.
        while oldest[number] >= 0:
            start = rows[oldest[number]]
            oldest[number] = following[oldest[number]]
            moment, cause = released[0, start], released[1, start]
            if moment > arrival[row] or (moment == arrival[row] and cause > row - first):
                end[start] = end[row]
                break
