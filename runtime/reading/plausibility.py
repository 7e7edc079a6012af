"""Warn of times that are hardly meant: milliseconds or dates read as seconds, and cut nanoseconds.

No record is refused for it; ordering policies decide what happens to such records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.instants import NO_TIME, SECOND
from runtime.policies.settings_text import TimeForm, look_of
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.remarks import Remark, RemarkKind
from runtime.timestamps import NUMBER, format_time, is_text

MOST_DAYS = 1_000
"""No record is so late, and no clock so wrong, by chance."""

_MOST = MOST_DAYS * 86_400 * SECOND


def warning_of(
    name: str,
    numbers: NDArray[np.int64],
    happened: NDArray[np.int64],
    arrival: NDArray[np.int64],
    rows: NDArray[np.bool_],
) -> Remark | None:
    """A warning about a table; None = all times are plausible.

    name: the table's name
    numbers: by row: its number in the table
    happened: by row: source time, µs; NO_TIME = none
    arrival: by row: arrival time, µs; NO_TIME = none
    rows: the rows whose source time some query uses
    """
    if len(rows) and happened.min() != NO_TIME and arrival.min() != NO_TIME and _most(happened, arrival) <= _MOST:
        return None  # the usual case, in few passes
    known = rows & (happened != NO_TIME) & (arrival != NO_TIME)
    gap = np.where(known, np.abs(np.where(known, happened, 0) - np.where(known, arrival, 0)), 0)
    strange = np.flatnonzero(gap > _MOST)
    if not len(strange):
        return None
    first = strange[0]
    happens = "1 row happens" if len(strange) == 1 else f"{len(strange)} rows happen"
    text = (
        f"{name}: {happens} more than {MOST_DAYS:,} days before or after arrival, first row {numbers[first]}:"
        f" source time {format_time(int(happened[first]))}, arrival {format_time(int(arrival[first]))};"
        " is a column in milliseconds that should be in seconds?"
    )
    return Remark(RemarkKind.ODD_TIMES, "", len(strange), text)


def _most(happened: NDArray[np.int64], arrival: NDArray[np.int64]) -> int:
    """The greatest gap; both are within the years 1 to 9999."""
    gap = happened - arrival
    return int(max(gap.max(), -gap.min()))


_ROWS = 1_000
"""How many rows of a column of times are looked at."""

_HAS_NANOSECONDS = r"\d:\d{2}[.,]\d{6}\d*[1-9]"


def warnings_of_columns(raw: RawTable, names: Collection[str], form: TimeForm) -> Iterator[Remark]:
    """What is odd in these columns of times: numbers that look like dates, and nanoseconds."""
    for name in names:
        if not raw.has(name):
            continue
        column = raw.values(name, _ROWS).drop_null()
        if form.unit == "s" and len(column) and (look := _look(column, form)) is not None:
            text = f"{raw.name}: the times in {name!r} look like {look}; they are read as seconds since 1970"
            yield Remark(RemarkKind.ODD_TIMES, name, 1, text)
        if _has_nanoseconds(column, form):
            text = f"{raw.name}: times in {name!r} have nanoseconds, which are cut to microseconds"
            yield Remark(RemarkKind.CUT_TIMES, name, 1, text)


def _look(column: pa.Array, form: TimeForm) -> str | None:
    """What numbers, or text that is numbers, look like; None = like seconds, or like no number."""
    if is_text(column.type):
        if form.pattern is not None or not pc.all(pc.match_substring_regex(column, NUMBER)).as_py():
            return None
        return look_of(list(map(float, column.to_pylist())))
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    return look_of(column.to_pylist()) if form.pattern is None else None


def _has_nanoseconds(column: pa.Array, form: TimeForm) -> bool:
    kind = column.type
    if is_text(kind):
        return form.pattern is None and bool(
            pc.any(pc.match_substring_regex(column, _HAS_NANOSECONDS), min_count=0).as_py()
        )
    is_fine = (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit == "ns"
    if not is_fine and not (pa.types.is_integer(kind) and form.unit == "ns"):
        return False
    return bool((pc.cast(column, pa.int64(), safe=False).to_numpy(zero_copy_only=False) % 1_000).any())
