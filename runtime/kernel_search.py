"""The compiled search: for each new event, backwards in time, the first candidate that all conditions let through.

Takes events, automaton and conditions as tables of numbers; fills arrays. Depth first, newer events first: what is found first
is the winner by the *recent* policy, except where one event may serve different names, equally many: there all of those
ways are gone and their results compared. `bound[term]` is a position, -1 while the term is not bound.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import borrowing, inlined
from runtime.controls import NEVER
from runtime.kernel_program import STACK, Conditions, Stacks, has_value, holds
from runtime.kernel_tables import AutomatonColumns, ConditionColumns
from runtime.windows import WindowColumns

Integers = NDArray[np.int64]

MEMORY = 1 << 26
"""The largest memory of failed searches, in entries of eight bytes."""


class Events(NamedTuple):
    """Ordered events by position: see `runtime.matcher.Ordered`. `counts[r, p]`: how many events before position p row r
    counts, over all keys."""

    start: Integers
    fresh: Integers
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    counts: NDArray[np.int32]


class Query(NamedTuple):
    """What is searched for. `within`: of the whole pattern; `leading`: the length of the leading wait; NEVER: there is none.

    Kernels take it apart first: to pass a tuple within a tuple on costs as much as a step of the search.
    """

    automaton: AutomatonColumns
    conditions: ConditionColumns
    program: Conditions
    windows: WindowColumns
    within: int
    leading: int


class _Path(NamedTuple):
    """The path of the search, an entry a depth: the state there, the position and the transition to go on with, the position
    at which the state was entered, whether a candidate was found from there, and (`only`) where the ways end that are left
    to be gone then, -1: all of them."""

    state: Integers
    at: Integers
    choice: Integers
    entry: Integers
    won: Integers
    only: Integers


class _Lessons(NamedTuple):
    """What failures have taught, each with the number of the search for which it is true: by state the position from which on
    it fails, and by memory row and position within the key where it fails."""

    dead: Integers
    dead_for: Integers
    failed: Integers


class _Moment(NamedTuple):
    """Where the search stands, as arrays that change. `bound`: by term, -1: none yet; the last entry is for the event of a
    `without`, before that for any event of the key. `oldest`, `inside`: by input, where its window begins and how many events it holds."""

    bound: Integers
    oldest: Integers
    inside: Integers


class Memory(NamedTuple):
    """What a search works in; `ours` and `theirs` are for the comparison of two candidates."""

    path: _Path
    lessons: _Lessons
    moment: _Moment
    stacks: Stacks
    ours: Integers
    theirs: Integers


def new_memory(start: Integers, terms: int, inputs: int, rows: Integers) -> Memory:
    """Working memory for keys that begin at `start`. `rows`: the memory row of each state (`AutomatonColumns.memory`).

    Failures by position are not remembered where that would take more than MEMORY entries.
    """
    depths, states = terms + 1, len(rows)
    widest = int(np.diff(start).max(initial=1))
    count = int(rows.max()) + 1
    failed = np.full((count if count * widest <= MEMORY else 0, widest), -1, np.int64)
    state, at, choice, entry, won = (np.zeros(depths, np.int64) for _ in range(5))
    path = _Path(state, at, choice, entry, won, np.full(depths, -1, np.int64))
    lessons = _Lessons(np.zeros(states, np.int64), np.full(states, -1, np.int64), failed)
    moment = _Moment(np.full(terms + 1, -1, np.int64), np.zeros(inputs, np.int64), np.zeros(inputs, np.int64))
    stacks = Stacks(np.empty(STACK + 1, np.int64), np.empty(STACK + 1, np.float64))
    return Memory(path, lessons, moment, stacks, np.zeros(terms, np.int64), np.zeros(terms, np.int64))


@inlined
def _slide(events: Events, windows: WindowColumns, event: int, moment: _Moment) -> int:
    """Moves the windows on as `event` is added; gives the oldest position of all."""
    floor = event
    for item in range(len(moment.oldest)):
        if windows.remembered[item]:
            low = moment.oldest[item]
            if events.input[event] == item:
                moment.inside[item] += 1
            edge = events.time[event] - windows.within[item]
            while low < event and events.time[low] <= edge:
                moment.inside[item] -= events.input[low] == item
                low += 1
            while moment.inside[item] > windows.retain[item]:
                moment.inside[item] -= events.input[low] == item
                low += 1
            moment.oldest[item] = low
            floor = min(floor, low)
    return floor


@borrowing
def _range(first: Integers, terms: Integers, condition: int, bound: Integers) -> tuple[int, int]:
    """The oldest and the newest position of a condition's terms, as far as they are bound."""
    low, high = NEVER, -1
    for at in range(first[condition], first[condition + 1]):
        position = bound[terms[at]]
        if position >= 0:
            low, high = min(low, position), max(high, position)
    return low, high


