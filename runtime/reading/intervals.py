"""Events that last: what the columns `start`, `end` and `shape` of an event table mean.

Takes the columns, the rows that they concern and when each event starts; gives each event's `Shape` and end, and what is wrong
with the rows that can be none. Which queries know such events is said by the ordering policy of their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import nearest
from runtime.columns.arrivals import Shape
from runtime.columns.timestamps import parse_times
from runtime.instants import NO_TIME

WORDS = {shape.name.lower(): shape for shape in Shape}
"""What stands in the column `shape`."""

_UNKNOWN = -1
_NEEDS_END = (Shape.INTERVAL, Shape.END_EDGE)
_CALLED = {
    Shape.POINT: "a point",
    Shape.INTERVAL: "an interval",
    Shape.START_EDGE: "a start edge",
    Shape.END_EDGE: "an end edge",
}


@dataclass(frozen=True, slots=True)
class Shapes:
    """By row: `shape`, and `end` in microseconds (NO_TIME: none). `problems`: rows that can be no event, and why."""

    shape: NDArray[np.int8]
    end: NDArray[np.int64]
    problems: dict[int, str]


def read_shapes(
    end: pa.Array | None, shape: pa.Array | None, rows: NDArray[np.bool_], start: NDArray[np.int64]
) -> Shapes:
    """Read the columns, of which one may be absent; rows outside of `rows` are points. `start`: microseconds, NO_TIME where
    nothing is known. Without a shape what has an end is an interval, and all else a point."""
    moments = parse_times(pa.nulls(len(rows)) if end is None else end)
    has_end = moments.micros != NO_TIME
    shapes = np.where(has_end, np.int8(Shape.INTERVAL), np.int8(Shape.POINT))
    if shape is not None:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(pc.cast(shape, pa.string())))
        found = pc.index_in(words, value_set=pa.array(list(WORDS)))
        known = pc.fill_null(found, _UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int8)
        shapes = np.where(pc.is_null(words).to_numpy(zero_copy_only=False), shapes, known)
    needs_end = np.isin(shapes, _NEEDS_END)
    is_backwards = has_end & needs_end & (start != NO_TIME) & (moments.micros <= start)
    wrong = rows & ((shapes == _UNKNOWN) | moments.bad | (has_end != needs_end) | is_backwards)
    problems = {
        row: _problem(int(shapes[row]), _cell(shape, row), _cell(end, row), bool(moments.bad[row]), bool(has_end[row]))
        for row in np.flatnonzero(wrong).tolist()
    }
    is_event = rows & ~wrong
    return Shapes(
        np.where(is_event, shapes, np.int8(Shape.POINT)).astype(np.int8),
        np.where(is_event, moments.micros, NO_TIME),
        problems,
    )


def _cell(column: pa.Array | None, row: int) -> object:
    return None if column is None else column[row].as_py()


def _problem(shape: int, word: object, end: object, is_bad: bool, has_end: bool) -> str:
    if shape == _UNKNOWN:
        meant = nearest(str(word), WORDS)
        hint = f"; did you mean '{meant}'?" if meant is not None else f"; known: {' '.join(WORDS)}"
        return f"{word!r} in 'shape' is no shape{hint}"
    if is_bad:
        return f"{end!r} in 'end' is not a time"
    if not has_end:
        return f"{_CALLED[Shape(shape)]} needs an 'end'"
    if shape in _NEEDS_END:
        return f"its 'end' {end!r} is not after its start"
    return f"{_CALLED[Shape(shape)]} has no 'end'"
