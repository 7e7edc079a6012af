"""Events that are intervals: the columns `end` and `shape` of an event table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import nearest
from runtime.columns.arrivals import Shape
from runtime.instants import NO_TIME
from runtime.policies.settings_text import TimeForm
from runtime.reading.formats.raw_table import cell_of, text_column
from runtime.reading.refusals import Refusals
from runtime.timestamps import given_times

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