@borrowing
def _lead(time: Integers, leading: int, bound: Integers) -> int:
    """The moment of the leading wait: so long before the oldest event that is bound."""
    oldest = NEVER
    for term in range(len(bound) - 1):
        if bound[term] >= 0:
            oldest = min(oldest, time[bound[term]])
    return oldest - leading


@borrowing
def _after(time: Integers, begin: int, end: int, moment: int) -> int:
    """The first position from `begin` on, before `end`, whose time is after the moment; `end` if there is none."""
    while begin < end:
        middle = (begin + end) >> 1
        if time[middle] > moment:
            end = middle
        else:
            begin = middle + 1
    return begin


@inlined
def _is_shorter(events: Events, columns: ConditionColumns, condition: int, leading: int, bound: Integers) -> bool:
    """Whether the range of a `within` is short enough."""
    low, high = _range(columns.first, columns.terms, condition, bound)
    since = events.time[low]
    if columns.leading[condition]:
        since = min(since, _lead(events.time, leading, bound))
    return events.time[high] - since < columns.length[condition]


@inlined
def _is_free(
    events: Events,
    columns: ConditionColumns,
    program: Conditions,
    condition: int,
    event: int,
    begin: int,
    lead: int,
    moment: _Moment,
    stacks: Stacks,
) -> bool:
    """Whether no event of a `without` lies in its range; `event` is the latest, `begin` where its key begins.

    `lead`: the length of the leading wait once all terms are bound, NEVER before.
    """
    low, high = _range(columns.first, columns.terms, condition, moment.bound)
    first = low + 1
    if lead < NEVER and columns.leading[condition]:
        first = _after(events.time, begin, high, _lead(events.time, lead, moment.bound))
    first = max(first, moment.oldest[columns.input[condition]])
    return not _blocks(events, columns, program, condition, event, first, high, moment.bound, stacks)


