"""Edges: an event of which the start comes first and the end later, as two records.

Takes a call's rows with their shapes; gives the ends of start edges whose end edge has come. The two belong together if they agree in
event type, start and payload; of several such starts an end edge ends the oldest that is open.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import EventType, Plan
from runtime.arrow_types import one_chunk
from runtime.columns.arrivals import Shape, column_name
from runtime.columns.keys import number_keys
from runtime.compiled import kernel
from runtime.instants import NO_TIME

Integers = NDArray[np.int64]

_OF_EDGES = ("start", "end", "shape")
"""Fields that say how the event lies in time: they differ between its two records."""


def ends(table: pa.Table, plan: Plan, is_admitted: NDArray[np.bool_], gone: Integers, first: int) -> pa.Array:
    """The column `_end` of rows in order of arrival, filled in where an admitted end edge ends a start edge that still waits.

    `gone`: by row the moment at which an event was released, and the number, from row `first` on, of the record that brought it.
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
        _join(rows, numbers, is_end, moments, gone, arrival, first, np.full(count, -1, np.int64))
    return pa.array(moments)


def _identity(table: pa.Table, event: EventType) -> list[pa.Array]:
    """What both edges of an event agree in; a null is a value like any other."""
    columns = [one_chunk(table.column("_source_time"))]
    for field in event.fields:
        name = column_name(field.name, field.type)
        if field.name not in _OF_EDGES and name in table.column_names:
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
def _join(
    rows: Integers,
    numbers: Integers,
    is_end: NDArray[np.bool_],
    end: Integers,
    gone: Integers,
    arrival: Integers,
    first: int,
    oldest: Integers,
) -> None:
    """Gives each end to the oldest open start of its number; `oldest`: by number, the next start to look at."""
    following = np.full(len(rows), -1, np.int64)
    newest = np.full(len(oldest), -1, np.int64)
    for at in range(len(rows)):
        number, row = numbers[at], rows[at]
        if not is_end[at]:
            if end[row] != NO_TIME:
                continue
            if oldest[number] < 0:
                oldest[number] = at
            else:
                following[newest[number]] = at
            newest[number] = at
            continue
        while oldest[number] >= 0:
            start = rows[oldest[number]]
            oldest[number] = following[oldest[number]]
            moment, by = gone[0, start], gone[1, start]
            if moment > arrival[row] or (moment == arrival[row] and by > row - first):
                end[start] = end[row]
                break
