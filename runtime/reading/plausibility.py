"""Warn of source times that are years away from arrival, as if milliseconds were seconds.

No record is refused for it; ordering policies decide what happens to such records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.columns.timestamps import format_time
from runtime.instants import NO_TIME, SECOND

MOST_DAYS = 1_000
"""No record is so late, and no clock so wrong, by chance."""

_MOST = MOST_DAYS * 86_400 * SECOND


def warning_of(
    name: str,
    numbers: NDArray[np.int64],
    happened: NDArray[np.int64],
    arrival: NDArray[np.int64],
    rows: NDArray[np.bool_],
) -> str | None:
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
    return (
        f"{name}: {happens} more than {MOST_DAYS:,} days before or after arrival, first row {numbers[first]}:"
        f" source time {format_time(int(happened[first]))}, arrival {format_time(int(arrival[first]))};"
        " is a column in milliseconds that should be in seconds?"
    )


def _most(happened: NDArray[np.int64], arrival: NDArray[np.int64]) -> int:
    """The greatest gap; both are within the years 1 to 9999."""
    gap = happened - arrival
    return int(max(gap.max(), -gap.min()))
