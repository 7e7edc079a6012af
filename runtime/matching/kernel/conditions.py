"""Check `within` and `without` over the range of events that a candidate has bound so far.

`where` is a program: `runtime.matching.kernel.evaluator`.

`bindings[term]` is the position of the event that a term is bound to, -1 while it is not bound. The
last entry is one more: the event of a `without`, before that any event of the key.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.evaluator import LoadedProgram, comparison_holds, holds
from runtime.matching.kernel.questions import (
    FAILS,
    Span,
    each_compares,
    each_holds,
    has_blocking_event,
    names_all,
    verdict,
)
from runtime.matching.kernel.tables import CheckKind, Records, RunTables
from runtime.matching.kernel.workspace import Bound, Events, Reach, RunReach, SearchState, first_position, last_position


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
    reach: Reach,
    search_state: SearchState,
) -> bool:
    """Whether no event of a `without` is in its range, as far as the range is bound."""
    bindings = search_state.bindings
    # The ends of a range are outside of it. Binding more terms only makes a range longer, and what
    # is in it stays in it: a range that holds such an event already need not be completed. The
    # leading wait is added at the end, when the oldest event is known.
    oldest, newest = range_of(terms, conditions[condition].first_term, conditions[condition].stop_term, bindings)
    first, end = last_position(events, oldest) + 1, first_position(events, newest)
    if reach.leading < NEVER and conditions[condition].is_leading:
        first = first_after(events.time, reach.begin, end, leading_wait_start(events.time, reach.leading, bindings))
    first = max(first, search_state.oldest_position[conditions[condition].input])
    return not has_without_event(events, conditions, program, condition, reach.event, first, end, bindings)


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
) -> bool:
    """Whether an event from position `first` to before `end` is one of a `without`.

    Events that are bound do not count, by whatever input.
    Events that have been superseded by one up to `event` do not count.
    """
    count_row = conditions[condition].count_row
    if first >= end:
        found = False
    elif count_row >= 0:
        found = _counts_unbound_event(events, events.counts[count_row], first, end, bindings)
    else:
        number, item = conditions[condition].program, conditions[condition].input
        found = _scan(events, program, number, item, event, first, end, bindings)
    return found


@borrowing
def _counts_unbound_event(events: Events, counts: NDArray[np.int32], first: int, end: int, bindings: Integers) -> bool:
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
        own = _counted(events, counts, bindings[term], first, end) if bindings[term] >= 0 else 0
        if own > 0:
            is_first = True
            for other in range(term):
                is_first = is_first and not _are_one(events, bindings[other], bindings[term])
            count -= own if is_first else 0
    return count > 0


@inlined
def _counted(events: Events, counts: NDArray[np.int32], position: int, first: int, end: int) -> int:
    """How often the event at `position` is counted from position `first` to before `end`."""
    from_, to = max(first, first_position(events, position)), min(end, last_position(events, position) + 1)
    return counts[to] - counts[from_] if from_ < to else 0


@inlined
def _are_one(events: Events, one: int, other: int) -> bool:
    """Whether two positions are of one event; -1 is of none."""
    if one < 0 or other < 0:
        return False
    return first_position(events, one) == first_position(events, other)


@borrowing
def _is_bound_elsewhere(events: Events, bindings: Integers, position: int) -> bool:
    """Whether the event at `position` is bound, by whatever input."""
    is_bound = False
    for term in range(len(bindings) - 1):
        is_bound = is_bound or _are_one(events, bindings[term], position)
    return is_bound


@inlined
def _scan(
    events: Events,
    program: LoadedProgram,
    number: int,
    item: int,
    event: int,
    first: int,
    end: int,
    bindings: Integers,
) -> bool:
    """The same by looking at each event of the range, newest first.

    `number`: the condition's program, -1 = no condition.
    """
    terms, has_shared = len(bindings) - 1, len(events.first_of) > 0
    # No event that is skipped can count: it is of another input, superseded, or a member of the
    # candidate.
    for position in range(end - 1, first - 1, -1):
        if events.input[position] != item or (len(events.superseded) > 0 and events.superseded[position] <= event):
            continue
        is_bound = False
        for term in range(terms):
            is_bound = is_bound or bindings[term] == position
        if is_bound or (has_shared and _is_bound_elsewhere(events, bindings, position)):
            continue
        if number < 0:
            return True
        # The condition may mention the event as one more term.
        bindings[terms] = position
        if holds(program, number, bindings):
            return True
    return False


# Check the conditions of a transition, or of a state where the candidate may end.


@inlined
def checks_hold(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    first: int,
    stop: int,
    reach: RunReach,
    windows: SearchState,
) -> bool:
    """Whether the checks from `first` to before `stop` hold, as far as the candidate is bound.

    windows: where they begin
    """
    checks, result, check = tables.checks, True, first
    # Most conditions compare two operands. These are asked here: a call costs more than they do.
    while result and check < stop:
        kind = checks[check].kind
        if checks[check].operation < 0 or kind > CheckKind.EACH:
            result = _other_holds(events, tables, program, bound, check, reach, windows)
        elif kind == CheckKind.WHERE:
            here, there = bound.at[checks[check].left_term], bound.at[checks[check].right_term]
            result = comparison_holds(
                program, checks[check].operation, checks[check].left, here, checks[check].right, there
            )
        else:
            result = each_compares(checks, tables.questions, tables.lists, program, bound, reach.deepest, check)
        check += 1
    return result


@borrowing
def all_hold(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    first: int,
    stop: int,
    reach: RunReach,
    windows: SearchState,
) -> bool:
    """The same as a call."""
    return checks_hold(events, tables, program, bound, first, stop, reach, windows)


@borrowing
def _other_holds(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    check: int,
    reach: RunReach,
    windows: SearchState,
) -> bool:
    """Whether a check holds that is not a comparison of two operands, or is about complete runs."""
    checks, kind, result = tables.checks, tables.checks[check].kind, True
    if kind == CheckKind.WHERE:
        result = holds(program, checks[check].program, bound.at)
    elif kind == CheckKind.EACH:
        result = each_holds(tables, program, bound, reach.deepest, check)
    elif kind == CheckKind.WHOLE:
        result = verdict(tables, program, bound, reach.deepest, check) != FAILS
    elif kind == CheckKind.WITHIN:
        since, until = NEVER, -NEVER
        oldest, newest = _run_range_of(tables.lists, checks[check].first_term, checks[check].stop_term, bound)
        if newest >= 0:
            since, until = events.time[bound.path[oldest]], events.time[bound.path[newest]]
        for index in range(checks[check].first_middle, checks[check].stop_middle):
            point = _point_of(events, tables, bound, tables.lists[index])
            since, until = min(since, point), max(until, point)
        if until > -NEVER:
            if checks[check].is_leading == 1:
                since = min(since, events.time[bound.path[reach.deepest]] - reach.leading)
            result = until - since < checks[check].length
    elif kind == CheckKind.GAP:
        # As far as it is bound, what comes after the wait is bound before what precedes it.
        oldest, _ = _run_range_of(tables.lists, checks[check].first_term, checks[check].stop_term, bound)
        point = _point_of(events, tables, bound, tables.lists[checks[check].first_middle])
        result = oldest < 0 or events.time[bound.path[oldest]] >= point
    else:
        result = _run_without_holds(events, tables, program, bound, check, reach, windows)
    return result


@borrowing
def _run_range_of(lists: Integers, first: int, stop: int, bound: Bound) -> tuple[int, int]:
    """The depths of the oldest and of the newest event of some terms; both -1: none is bound."""
    oldest, newest = -1, -1
    for index in range(first, stop):
        term = lists[index]
        count = bound.counts[term]
        if count > 0:
            depth = int(bound.runs[term, 0])
            if newest < 0 or depth < newest:
                newest = depth
            oldest = max(oldest, int(bound.runs[term, count - 1]))
    return oldest, newest


@borrowing
def _point_of(events: Events, tables: RunTables, bound: Bound, middle: int) -> int:
    """When a wait between steps ends, µs; what precedes it is bound."""
    middles = tables.middles
    _, newest = _run_range_of(tables.lists, middles[middle].first_before, middles[middle].stop_before, bound)
    return events.time[bound.path[newest]] + middles[middle].length


@borrowing
def _run_without_holds(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    check: int,
    reach: RunReach,
    windows: SearchState,
) -> bool:
    """Whether no event of a `without` is in its range, as far as the range is bound."""
    checks = tables.checks
    if checks[check].question >= 0 and not names_all(tables, bound, check):
        return True
    # The ends of a range are outside of it.
    oldest, newest = _run_range_of(tables.lists, checks[check].first_term, checks[check].stop_term, bound)
    first, end = NEVER, -1
    if newest >= 0:
        first, end = last_position(events, bound.path[oldest]) + 1, first_position(events, bound.path[newest])
    for index in range(checks[check].first_middle, checks[check].stop_middle):
        point = _point_of(events, tables, bound, tables.lists[index])
        first = min(first, first_after(events.time, reach.begin, reach.event + 1, point))
        end = max(end, first_after(events.time, reach.begin, reach.event + 1, point - 1))
    if reach.is_last and reach.leading < NEVER and checks[check].is_leading == 1:
        first = first_after(events.time, reach.begin, end, events.time[bound.path[reach.deepest]] - reach.leading)
    item = checks[check].input
    first = max(first, windows.oldest_position[item])
    first = first_after(events.time, first, end, windows.oldest_time[item] - 1) if first < end else first
    row = checks[check].count_row
    if first >= end:
        return True
    if row < 0:
        span = Span(first, end, reach.event)
        return not has_blocking_event(events, tables, program, bound, reach.deepest, check, span)
    return _count_between(events, events.counts[row], bound.path, reach.deepest, first, end) == 0


@borrowing
def _count_between(
    events: Events, counts: NDArray[np.int32], path: Integers, deepest: int, first: int, end: int
) -> int:
    """How many events are counted from position `first` to before `end` that are not bound."""
    count = int(counts[end] - counts[first])
    depth = 0
    while count > 0 and depth <= deepest:
        if last_position(events, path[depth]) < first:
            break
        count -= _counted(events, counts, path[depth], first, end)
        depth += 1
    return count