@inlined
def _blocks(
    events: Events,
    columns: ConditionColumns,
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
    counted = columns.counted[condition]
    if first >= end:
        blocked = False
    elif counted >= 0:
        blocked = _counts_any(events.counts[counted], first, end, bound)
    else:
        number, kind = columns.program[condition], columns.input[condition]
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


@inlined
def _consume(
    events: Events,
    automaton: AutomatonColumns,
    columns: ConditionColumns,
    program: Conditions,
    transition: int,
    position: int,
    event: int,
    begin: int,
    leading: int,
    moment: _Moment,
    stacks: Stacks,
) -> bool:
    """Binds the event at `position` to the transition's names if the conditions that this decides hold; whether they do."""
    bound = moment.bound
    for index in range(automaton.bind_first[transition], automaton.bind_first[transition + 1]):
        bound[automaton.binds[index]] = position
    good = True
    for index in range(automaton.check_first[transition], automaton.check_first[transition + 1]):
        if good:
            condition = automaton.checks[index]
            kind = columns.kind[condition]
            if kind == 0:
                good = holds(program, columns.program[condition], bound, stacks)
            elif kind == 1:
                good = _is_shorter(events, columns, condition, leading, bound)
            else:
                lead = leading if automaton.target[transition] < 0 else NEVER
                good = _is_free(events, columns, program, condition, event, begin, lead, moment, stacks)
    if not good:
        _release(automaton, transition, bound)
    return good


@inlined
def _release(automaton: AutomatonColumns, transition: int, bound: Integers) -> None:
    """Takes the transition's names off what they are bound to."""
    for index in range(automaton.bind_first[transition], automaton.bind_first[transition + 1]):
        bound[automaton.binds[index]] = -1


@inlined
def _next(
    events: Events,
    automaton: AutomatonColumns,
    columns: ConditionColumns,
    program: Conditions,
    path: _Path,
    depth: int,
    event: int,
    begin: int,
    lowest: int,
    horizon: int,
    leading: int,
    moment: _Moment,
    stacks: Stacks,
) -> bool:
    """Goes to the next event and transition that the state at `depth` may take; whether there is one."""
    position, transition, here = path.at[depth], path.choice[depth], path.state[depth]
    opening, stop = automaton.first[here], automaton.first[here + 1]
    is_bounded = path.only[depth] >= 0
    if is_bounded:
        stop = path.only[depth]
    has_places, taken = len(events.superseded) > 0, False
    while position >= lowest and events.time[position] > horizon:
        kind = events.input[position]
        is_current = not has_places or events.superseded[position] > event
        if is_current and (depth == 0 or position >= moment.oldest[kind]):
            while transition < stop and not taken:
                if automaton.input[transition] == kind:
                    taken = _consume(
                        events,
                        automaton,
                        columns,
                        program,
                        transition,
                        position,
                        event,
                        begin,
                        leading,
                        moment,
                        stacks,
                    )
                transition += 1
        if taken or is_bounded:
            break
        transition = opening
        position -= 1
    path.at[depth] = position
    path.choice[depth] = transition
    return taken


@inlined
def _enter(automaton: AutomatonColumns, path: _Path, depth: int, state: int, position: int) -> None:
    """Begins a depth: at `position`, which was consumed for it; the search goes on before it."""
    path.state[depth] = state
    path.entry[depth] = position
    path.at[depth] = position - 1
    path.choice[depth] = automaton.first[state]
    path.won[depth] = 0
    path.only[depth] = -1


@inlined
def _learn(
    automaton: AutomatonColumns, path: _Path, lessons: _Lessons, depth: int, begin: int, search_number: int
) -> None:
    """Remembers that the state at `depth` failed from where it was entered, if it did."""
    here, entry = path.state[depth], path.entry[depth]
    memory = automaton.memory[here]
    if path.won[depth] == 0:
        if automaton.alone[here]:
            lessons.dead[here] = entry
            lessons.dead_for[here] = search_number
        elif memory >= 0 and len(lessons.failed) > 0:
            lessons.failed[memory, entry - begin] = search_number


@inlined
def _is_hopeless(
    automaton: AutomatonColumns, lessons: _Lessons, state: int, position: int, begin: int, search_number: int
) -> bool:
    """Whether the state is known to fail when it is entered at `position`."""
    memory = automaton.memory[state]
    if automaton.alone[state]:
        hopeless = lessons.dead_for[state] == search_number and position <= lessons.dead[state]
    else:
        hopeless = memory >= 0 and len(lessons.failed) > 0 and lessons.failed[memory, position - begin] == search_number
    return hopeless


@inlined
def _sort(bound: Integers, terms: int, into: Integers) -> None:
    """The first positions, newest first."""
    for term in range(terms):
        position, place = bound[term], term
        while place > 0 and into[place - 1] < position:
            into[place] = into[place - 1]
            place -= 1
        into[place] = position


@borrowing
def _is_more_recent(bound: Integers, best: Integers, terms: int, ours: Integers, theirs: Integers) -> bool:
    """Whether `bound` is to be preferred: positions newest first, one a name; then by name, the last one first."""
    _sort(bound, terms, ours)
    _sort(best, terms, theirs)
    for place in range(terms):
        if ours[place] != theirs[place]:
            return ours[place] > theirs[place]
    for term in range(terms - 1, -1, -1):
        if bound[term] != best[term]:
            return bound[term] > best[term]
    return False


@borrowing
def search(
    events: Events, query: Query, memory: Memory, is_ambiguous: bool, latest: Integers, members: Integers
) -> int:
    """Fills `latest` and `members` with at most one match a new event; gives how many there are."""
    automaton, columns, program, windows = query.automaton, query.conditions, query.program, query.windows
    within, leading, terms = query.within, query.leading, members.shape[1]
    path, lessons, moment, stacks = memory.path, memory.lessons, memory.moment, memory.stacks
    bound, oldest, only = moment.bound, moment.oldest, path.only
    found = 0
    for key in range(len(events.start) - 1):
        begin, fresh = events.start[key], events.fresh[key]
        if fresh == events.start[key + 1]:
            continue
        oldest[:] = begin
        moment.inside[:] = 0
        for event in range(begin, events.start[key + 1]):
            floor = _slide(events, windows, event, moment)
            if event < fresh:
                continue
            horizon = events.time[event] - within
            bound[terms] = event
            # depth 0 consumes this event; deeper levels look at older positions
            depth, has_won = 0, False
            _enter(automaton, path, 0, 0, event + 1)
            while depth >= 0:
                lowest = event if depth == 0 else floor + automaton.need[path.state[depth]] - 1
                if not _next(
                    events,
                    automaton,
                    columns,
                    program,
                    path,
                    depth,
                    event,
                    begin,
                    lowest,
                    horizon,
                    leading,
                    moment,
                    stacks,
                ):
                    if depth > 0:
                        _learn(automaton, path, lessons, depth, begin, event)
                        _release(automaton, path.choice[depth - 1] - 1, bound)
                    depth -= 1
                    continue
                transition = path.choice[depth] - 1
                target = automaton.target[transition]
                if target < 0:
                    if not has_won or _is_more_recent(bound, members[found], terms, memory.ours, memory.theirs):
                        for term in range(terms):
                            members[found, term] = bound[term]
                    has_won = True
                    _release(automaton, transition, bound)
                    if not is_ambiguous:
                        break
                    for above in range(depth + 1):
                        path.won[above] = 1
                        only[above] = automaton.equals[path.choice[above] - 1]
                elif _is_hopeless(automaton, lessons, target, path.at[depth], begin, event):
                    _release(automaton, transition, bound)
                else:
                    depth += 1
                    _enter(automaton, path, depth, target, path.at[depth - 1])
            if has_won:
                latest[found] = event
                found += 1
                while depth > 0:
                    depth -= 1
                    _release(automaton, path.choice[depth] - 1, bound)
    return found


class Function(IntEnum):
    """Aggregates that the kernel knows; see `runtime.aggregates` for what they are."""

    COUNT = 0
    COUNT_TRUE = 1
    COUNT_NUMBERS = 2
    SUM = 3
    MEAN = 4
    MIN = 5
    MAX = 6
    FIRST = 7
    LAST = 8


class Arguments(NamedTuple):
    """What the aggregates are about, one entry an aggregate: its `Function`, the number of its argument's program (-1: it has
    none), whether that is a float, and the terms that it mentions, with ends alike."""

    function: Integers
    program: Integers
    is_float: NDArray[np.bool_]
    first: Integers
    mentions: Integers


class Aggregated(NamedTuple):
    """The values of aggregates by (aggregate, match): whole numbers or floats, and whether there is a value."""

    whole: Integers
    real: NDArray[np.float64]
    is_valid: NDArray[np.bool_]


class Running(NamedTuple):
    """What aggregates have come to so far, an entry each: how many values, and a whole number or a float; `best`: the candidate
    that the oldest or newest value is of, by (aggregate, term)."""

    size: Integers
    whole: Integers
    real: NDArray[np.float64]
    best: Integers


@inlined
def _take(
    program: Conditions, arguments: Arguments, running: Running, is_ambiguous: bool, bound: Integers, memory: Memory
) -> None:
    """Adds what one candidate gives to each aggregate; candidates come newest first, unless the pattern is ambiguous."""
    stacks = memory.stacks
    for index in range(len(arguments.function)):
        number, function = arguments.program[index], arguments.function[index]
        is_set = number >= 0
        for at in range(arguments.first[index], arguments.first[index + 1]):
            is_set = is_set and bound[arguments.mentions[at]] >= 0
        if is_set and has_value(program, number, bound, stacks):
            is_first = running.size[index] == 0
            replaces = is_first or (function == 7 and not is_ambiguous)
            if is_ambiguous and not is_first and function >= 7:
                best, terms = running.best[index], running.best.shape[1]
                is_newer = _is_more_recent(bound, best, terms, memory.ours, memory.theirs)
                replaces = is_newer == (function == 8)
            if replaces and is_ambiguous:
                for term in range(running.best.shape[1]):
                    running.best[index, term] = bound[term]
            if arguments.is_float[index]:
                _add_float(function, running, index, stacks.real[0], is_first, replaces)
            else:
                _add_whole(function, running, index, stacks.whole[0], is_first, replaces)


@inlined
def _add_float(function: int, running: Running, index: int, value: float, is_first: bool, replaces: bool) -> None:
    """One more value of a float. NaN is neither least nor greatest, unless there is nothing else; `count` counts none."""
    best, is_number = running.real[index], value == value  # noqa: PLR0124
    if function == 2:
        running.size[index] += is_number
    else:
        running.size[index] += 1
        if function == 3 or function == 4:  # noqa: PLR1714
            running.real[index] = value if is_first else best + value
        elif function == 5:
            if is_first or value <= best or (best != best and is_number):  # noqa: PLR0124
                running.real[index] = value
        elif function == 6:
            if is_first or value >= best or (best != best and is_number):  # noqa: PLR0124
                running.real[index] = value
        elif replaces:
            running.real[index] = value


@inlined
def _add_whole(function: int, running: Running, index: int, value: int, is_first: bool, replaces: bool) -> None:
    """One more value of an integer or boolean; a mean is of floats."""
    best = running.whole[index]
    running.size[index] += 1
    if function == 1 or function == 3:  # noqa: PLR1714
        running.whole[index] = value if is_first else best + value
    elif function == 4:
        running.real[index] = np.float64(value) if is_first else running.real[index] + np.float64(value)
    elif function == 5:
        running.whole[index] = value if is_first else min(best, value)
    elif function == 6:
        running.whole[index] = value if is_first else max(best, value)
    elif replaces:
        running.whole[index] = value


@borrowing
def _finish(arguments: Arguments, running: Running, candidates: int, match: int, results: Aggregated) -> None:
    """Fills the aggregates of one match."""
    for index in range(len(arguments.function)):
        function, size = arguments.function[index], running.size[index]
        results.is_valid[index, match] = size > 0 or function < 3
        results.whole[index, match] = running.whole[index]
        results.real[index, match] = running.real[index]
        if function == 0:
            results.whole[index, match] = candidates
        elif function == 1 and size == 0:
            results.whole[index, match] = 0
        elif function == 2:
            results.whole[index, match] = size
        elif function == 4 and size > 0:
            results.real[index, match] = running.real[index] / size


@borrowing
def search_every(
    events: Events,
    query: Query,
    memory: Memory,
    is_ambiguous: bool,
    arguments: Arguments,
    running: Running,
    latest: Integers,
    results: Aggregated,
) -> int:
    """Fills `latest` and the aggregates over all candidates for each new event that is in one; gives how many there are."""
    automaton, columns, program, windows = query.automaton, query.conditions, query.program, query.windows
    within, leading = query.within, query.leading
    path, lessons, moment, stacks = memory.path, memory.lessons, memory.moment, memory.stacks
    bound, oldest = moment.bound, moment.oldest
    found, number = 0, 0
    for key in range(len(events.start) - 1):
        begin, fresh = events.start[key], events.fresh[key]
        if fresh == events.start[key + 1]:
            continue
        oldest[:] = begin
        moment.inside[:] = 0
        for event in range(begin, events.start[key + 1]):
            floor = _slide(events, windows, event, moment)
            if event < fresh:
                continue
            running.size[:] = 0
            candidates = 0
            bound[len(bound) - 1] = event
            # all candidates by their newest event; if none has the latest one there is no match
            for newest in range(event, floor - 1, -1):
                if newest < oldest[events.input[newest]]:
                    continue
                number += 1
                horizon = events.time[newest] - within
                depth = 0
                _enter(automaton, path, 0, 0, newest + 1)
                while depth >= 0:
                    lowest = newest if depth == 0 else floor + automaton.need[path.state[depth]] - 1
                    if not _next(
                        events,
                        automaton,
                        columns,
                        program,
                        path,
                        depth,
                        event,
                        begin,
                        lowest,
                        horizon,
                        leading,
                        moment,
                        stacks,
                    ):
                        if depth > 0:
                            _learn(automaton, path, lessons, depth, begin, number)
                            _release(automaton, path.choice[depth - 1] - 1, bound)
                        depth -= 1
                        continue
                    transition = path.choice[depth] - 1
                    target = automaton.target[transition]
                    if target < 0:
                        candidates += 1
                        _take(program, arguments, running, is_ambiguous, bound, memory)
                        for above in range(depth + 1):
                            path.won[above] = 1
                        _release(automaton, transition, bound)
                    elif _is_hopeless(automaton, lessons, target, path.at[depth], begin, number):
                        _release(automaton, transition, bound)
                    else:
                        depth += 1
                        _enter(automaton, path, depth, target, path.at[depth - 1])
                if candidates == 0:
                    break
            if candidates > 0:
                latest[found] = event
                _finish(arguments, running, candidates, found, results)
                found += 1
    return found


class Late(NamedTuple):
    """The conditions that reach the trailing wait: their numbers, and the terms that each mentions, with ends alike."""

    conditions: Integers
    first: Integers
    mentions: Integers


class Waits(NamedTuple):
    """Waits as the kernel takes them: see `runtime.matcher.Waiting`."""

    key: Integers
    members: Integers
    latest: Integers
    due: Integers
    is_new: NDArray[np.bool_]


@borrowing
def outlive(events: Events, query: Query, late: Late, waits: Waits, memory: Memory, result: NDArray[np.bool_]) -> None:
    """Fills `result` (true before): which waits no condition has ended, by the events that there are."""
    columns, program, windows = query.conditions, query.program, query.windows
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
                if columns.kind[condition] == 1:
                    due = waits.due[wait]
                    ends = waits.is_new[wait] and _is_too_long(events, columns, condition, query.leading, bound, due)
                else:
                    ends = _is_broken(
                        events, columns, program, windows, condition, query.leading, waits, wait, bound, stacks
                    )
                result[wait] = not ends


@inlined
def _is_too_long(
    events: Events, columns: ConditionColumns, condition: int, leading: int, bound: Integers, due: int
) -> bool:
    """Whether a `within` that ends with the trailing wait is over before it."""
    low, _ = _range(columns.first, columns.terms, condition, bound)
    since = due
    if low < NEVER:
        since = events.time[low]
    if columns.leading[condition]:
        since = min(since, _lead(events.time, leading, bound))
    return due - since >= columns.length[condition]


@inlined
def _is_broken(
    events: Events,
    columns: ConditionColumns,
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
    over = _after(events.time, later, events.start[key + 1], waits.due[wait] - 1)
    if waits.is_new[wait]:
        begin = events.start[key]
        low, _ = _range(columns.first, columns.terms, condition, bound)
        first = low + 1
        if columns.leading[condition]:
            first = _after(events.time, begin, later, _lead(events.time, leading, bound))
        first = _window(events, windows, columns.input[condition], first, latest)
        is_broken = _blocks(events, columns, program, condition, latest, first, later, bound, stacks)
    return is_broken or _blocks(events, columns, program, condition, -1, later, over, bound, stacks)


@borrowing
def _window(events: Events, windows: WindowColumns, item: int, begin: int, latest: int) -> int:
    """From which position on, not before `begin`, an input's events are in its window at the moment of the event `latest`."""
    oldest = _after(events.time, begin, latest + 1, events.time[latest] - windows.within[item])
    if windows.retain[item] < NEVER:
        seen = 0
        for position in range(latest, oldest - 1, -1):
            seen += events.input[position] == item
            if seen > windows.retain[item]:
                return position + 1
    return oldest
