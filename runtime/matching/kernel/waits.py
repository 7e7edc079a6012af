"""Which trailing waits no condition has ended, by the events that there are.

Takes ordered events, a query's tables and the waits; what a wait is, and when it is over, stands in `runtime.matching.trailing_waits`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.conditions import Events, Query, after, blocks, lead, range_of
from runtime.matching.kernel.evaluator import Conditions, Stacks
from runtime.matching.kernel.steps import Memory
from runtime.matching.kernel.tables import Records
from runtime.matching.windows import WindowColumns

Integers = NDArray[np.int64]


class Late(NamedTuple):
    """The conditions that reach the trailing wait: their numbers, and the terms that each mentions, with ends alike."""

    conditions: Integers
    first: Integers
    mentions: Integers


class Waits(NamedTuple):
    """Waits as the kernel takes them: see `runtime.matching.interface.Waiting`."""

    key: Integers
    members: Integers
    latest: Integers
    due: Integers
    is_new: NDArray[np.bool_]


@borrowing
def outlive(events: Events, query: Query, late: Late, waits: Waits, memory: Memory, result: NDArray[np.bool_]) -> None:
    """Fills `result` (true before): which waits no condition has ended, by the events that there are."""
    conditions, ranges, program, windows = (
        query.conditions.conditions,
        query.conditions.terms,
        query.program,
        query.windows,
    )
    count, terms = waits.members.shape
    bound, stacks = memory.moment.bound, memory.stacks
    for wait in range(count):
        for term in range(terms):
            bound[term] = waits.members[wait, term]
        bound[terms] = waits.latest[wait]
        for index in range(len(late.conditions)):
            is_unset = False
            for at in range(late.first[index], late.first[index + 1]):
                is_unset = is_unset or bound[late.mentions[at]] < 0
            if result[wait] and not is_unset:
                condition = late.conditions[index]
                if conditions[condition].kind == 1:
                    due = waits.due[wait]
                    ends = waits.is_new[wait] and _is_too_long(
                        events, conditions, ranges, condition, query.leading, bound, due
                    )
                else:
                    ends = _is_broken(
                        events,
                        conditions,
                        ranges,
                        program,
                        windows,
                        condition,
                        query.leading,
                        waits,
                        wait,
                        bound,
                        stacks,
                    )
                result[wait] = not ends


@inlined
def _is_too_long(
    events: Events, conditions: Records, ranges: Integers, condition: int, leading: int, bound: Integers, due: int
) -> bool:
    """Whether a `within` that ends with the trailing wait is over before it."""
    low, _ = range_of(ranges, conditions[condition].first_term, conditions[condition].stop_term, bound)
    since = due
    if low < NEVER:
        since = events.time[low]
    if conditions[condition].is_leading:
        since = min(since, lead(events.time, leading, bound))
    return due - since >= conditions[condition].length


@inlined
def _is_broken(
    events: Events,
    conditions: Records,
    ranges: Integers,
    program: Conditions,
    windows: WindowColumns,
    condition: int,
    leading: int,
    waits: Waits,
    wait: int,
    bound: Integers,
    stacks: Stacks,
) -> bool:
    """Whether an event of a `without` lies in a range that ends with the trailing wait.

    Of a new wait the windows are looked at as they are at its latest event, and all that came later.
    """
    key, latest, is_broken = waits.key[wait], waits.latest[wait], False
    later = latest + 1 if waits.is_new[wait] else events.fresh[key]
    over = after(events.time, later, events.start[key + 1], waits.due[wait] - 1)
    if waits.is_new[wait]:
        begin = events.start[key]
        low, _ = range_of(ranges, conditions[condition].first_term, conditions[condition].stop_term, bound)
        first = low + 1
        if conditions[condition].is_leading:
            first = after(events.time, begin, later, lead(events.time, leading, bound))
        if first < later:
            first = _window(events, windows, conditions[condition].input, first, latest)
        is_broken = blocks(events, conditions, program, condition, latest, first, later, bound, stacks)
    return is_broken or blocks(events, conditions, program, condition, -1, later, over, bound, stacks)


@borrowing
def _window(events: Events, windows: WindowColumns, item: int, begin: int, latest: int) -> int:
    """From which position on, not before `begin`, an input's events are in its window at the moment of the event `latest`."""
    oldest = after(events.time, begin, latest + 1, events.time[latest] - windows.within[item])
    if windows.retain[item] < NEVER:
        seen = 0
        for position in range(latest, oldest - 1, -1):
            seen += events.input[position] == item
            if seen > windows.retain[item]:
                return position + 1
    return oldest
