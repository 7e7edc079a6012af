"""Check `within` and `without` over the range of events that a candidate has bound so far.

`where` is a program: `runtime.matching.kernel.evaluator`.

`bindings[term]` is the position of the event that a term is bound to, -1 while it is not bound. The
last entry is one
more: the event of a `without`, before that any event of the key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.evaluator import LoadedProgram, Stacks, holds
from runtime.matching.kernel.tables import AutomatonTables, ConditionTables, Records
from runtime.matching.windows import WindowColumns
from runtime.number_arrays import Integers


class Events(NamedTuple):
    """Ordered events by position; fields as in `runtime.matching.interface.Ordered`, and counts.

    counts: by (count row, p), how many events before position p the row counts, over all keys
    """

    start: Integers
    fresh: Integers
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    counts: NDArray[np.int32]


class Query(NamedTuple):
    """A query as the kernels read it.

    Kernels take it apart first: to pass a tuple within a tuple costs as much as a step of the
    search.

    followed: `runtime.matching.kernel.tables.followed_windows`
    within: µs, of the whole pattern; NEVER = no limit
    leading: µs, the length of the leading wait; NEVER = none
    """

    automaton: AutomatonTables
    conditions: ConditionTables
    program: LoadedProgram
    windows: WindowColumns
    followed: NDArray[np.bool_]
    within: int
    leading: int


@borrowing
def range_of(terms: Integers, first: int, stop: int, bindings: Integers) -> tuple[int, int]:
    """The oldest and the newest position of the bound ones among `terms[first:stop]`.

    NEVER and -1 if none is bound.
    """
    oldest, newest = NEVER, -1
    for index in range(first, stop):
        position = bindings[terms[index]]
        if position >= 0:
            oldest, newest = min(oldest, position), max(newest, position)
    return oldest, newest


@borrowing
def leading_wait_start(time: Integers, leading: int, bindings: Integers) -> int:
    """When the leading wait begins: its length before the oldest event that is bound."""
    oldest = NEVER
    for term in range(len(bindings) - 1):
        if bindings[term] >= 0:
            oldest = min(oldest, time[bindings[term]])
    return oldest - leading


@borrowing
def first_after(time: Integers, begin: int, end: int, instant: int) -> int:
    """The first position from `begin` to before `end` with a time after `instant`; else `end`.

    Tries `begin` first, then in growing steps, then halves the last one: the answer is mostly near.
    """
    reach = 1
    # Invariant of both loops: no position before `begin` is after the instant.
    while begin + reach < end and time[begin + reach - 1] <= instant:
        begin, reach = begin + reach, 2 * reach
    end = min(end, begin + reach)
    while begin < end:
        middle = (begin + end) >> 1
        if time[middle] > instant:
            end = middle
        else:
            begin = middle + 1
    return begin


@inlined
def within_holds(
    events: Events, conditions: Records, terms: Integers, condition: int, leading: int, bindings: Integers
) -> bool:
    """Whether the range of a `within` is short enough, as far as it is bound.

    Binding more terms only makes a range longer: a range that is too long already need not be
    completed.
    """
    oldest, newest = range_of(terms, conditions[condition].first_term, conditions[condition].stop_term, bindings)
    since = events.time[oldest]
    if conditions[condition].is_leading:
        since = min(since, leading_wait_start(events.time, leading, bindings))
    return events.time[newest] - since < conditions[condition].length


@inlined
def without_holds(
    events: Events,
    conditions: Records,
    terms: Integers,
    program: LoadedProgram,
    condition: int,
    event: int,
    begin: int,
    leading: int,
    oldest_position: Integers,
    bindings: Integers,
    stacks: Stacks,
) -> bool:
    """Whether no event of a `without` is in its range, as far as the range is bound.

    event, begin: positions of the latest event and of the key's first one
    leading: µs, the length of the leading wait once all terms are bound; NEVER before
    oldest_position: by input, where its window begins
    """
    # The ends of a range are outside of it. Binding more terms only makes a range longer, and what
    # is in it stays in it: a range that holds such an event already need not be completed. The
    # leading wait is added at the end, when the oldest event is known.
    oldest, newest = range_of(terms, conditions[condition].first_term, conditions[condition].stop_term, bindings)
    first = oldest + 1
    if leading < NEVER and conditions[condition].is_leading:
        first = first_after(events.time, begin, newest, leading_wait_start(events.time, leading, bindings))
    first = max(first, oldest_position[conditions[condition].input])
    return not has_without_event(events, conditions, program, condition, event, first, newest, bindings, stacks)


@inlined
def has_without_event(
    events: Events,
    conditions: Records,
    program: LoadedProgram,
    condition: int,
    event: int,
    first: int,
    end: int,
    bindings: Integers,
    stacks: Stacks,
) -> bool:
    """Whether an event from position `first` to before `end` is one of a `without`.

    Events that are bound do not count.
    Events that have been superseded by one up to `event` do not count.
    """
    count_row = conditions[condition].count_row
    if first >= end:
        found = False
    elif count_row >= 0:
        found = _counts_unbound_event(events.counts[count_row], first, end, bindings)
    else:
        number, item = conditions[condition].program, conditions[condition].input
        found = _scan(events, program, number, item, event, first, end, bindings, stacks)
    return found


@borrowing
def _counts_unbound_event(counts: NDArray[np.int32], first: int, end: int, bindings: Integers) -> bool:
    """Whether more events are counted from position `first` to before `end` than are bound.

    `counts` is a running count, so the difference of two entries is exact for any range: no event
    is looked at.
    """
    count = counts[end] - counts[first]
    if count == 0:
        return False
    terms = len(bindings) - 1
    # Take off each event that is bound, in the range and counted: once, even if several terms share
    # it.
    for term in range(terms):
        position = bindings[term]
        if first <= position < end and counts[position + 1] > counts[position]:
            is_first = True
            for other in range(term):
                is_first = is_first and bindings[other] != position
            count -= is_first
    return count > 0


@borrowing
def _scan(
    events: Events,
    program: LoadedProgram,
    number: int,
    item: int,
    event: int,
    first: int,
    end: int,
    bindings: Integers,
    stacks: Stacks,
) -> bool:
    """The same by looking at each event of the range, newest first.

    `number`: the condition's program, -1 = no condition.
    """
    terms = len(bindings) - 1
    # No event that is skipped can count: it is of another input, superseded, or a member of the
    # candidate.
    for position in range(end - 1, first - 1, -1):
        if events.input[position] != item or (len(events.superseded) > 0 and events.superseded[position] <= event):
            continue
        is_bound = False
        for term in range(terms):
            is_bound = is_bound or bindings[term] == position
        if is_bound:
            continue
        if number < 0:
            return True
        # The condition may mention the event as one more term.
        bindings[terms] = position
        if holds(program, number, bindings, stacks):
            return True
    return False
