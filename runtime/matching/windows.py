"""Window contents and state eviction: which released events can still be part of a match.

Eviction is exact: an event is kept only if some future event can still match it. Every later event
has a time at or after the definitive time. So an event is kept if all of these are true:

- it is within its input's window, and within reach of a pattern that ends now;
- it is among the `retain` most recent of its input;
- no newer event has superseded it, unless it still counts for `retain`;
- a term other than the latest event can bind it, or a `without` can look for it;
- it has not been passed over by an `after match skip`, or a `without` can look for it. What is not
  kept then is older than all that may be bound, so it hides nothing of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan, Without, known
from runtime.admission import Released
from runtime.column_types import Integers
from runtime.compiling.compiled import kernel
from runtime.instants import NEVER


class WindowColumns(NamedTuple):
    """One entry per input.

    within: µs, an event in the window is younger than this; NEVER = no limit
    retain: how many of the most recent events are in the window; NEVER = no limit
    reach: µs, an event that a match ending now can use is younger than this; NEVER = no limit
    is_used_later: whether an event can be of use after it was the latest one
    is_unique: whether newer events supersede older ones
    is_looked_for: whether a `without` looks for its events, also for those that were passed over
    """

    within: Integers
    retain: Integers
    reach: Integers
    is_used_later: NDArray[np.bool_]
    is_unique: NDArray[np.bool_]
    is_looked_for: NDArray[np.bool_]


def window_columns(query: QueryPlan) -> WindowColumns:
    """The windows of a query's inputs."""
    inputs = range(len(query.inputs))
    within = [NEVER if item.within is None else known(item.within) for item in query.inputs]
    used, looked_for = _used_when_older(query), _looked_for(query)
    return WindowColumns(
        within=np.array(within, np.int64),
        retain=np.array([NEVER if item.retain is None else known(item.retain) for item in query.inputs], np.int64),
        reach=np.array([min(within[index], _reach(query, index)) for index in inputs], np.int64),
        is_used_later=np.array([index in used for index in inputs]),
        is_unique=np.array([bool(item.unique) for item in query.inputs]),
        is_looked_for=np.array([index in looked_for for index in inputs]),
    )


def _used_when_older(query: QueryPlan) -> set[int]:
    """The inputs whose events can be of use after they were the latest one."""
    states = query.automaton.states if query.every is not None else query.automaton.states[1:]
    bound = {number for state in states for transition in state.transitions for number in transition.inputs}
    return bound | _looked_for(query)


def _looked_for(query: QueryPlan) -> set[int]:
    """The inputs of the `without`s."""
    return {item.input for item in query.conditions if isinstance(item, Without)}


def _reach(query: QueryPlan, index: int) -> int:
    """How far a match reaches back by its `within`, and a `without` by the leading wait."""
    longest = query.within
    if longest is None or query.every is not None:
        return NEVER
    before = 0
    if query.leading is not None:
        withouts = [item for item in query.conditions if isinstance(item, Without) and item.input == index]
        if any(item.between is None or item.between.leading for item in withouts):
            before = known(query.leading.duration)
    return min(longest + before, NEVER)


def rows_to_keep(
    released: Released, superseded: Integers, free: Integers, definitive: Integers, windows: WindowColumns
) -> NDArray[np.int32]:
    """The rows that are not evicted, by key and in total order.

    superseded, free: as in `runtime.matching.interface.Ordered`
    definitive: µs, definitive time by key
    """
    return _rows_to_keep(
        released.start, released.order, released.input, released.time, superseded, free, definitive, windows
    )


@kernel
def _rows_to_keep(
    start: Integers,
    row: NDArray[np.int32],
    input_of: NDArray[np.int16],
    time: Integers,
    superseded: Integers,
    free: Integers,
    definitive: Integers,
    windows: WindowColumns,
) -> NDArray[np.int32]:
    keep = np.zeros(len(row), np.bool_)
    seen = np.empty(len(windows.reach), np.int64)
    longest = windows.reach.max()
    for key in range(len(start) - 1):
        seen[:] = 0
        # Newest first: `seen` counts the events of each input from the newest to this one. Once one
        # is too old for every input, all before it are.
        for position in range(start[key + 1] - 1, start[key] - 1, -1):
            age = definitive[key] - time[position]
            if age >= longest:
                break
            item = input_of[position]
            seen[item] += 1
            if len(free) > 0 and position < free[key] and not windows.is_looked_for[item]:
                continue
            if windows.is_used_later[item] and age < windows.reach[item] and seen[item] <= windows.retain[item]:
                # A superseded event never matches, but it counts among the `retain` most recent.
                holds_slot = windows.retain[item] < NEVER or len(superseded) == 0
                keep[position] = holds_slot or superseded[position] >= NEVER
    return row[keep]


@kernel
def superseded_by(start: Integers, row: NDArray[np.int32], value: Integers, count: int) -> Integers:
    """By position, that of the next event of the key and input with the same value; NEVER = none.

    value: by row, a number below `count` for what `with unique` compares, different for different
        inputs; -1 = no value, or an input without `with unique`
    """
    result = np.full(len(row), NEVER, np.int64)
    newest = np.full(count, -1, np.int64)
    # Backwards through all keys: `newest` holds, by value, the last position seen. One outside of
    # the key at hand is left over from another key, so `newest` need not be cleared.
    for key in range(len(start) - 2, -1, -1):
        end = start[key + 1]
        for position in range(end - 1, start[key] - 1, -1):
            number = value[row[position]]
            if number >= 0:
                if start[key] <= newest[number] < end:
                    result[position] = newest[number]
                newest[number] = position
    return result
