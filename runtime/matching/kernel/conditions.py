"""Whether a condition lets the events through that are bound so far: `within` and `without` over a range of them.

Takes ordered events, a query's tables and positions by term; `where` is `runtime.matching.kernel.evaluator`. `bound[term]` is a position,
-1 while the term is not bound; the last entry is for the event of a `without`, before that for any event of the key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.evaluator import Conditions, Stacks, holds
from runtime.matching.kernel.tables import AutomatonTables, ConditionTables, Records
from runtime.matching.windows import WindowColumns

Integers = NDArray[np.int64]


class Events(NamedTuple):
    """Ordered events by position: see `runtime.matching.interface.Ordered`. `counts[r, p]`: how many events before position p row r
    counts, over all keys."""

    start: Integers
    fresh: Integers
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    counts: NDArray[np.int32]


class Query(NamedTuple):
    """What is searched for. `followed`: see `runtime.matching.kernel.tables.followed_windows`; `within`: of the whole pattern; `leading`: the length of the leading wait; NEVER: there is none.

    Kernels take it apart first: to pass a tuple within a tuple on costs as much as a step of the search.
    """

    automaton: AutomatonTables
    conditions: ConditionTables
    program: Conditions
    windows: WindowColumns
    followed: NDArray[np.bool_]
    within: int
    leading: int


@borrowing
def range_of(terms: Integers, first: int, stop: int, bound: Integers) -> tuple[int, int]:
    """The oldest and the newest position of these terms, as far as they are bound."""
    low, high = NEVER, -1
    for at in range(first, stop):
        position = bound[terms[at]]
        if position >= 0:
            low, high = min(low, position), max(high, position)
    return low, high


@borrowing
def lead(time: Integers, leading: int, bound: Integers) -> int:
    """The moment of the leading wait: so long before the oldest event that is bound."""
    oldest = NEVER
    for term in range(len(bound) - 1):
        if bound[term] >= 0:
            oldest = min(oldest, time[bound[term]])
    return oldest - leading


@borrowing
def after(time: Integers, begin: int, end: int, moment: int) -> int:
    """The first position from `begin` on, before `end`, whose time is after the moment; `end` if there is none.

    Looks at `begin` first, then further and further away: what is looked for is mostly near.
    """
    reach = 1
    while begin + reach < end and time[begin + reach - 1] <= moment:
        begin, reach = begin + reach, 2 * reach
    end = min(end, begin + reach)
    while begin < end:
        middle = (begin + end) >> 1
        if time[middle] > moment:
            end = middle
        else:
            begin = middle + 1
    return begin


@inlined
def is_shorter(
    events: Events, conditions: Records, terms: Integers, condition: int, leading: int, bound: Integers
) -> bool:
    """Whether the range of a `within` is short enough."""
    low, high = range_of(terms, conditions[condition].first_term, conditions[condition].stop_term, bound)
    since = events.time[low]
    if conditions[condition].is_leading:
        since = min(since, lead(events.time, leading, bound))
    return events.time[high] - since < conditions[condition].length


@inlined
def is_free(
    events: Events,
    conditions: Records,
    terms: Integers,
    program: Conditions,
    condition: int,
    event: int,
    begin: int,
    leading: int,
    oldest: Integers,
    bound: Integers,
    stacks: Stacks,
) -> bool:
    """Whether no event of a `without` lies in its range; `event` is the latest, `begin` where its key begins.

    `leading`: the length of the leading wait once all terms are bound, NEVER before. `oldest`: where windows begin, by input.
    """
    low, high = range_of(terms, conditions[condition].first_term, conditions[condition].stop_term, bound)
    first = low + 1
    if leading < NEVER and conditions[condition].is_leading:
        first = after(events.time, begin, high, lead(events.time, leading, bound))
    first = max(first, oldest[conditions[condition].input])
    return not blocks(events, conditions, program, condition, event, first, high, bound, stacks)


@inlined
def blocks(
    events: Events,
    conditions: Records,
    program: Conditions,
    condition: int,
    event: int,
    first: int,
    end: int,
    bound: Integers,
    stacks: Stacks,
) -> bool:
    """Whether an event from position `first` to before `end` is one of a `without`; what is bound is none.

    Events of which a newer one up to `event` has taken the place do not count.
    """
    counted = conditions[condition].counted
    if first >= end:
        blocked = False
    elif counted >= 0:
        blocked = _counts_any(events.counts[counted], first, end, bound)
    else:
        number, kind = conditions[condition].program, conditions[condition].input
        blocked = _is_one_of(events, program, number, kind, event, first, end, bound, stacks)
    return blocked


@borrowing
def _counts_any(counts: NDArray[np.int32], first: int, end: int, bound: Integers) -> bool:
    """Whether more events are counted from position `first` to before `end` than are bound."""
    count = counts[end] - counts[first]
    if count == 0:
        return False
    last = len(bound) - 1
    for term in range(last):
        position = bound[term]
        if first <= position < end and counts[position + 1] > counts[position]:
            is_first = True
            for other in range(term):
                is_first = is_first and bound[other] != position
            count -= is_first
    return count > 0


@borrowing
def _is_one_of(
    events: Events,
    program: Conditions,
    number: int,
    kind: int,
    event: int,
    first: int,
    end: int,
    bound: Integers,
    stacks: Stacks,
) -> bool:
    """The same where all events in the range have to be looked at."""
    last = len(bound) - 1
    for position in range(end - 1, first - 1, -1):
        if events.input[position] != kind or (len(events.superseded) > 0 and events.superseded[position] <= event):
            continue
        is_bound = False
        for term in range(last):
            is_bound = is_bound or bound[term] == position
        if is_bound:
            continue
        if number < 0:
            return True
        bound[last] = position
        if holds(program, number, bound, stacks):
            return True
    return False
