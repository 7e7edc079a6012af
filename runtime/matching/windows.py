"""What is current, and what may be forgotten: which released events can still be part of a match.

Takes a partition's events in total order and its definitive time; gives those that the state must keep. Forgetting is exact: every
later event has a time at or after definitive time, so an event is kept if it can still be within its input's
window and within reach of a pattern that ends now, is among the `retain` most recent of its input, no newer one has taken its
place (unless it holds a `retain` slot), and it can be bound by a term that is not the latest event or stand in a `without`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan, Without, known
from runtime.admission.arrays import Released
from runtime.compiled import kernel
from runtime.instants import NEVER

Integers = NDArray[np.int64]


class WindowColumns(NamedTuple):
    """One entry an input. `within`: how old an event may be (strictly less), `retain`: how many; NEVER: any.

    `reach`: how old an event may be to be of use for a match that ends now; `remembered`: whether an event that is no
    longer the latest can be of any; `is_unique`: whether newer events take the place of older ones.
    """

    within: Integers
    retain: Integers
    reach: Integers
    remembered: NDArray[np.bool_]
    is_unique: NDArray[np.bool_]


def window_columns(query: QueryPlan) -> WindowColumns:
    """The windows of a query's inputs."""
    inputs = range(len(query.inputs))
    within = [NEVER if item.within is None else known(item.within) for item in query.inputs]
    used = _used_when_older(query)
    return WindowColumns(
        within=np.array(within, np.int64),
        retain=np.array([NEVER if item.retain is None else known(item.retain) for item in query.inputs], np.int64),
        reach=np.array([min(within[index], _reach(query, index)) for index in inputs], np.int64),
        remembered=np.array([index in used for index in inputs]),
        is_unique=np.array([bool(item.unique) for item in query.inputs]),
    )


def _used_when_older(query: QueryPlan) -> set[int]:
    """The inputs whose events matter after they were the latest one."""
    states = query.automaton.states if query.every is not None else query.automaton.states[1:]
    bound = {transition.input for state in states for transition in state.transitions}
    return bound | {item.input for item in query.conditions if isinstance(item, Without)}


def _reach(query: QueryPlan, index: int) -> int:
    """How far a pattern's `within` lets its matches reach back, and a `without` before them."""
    longest = query.within
    if longest is None or query.every is not None:
        return NEVER
    before = 0
    if query.leading is not None:
        withouts = [item for item in query.conditions if isinstance(item, Without) and item.input == index]
        if any(item.between is None or item.between.leading for item in withouts):
            before = known(query.leading.duration)
    return min(longest + before, NEVER)


def remembered_rows(
    released: Released, superseded: Integers, definitive: Integers, windows: WindowColumns
) -> NDArray[np.int32]:
    """The rows to keep, by key and in total order; `superseded` as in `runtime.matching.interface.Ordered`, `definitive` by key."""
    return _remembered(released.start, released.order, released.input, released.time, superseded, definitive, windows)


@kernel
def _remembered(
    start: Integers,
    row: NDArray[np.int32],
    input_of: NDArray[np.int16],
    time: Integers,
    superseded: Integers,
    definitive: Integers,
    windows: WindowColumns,
) -> NDArray[np.int32]:
    keep = np.zeros(len(row), np.bool_)
    seen = np.empty(len(windows.reach), np.int64)
    longest = windows.reach.max()
    for key in range(len(start) - 1):
        seen[:] = 0
        for position in range(start[key + 1] - 1, start[key] - 1, -1):
            age = definitive[key] - time[position]
            if age >= longest:
                break
            item = input_of[position]
            seen[item] += 1
            if windows.remembered[item] and age < windows.reach[item] and seen[item] <= windows.retain[item]:
                holds_slot = windows.retain[item] < NEVER or len(superseded) == 0
                keep[position] = holds_slot or superseded[position] >= NEVER
    return row[keep]


@kernel
def superseded_by(start: Integers, row: NDArray[np.int32], value: Integers, count: int) -> Integers:
    """By position: where the next event of the key and input stands that has the same value; NEVER: there is none.

    `value[row]`: a number below `count` for what `with unique` compares, different for different inputs; -1: no value,
    or an input without `with unique`.
    """
    result = np.full(len(row), NEVER, np.int64)
    newest = np.full(count, -1, np.int64)
    for key in range(len(start) - 2, -1, -1):
        end = start[key + 1]
        for position in range(end - 1, start[key] - 1, -1):
            number = value[row[position]]
            if number >= 0:
                if start[key] <= newest[number] < end:
                    result[position] = newest[number]
                newest[number] = position
    return result
