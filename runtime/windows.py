"""What may be forgotten: which released events can still be part of a match.

Takes a partition's events in total order and its definitive time; gives those that the state must keep. Forgetting is exact: every
later event has a time at or after definitive time, so an event is kept if it can still be within its input's
window and the pattern's `within`, is among the `retain` most recent of its input, and its input serves a term that is not
the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan import QueryPlan
from runtime.compiled import kernel
from runtime.controls import NEVER


class WindowColumns(NamedTuple):
    """One entry an input. `within`: how old an event may be (strictly less), `retain`: how many; NEVER: any."""

    within: NDArray[np.int64]
    retain: NDArray[np.int64]
    remembered: NDArray[np.bool_]
    """Whether an event of the input can be bound when it is no longer the latest."""


def window_columns(query: QueryPlan) -> WindowColumns:
    """The windows of a query's inputs; input windows only, the pattern's `within` is apart."""
    later = {transition.input for state in query.automaton.states[1:] for transition in state.transitions}
    return WindowColumns(
        within=np.array([NEVER if item.within is None else item.within for item in query.inputs], np.int64),
        retain=np.array([NEVER if item.retain is None else item.retain for item in query.inputs], np.int64),
        remembered=np.array([index in later for index in range(len(query.inputs))]),
    )


def remembered_rows(
    start: NDArray[np.int64],
    row: NDArray[np.int32],
    input_of: NDArray[np.int16],
    time: NDArray[np.int64],
    definitive: NDArray[np.int64],
    windows: WindowColumns,
    pattern_within: int | None,
) -> NDArray[np.int32]:
    """The rows to keep, by key and in total order."""
    reach = np.minimum(windows.within, NEVER if pattern_within is None else pattern_within)
    return _remembered(start, row, input_of, time, definitive, reach, windows.retain, windows.remembered)


@kernel
def _remembered(
    start: NDArray[np.int64],
    row: NDArray[np.int32],
    input_of: NDArray[np.int16],
    time: NDArray[np.int64],
    definitive: NDArray[np.int64],
    reach: NDArray[np.int64],
    retain: NDArray[np.int64],
    remembered: NDArray[np.bool_],
) -> NDArray[np.int32]:
    keep = np.zeros(len(row), np.bool_)
    seen = np.empty(len(reach), np.int64)
    longest = reach.max()
    for key in range(len(start) - 1):
        seen[:] = 0
        for position in range(start[key + 1] - 1, start[key] - 1, -1):
            this = row[position]
            age = definitive[key] - time[this]
            if age >= longest:
                break
            item = input_of[this]
            seen[item] += 1
            if remembered[item] and age < reach[item] and seen[item] <= retain[item]:
                keep[position] = True
    return row[keep]
