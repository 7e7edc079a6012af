"""Check the conditions of a transition, or of a state where the candidate may end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.conditions import Events, first_after
from runtime.matching.kernel.evaluator import LoadedProgram, Stacks, comparison_holds, holds
from runtime.matching.run_kernel.questions import (
    FAILS,
    each_compares,
    each_holds,
    has_blocking_event,
    names_all,
    verdict,
)
from runtime.matching.run_kernel.tables import CheckKind, Tables
from runtime.matching.run_kernel.workspace import Bound
from runtime.number_arrays import Integers


@inlined
def checks_hold(
    events: Events,
    tables: Tables,
    program: LoadedProgram,
    bound: Bound,
    path: Integers,
    deepest: int,
    first: int,
    stop: int,
    is_last: bool,
    event: int,
    begin: int,
    leading: int,
    oldest_position: Integers,
    oldest_time: Integers,
    stacks: Stacks,
) -> bool:
    """Whether the checks from `first` to before `stop` hold, as far as the candidate is bound.

    deepest: the depth of its oldest event
    is_last: no more will be bound
    event, begin: positions of the latest event and of the key's first one
    leading: µs, the length of the leading wait
    oldest_position, oldest_time: by input, where its window begins
    """
    checks, result, check = tables.checks, True, first
    # Most conditions compare two operands. These are asked here: a call costs more than they do.
    while result and check < stop:
        kind = checks[check].kind
        if checks[check].operation < 0 or kind > CheckKind.EACH:
            result = _other_holds(
                events,
                tables,
                program,
                bound,
                path,
                deepest,
                check,
                is_last,
                event,
                begin,
                leading,
                oldest_position,
                oldest_time,
                stacks,
            )
        elif kind == CheckKind.WHERE:
            here, there = bound.at[checks[check].left_term], bound.at[checks[check].right_term]
            result = comparison_holds(
                program, checks[check].operation, checks[check].left, here, checks[check].right, there
            )
        else:
            result = each_compares(checks, tables.questions, tables.lists, program, bound, path, deepest, check)
        check += 1
    return result


@borrowing
def all_hold(
    events: Events,
    tables: Tables,
    program: LoadedProgram,
    bound: Bound,
    path: Integers,
    deepest: int,
    first: int,
    stop: int,
    is_last: bool,
    event: int,
    begin: int,
    leading: int,
    oldest_position: Integers,
    oldest_time: Integers,
    stacks: Stacks,
) -> bool:
    """The same as a call."""
    return checks_hold(
        events,
        tables,
        program,
        bound,
        path,
        deepest,
        first,
        stop,
        is_last,
        event,
        begin,
        leading,
        oldest_position,
        oldest_time,
        stacks,
    )


@borrowing
def _other_holds(
    events: Events,
    tables: Tables,
    program: LoadedProgram,
    bound: Bound,
    path: Integers,
    deepest: int,
    check: int,
    is_last: bool,
    event: int,
    begin: int,
    leading: int,
    oldest_position: Integers,
    oldest_time: Integers,
    stacks: Stacks,
) -> bool:
    """Whether a check holds that is not a comparison of two operands, or is about complete runs."""
    checks, kind, result = tables.checks, tables.checks[check].kind, True
    if kind == CheckKind.WHERE:
        result = holds(program, checks[check].program, bound.at, stacks)
    elif kind == CheckKind.EACH:
        result = each_holds(checks, tables.questions, tables.lists, program, bound, path, deepest, check, stacks)
    elif kind == CheckKind.WHOLE:
        result = verdict(tables, program, bound, path, deepest, check, stacks) != FAILS
    elif kind == CheckKind.WITHIN:
        since, until = NEVER, -NEVER
        oldest, newest = _range_of(tables.lists, checks[check].first_term, checks[check].stop_term, bound)
        if newest >= 0:
            since, until = events.time[path[oldest]], events.time[path[newest]]
        for index in range(checks[check].first_middle, checks[check].stop_middle):
            point = _point_of(events, tables, bound, path, tables.lists[index])
            since, until = min(since, point), max(until, point)
        if until > -NEVER:
            if checks[check].is_leading == 1:
                since = min(since, events.time[path[deepest]] - leading)
            result = until - since < checks[check].length
    elif kind == CheckKind.GAP:
        # As far as it is bound, what comes after the wait is bound before what precedes it.
        oldest, _ = _range_of(tables.lists, checks[check].first_term, checks[check].stop_term, bound)
        point = _point_of(events, tables, bound, path, tables.lists[checks[check].first_middle])
        result = oldest < 0 or events.time[path[oldest]] >= point
    else:
        result = _without_holds(
            events,
            tables,
            program,
            bound,
            path,
            deepest,
            check,
            is_last,
            event,
            begin,
            leading,
            oldest_position,
            oldest_time,
            stacks,
        )
    return result


@borrowing
def _range_of(lists: Integers, first: int, stop: int, bound: Bound) -> tuple[int, int]:
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
def _point_of(events: Events, tables: Tables, bound: Bound, path: Integers, middle: int) -> int:
    """When a wait between steps ends, µs; what precedes it is bound."""
    middles = tables.middles
    _, newest = _range_of(tables.lists, middles[middle].first_before, middles[middle].stop_before, bound)
    return events.time[path[newest]] + middles[middle].length


@borrowing
def _without_holds(
    events: Events,
    tables: Tables,
    program: LoadedProgram,
    bound: Bound,
    path: Integers,
    deepest: int,
    check: int,
    is_last: bool,
    event: int,
    begin: int,
    leading: int,
    oldest_position: Integers,
    oldest_time: Integers,
    stacks: Stacks,
) -> bool:
    """Whether no event of a `without` is in its range, as far as the range is bound."""
    checks = tables.checks
    if checks[check].question >= 0 and not names_all(tables, bound, check):
        return True
    # The ends of a range are outside of it.
    oldest, newest = _range_of(tables.lists, checks[check].first_term, checks[check].stop_term, bound)
    first, end = NEVER, -1
    if newest >= 0:
        first, end = path[oldest] + 1, path[newest]
    for index in range(checks[check].first_middle, checks[check].stop_middle):
        point = _point_of(events, tables, bound, path, tables.lists[index])
        first = min(first, first_after(events.time, begin, event + 1, point))
        end = max(end, first_after(events.time, begin, event + 1, point - 1))
    if is_last and leading < NEVER and checks[check].is_leading == 1:
        first = first_after(events.time, begin, end, events.time[path[deepest]] - leading)
    item = checks[check].input
    first = max(first, oldest_position[item])
    first = first_after(events.time, first, end, oldest_time[item] - 1) if first < end else first
    row = checks[check].count_row
    if first >= end:
        return True
    if row < 0:
        return not has_blocking_event(
            tables,
            program,
            events.input,
            events.superseded,
            bound,
            path,
            deepest,
            check,
            event,
            first,
            end,
            stacks,
        )
    return _count_between(events.counts[row], path, deepest, first, end) == 0


@borrowing
def _count_between(counts: NDArray[np.int32], path: Integers, deepest: int, first: int, end: int) -> int:
    """How many events are counted from position `first` to before `end` that are not bound."""
    count = int(counts[end] - counts[first])
    depth = 0
    while count > 0 and depth <= deepest:
        position = path[depth]
        if position < first:
            break
        if position < end:
            count -= counts[position + 1] - counts[position]
        depth += 1
    return count
