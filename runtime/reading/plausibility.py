"""Times that can hardly be meant: source times years away from their arrival, as when milliseconds are read as seconds.

Takes a table's times; gives one warning, or none. Nothing is refused for it: what is done with such records the ordering of
their inputs says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.columns.timestamps import format_time
from runtime.instants import NO_TIME, SECOND

MOST_DAYS = 1_000
"""A record hardly needs longer on its way, nor is any clock so wrong."""


def warning_of(
    name: str,
    numbers: NDArray[np.int64],
    happened: NDArray[np.int64],
    arrival: NDArray[np.int64],
    rows: NDArray[np.bool_],
) -> str | None:
    """What to tell about the table `name`, of which `rows` count. `numbers`: the rows' own; times in microseconds."""
    known = rows & (happened != NO_TIME) & (arrival != NO_TIME)
    gap = np.where(known, np.abs(np.where(known, happened, 0) - np.where(known, arrival, 0)), 0)
    strange = np.flatnonzero(gap > MOST_DAYS * 86_400 * SECOND)
    if not len(strange):
        return None
    first = strange[0]
    happens = "1 row happens" if len(strange) == 1 else f"{len(strange)} rows happen"
    return (
        f"{name}: {happens} more than {MOST_DAYS:,} days before or after arrival, first row {numbers[first]}:"
        f" source time {format_time(int(happened[first]))}, arrival {format_time(int(arrival[first]))};"
        " is a column in milliseconds that should be in seconds?"
    )
