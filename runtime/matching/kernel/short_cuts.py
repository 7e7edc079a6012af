"""Searches for simple queries, without the general search: chains, and `find every` of one name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan, Where, known
from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.aggregates import Aggregation, Arguments, Function, add_to_sum, clear, finish_match, see
from runtime.matching.kernel.evaluator import KNOWN, LoadedProgram
from runtime.matching.kernel.lookahead import Lanes, Sought, look_ahead
from runtime.matching.kernel.memory import failed_until, record_dead_end
from runtime.matching.kernel.program import KernelProgram, operand_of
from runtime.matching.kernel.search import bind, link_events, next_older
from runtime.matching.kernel.tables import AutomatonTables, is_whole
from runtime.matching.kernel.workspace import (
    COUNT,
    ERRORS,
    INDEX,
    KEY,
    MATCHES,
    Events,
    Links,
    Start,
    Workspace,
    first_position,
    last_position,
)
from runtime.matching.windows import WindowColumns

# The compiled search of chains: patterns whose steps take one event each and only compare events.
#
# Most patterns are chains. All that `runtime.matching.kernel.search` decides for others, it decides
# for each event, so a search of its own takes less than half the time. It finds the same.

AFTER_COMPARISONS = 8
"""After how many rejected events in a row to look ahead: `search` pays more for each of them."""


def chain_ages(
    query: QueryPlan, automaton: AutomatonTables, windows: WindowColumns, followed: NDArray[np.bool_], within: int
) -> Integers | None:
    """By state, how much older than the latest event its event may be, µs; None = not a chain.

    followed, within: as in `runtime.matching.kernel.workspace.Query`

    In a chain state n takes the events of one input, by one transition, for one name, to state n+1.
    Times alone decide what is in a window.
    """
    states, transitions = automaton.states, automaton.transitions
    is_plain = (
        query.every is None
        and query.skip is None
        and not len(followed)
        and not windows.is_unique.any()
        and len(states) == len(transitions) == len(query.terms)
        and (transitions["target"][:-1] == np.arange(1, len(states))).all()
        and (transitions["first_bind"] == transitions["stop_bind"]).all()
        and (transitions["first_other_check"] == transitions["stop_check"]).all()
        and (states["link_row"][1:] >= 0).all()
    )
    return np.minimum(windows.within[transitions["input"]], within) - 1 if is_plain else None


def for_chain(automaton: AutomatonTables) -> AutomatonTables:
    """The tables of a chain for `search_chain`, which looks ahead later."""
    states = automaton.states.copy()
    states["lookahead_after"][states["lookahead_after"] < NEVER] = AFTER_COMPARISONS
    return automaton._replace(states=states)


@borrowing
def search_chain(
    events: Events,
    automaton: AutomatonTables,
    program: LoadedProgram,
    ages: Integers,
    workspace: Workspace,
    latest: Integers,
    members: Integers,
) -> int:
    """As `runtime.matching.kernel.search.search`; `ages`: `chain_ages`."""
    links, lanes, dead_ends, path = workspace.links, workspace.lanes, workspace.dead_ends, workspace.path
    bindings, states = workspace.search_state.bindings, automaton.states
    matches, search_number, last = 0, 0, len(states) - 1
    for key in range(len(events.start) - 1):
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if fresh == end:
            continue
        count = link_events(events, automaton.linked_inputs, automaton.is_first, links, begin, fresh, end)
        first_search = search_number + 1
        for index in range(count):
            event = links.starts[index]
            now, search_number = events.time[event], search_number + 1
            # For conditions on the key alone, which any event of the key can answer.
            bindings[last + 1] = event
            # The first state takes the new event only. `oldest`: by depth, no older one is taken.
            depth, position, oldest = 0, event, event
            # Invariant: the states before `depth` have taken `path.event`, and all comparisons of
            # these events hold. For the state at `depth`, events newer than `position` have been
            # tried.
            while True:
                start = Start(position, event, begin, oldest, now - ages[depth])
                position = _next_position(events, automaton, program, links, lanes, bindings, depth, start)
                # 1. No event is left, so the state is a dead end. Back to the one before.
                if position < 0:
                    if depth == 0:
                        break
                    depth -= 1
                    position = path.event[depth]
                    if states[depth + 1].dead_end_row >= 0:
                        tried = first_position(events, position)
                        record_dead_end(automaton, dead_ends, bindings, depth + 1, tried, begin, search_number)
                    oldest = path.dead_until[depth]
                    position = next_older(links, states[depth].link_row, position, begin)
                # 2. All have taken an event. Newer ones came first, so no other match is better.
                elif depth == last:
                    latest[matches] = last_position(events, event)
                    for term in range(last + 1):
                        members[matches, term] = bindings[term]
                    matches += 1
                    break
                # 3. One deeper, unless it is known to be a dead end. There no event is taken with
                # which the state is known to fail.
                else:
                    failed = -1
                    if states[depth + 1].dead_end_row >= 0:
                        failed = failed_until(
                            automaton, dead_ends, bindings, depth + 1, begin, first_search, search_number
                        )
                    if position > failed:
                        path.event[depth], path.dead_until[depth] = position, oldest
                        depth, oldest = depth + 1, max(begin, failed)
                    position = next_older(links, states[depth].link_row, position, begin)
    return matches


@borrowing
def search_all_of_chain(
    events: Events,
    automaton: AutomatonTables,
    program: LoadedProgram,
    ages: Integers,
    most: int,
    workspace: Workspace,
    place: Integers,
    latest: Integers,
    members: Integers,
    errors: Integers,
) -> bool:
    """Fills in the matches of a `find all`, from `place` on; False = there is no room for more.

    most: so many, the most recent ones, are given for one event
    place: as of `runtime.matching.kernel.workspace.RunWorkspace`
    latest, members: by match, those of one event newest first
    errors: gets the events that have more
    """
    links, lanes, path = workspace.links, workspace.lanes, workspace.path
    bindings, states = workspace.search_state.bindings, automaton.states
    last = len(states) - 1
    while place[KEY] < len(events.start) - 1:
        key = place[KEY]
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if place[INDEX] == 0:
            place[COUNT] = 0
            if fresh < end:
                place[COUNT] = link_events(
                    events, automaton.linked_inputs, automaton.is_first, links, begin, fresh, end
                )
        while place[INDEX] < place[COUNT]:
            event, first = links.starts[place[INDEX]], place[MATCHES]
            now = events.time[event]
            bindings[last + 1] = event
            depth, position, oldest = 0, event, event
            # Invariant: as in `search_chain`; all candidates with what has been tried are written.
            while True:
                start = Start(position, event, begin, oldest, now - ages[depth])
                position = _next_position(events, automaton, program, links, lanes, bindings, depth, start)
                if position < 0:
                    if depth == 0:
                        break
                    depth -= 1
                    position, oldest = path.event[depth], path.dead_until[depth]
                elif depth == last:
                    # The most recent ones come first, so no more need be searched.
                    if place[MATCHES] - first == most:
                        errors[place[ERRORS]] = event
                        place[ERRORS] += 1
                        break
                    if place[MATCHES] == len(latest):
                        place[MATCHES] = first
                        return False
                    latest[place[MATCHES]] = event
                    for term in range(last + 1):
                        members[place[MATCHES], term] = bindings[term]
                    place[MATCHES] += 1
                else:
                    path.event[depth], path.dead_until[depth] = position, oldest
                    depth, oldest = depth + 1, begin
                position = next_older(links, states[depth].link_row, position, begin)
            place[INDEX] += 1
        place[KEY], place[INDEX] = key + 1, 0
    return True


@inlined
def _next_position(
    events: Events,
    automaton: AutomatonTables,
    program: LoadedProgram,
    links: Links,
    lanes: Lanes,
    bindings: Integers,
    state: int,
    start: Start,
) -> int:
    """Binds the newest event from `start` on for which the comparisons hold; -1 = there is none."""
    # State n has the transition n.
    row, is_found, rejected, position = automaton.states[state].link_row, False, 0, start.position
    while not is_found and position >= start.oldest_position and events.time[position] >= start.oldest_time:
        is_found = bind(automaton, program, state, position, bindings)
        if not is_found:
            position, rejected = next_older(links, row, position, start.begin), rejected + 1
        # Many events in a row were rejected: look ahead for one for which the first comparison
        # holds.
        if rejected == automaton.states[state].lookahead_after:
            rejected = 0
            sought = Sought(
                automaton.states[state].input,
                row,
                automaton.states[state].lookahead_program,
                automaton.states[state].lookahead_also,
                start.event,
                start.begin,
                start.oldest_position,
                start.oldest_time,
            )
            position = look_ahead(
                events.time, events.superseded, events.input, program, sought, position, bindings, lanes
            )
    return position if is_found else -1


# `find every` of one name: its aggregates follow the window, whatever its length.
#
# Each event enters the window once and leaves it once. Counts and sums take back what leaves,
# without a loss, as sums are exact. The least and the greatest value are the first ones of a queue.
# The candidates are the events of the window that fulfil the conditions: nothing is enumerated.


class Window(NamedTuple):
    """Of a query that can be computed so: see `runtime.matching.kernel.short_cuts`.

    input: whose events are the candidates
    within: µs; NEVER = no limit
    retain: how many events; NEVER = no limit
    checks: operands, all of which are true for a candidate
    """

    input: int
    within: int
    retain: int
    checks: Integers


class Queues(NamedTuple):
    """For each aggregate, candidates of the window that may decide its value, oldest first.

    For the least value these are candidates with a value that is less than, or equal to, all values
    after it: the first one is the least of the window. For `first` these are all candidates that
    have a value, for `last` there is only the newest.

    positions: by (aggregate, place), the candidate's position
    first, stop: the places that are in use
    """

    positions: Integers
    first: Integers
    stop: Integers


def new_queues(aggregates: int, longest_key: int) -> Queues:
    """Queues for keys of at most so many events."""
    first, stop = np.zeros(aggregates, np.int64), np.zeros(aggregates, np.int64)
    # One place more, which is looked at while a queue is empty.
    return Queues(np.zeros((aggregates, longest_key + 1), np.int64), first, stop)


@borrowing
def slide(
    events: Events,
    window: Window,
    program: LoadedProgram,
    aggregation: Aggregation,
    queues: Queues,
    latest: Integers,
) -> int:
    """Finds a match for each new event that is a candidate; returns how many.

    Fills `latest` and the results of `aggregation`.
    """
    matches = 0
    for key in range(len(events.start) - 1):
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if fresh == end:
            continue
        clear(aggregation.running)
        queues.first[:] = 0
        queues.stop[:] = 0
        # Invariant: the window begins at `oldest` and holds `size` events of the input, of which
        # `candidates` fulfil the conditions.
        oldest, size, candidates = begin, 0, 0
        for event in range(begin, end):
            if events.input[event] != window.input:
                continue
            is_one = _is_candidate(program, window.checks, event)
            size += 1
            candidates += is_one
            if is_one:
                _enter(program, aggregation, queues, event)
            # Times never decrease within a key, so a window's beginning only moves forward. An
            # event is always in its own window.
            oldest_time = events.time[event] - window.within + 1
            while oldest < event and (size > window.retain or events.time[oldest] < oldest_time):
                if events.input[oldest] == window.input:
                    size -= 1
                    if _is_candidate(program, window.checks, oldest):
                        candidates -= 1
                        _leave(program, aggregation, queues, oldest)
                oldest += 1
            if is_one and event >= fresh:
                latest[matches] = event
                _read_queues(program, aggregation, queues)
                finish_match(aggregation, candidates, matches)
                matches += 1
    return matches


@borrowing
def _is_candidate(program: LoadedProgram, checks: Integers, position: int) -> bool:
    """Whether all conditions are true for an event; without a value they are not."""
    for index in range(len(checks)):
        mask = program.integer_mask[checks[index]]
        if mask >= 0 and program.integer_state[mask, position] != KNOWN:
            return False
        if program.integer_columns[checks[index], position] == 0:
            return False
    return True


@borrowing
def _enter(program: LoadedProgram, aggregation: Aggregation, queues: Queues, event: int) -> None:
    """Adds a new candidate to all aggregates."""
    arguments = aggregation.arguments
    for index in range(len(arguments.function)):
        function, operand = arguments.function[index], arguments.operand[index]
        if not _has_value(program, operand, arguments.is_float[index], event):
            continue
        value = _value_of(program, operand, arguments.is_float[index], event)
        _count(aggregation, program, index, event, value, 1)
        # NaN is never least or greatest, so it is not in a queue.
        if function < Function.MIN or (function <= Function.MAX and np.isnan(value)):
            continue
        # What may decide the value once older candidates have left. Of equal values the oldest is
        # the least and the greatest, so it is not replaced.
        first, stop = queues.first[index], queues.stop[index]
        is_last = function == Function.LAST
        while stop > first and (is_last or _replaces(program, aggregation, queues, index, stop - 1, event)):
            stop -= 1
        queues.positions[index, stop] = event
        queues.stop[index] = stop + 1


@borrowing
def _leave(program: LoadedProgram, aggregation: Aggregation, queues: Queues, event: int) -> None:
    """Takes the oldest candidate back from all aggregates."""
    arguments = aggregation.arguments
    for index in range(len(arguments.function)):
        operand, is_float = arguments.operand[index], arguments.is_float[index]
        if _has_value(program, operand, is_float, event):
            _count(aggregation, program, index, event, _value_of(program, operand, is_float, event), -1)
        if queues.first[index] < queues.stop[index] and queues.positions[index, queues.first[index]] == event:
            queues.first[index] += 1


@borrowing
def _count(aggregation: Aggregation, program: LoadedProgram, index: int, event: int, value: float, times: int) -> None:
    """Adds a value to counts and sums, or removes it again: `times` is 1 or -1."""
    arguments, running = aggregation.arguments, aggregation.running
    function, is_float = arguments.function[index], arguments.is_float[index]
    running.size[index] += 0 if function == Function.COUNT_NUMBERS and np.isnan(value) else times
    if is_float and (function == Function.MEAN or function == Function.SUM):  # noqa: PLR1714
        add_to_sum(running.sums, index, value, times)
    elif function == Function.COUNT_UNIQUE:
        number = program.integer_columns[arguments.operand[index], event]
        running.integers[index] += see(running.seen, index, number, times)
    elif function == Function.MEAN:
        own = program.integer_columns[arguments.operand[index], event]
        running.integers[index] += times * (own >> 32)
        running.low[index] += times * (own & 0xFFFFFFFF)
    elif function == Function.SUM or function == Function.COUNT_TRUE:  # noqa: PLR1714
        running.integers[index] += times * program.integer_columns[arguments.operand[index], event]


@borrowing
def _replaces(
    program: LoadedProgram, aggregation: Aggregation, queues: Queues, index: int, place: int, event: int
) -> bool:
    """Whether a new candidate has a better least or greatest value than one in the queue."""
    operand, before = aggregation.arguments.operand[index], queues.positions[index, place]
    function = aggregation.arguments.function[index]
    if function == Function.FIRST:
        return False
    if aggregation.arguments.is_float[index]:
        x, y = program.float_columns[operand, event], program.float_columns[operand, before]
        return x < y if function == Function.MIN else x > y
    a, b = program.integer_columns[operand, event], program.integer_columns[operand, before]
    return a < b if function == Function.MIN else a > b


@borrowing
def _has_value(program: LoadedProgram, operand: int, is_float: bool, event: int) -> bool:
    """Whether an aggregate's argument has a value; one without an argument has none."""
    if operand < 0:
        return False
    if is_float:
        mask = program.float_mask[operand]
        return mask < 0 or program.float_state[mask, event] == KNOWN
    mask = program.integer_mask[operand]
    return mask < 0 or program.integer_state[mask, event] == KNOWN


@borrowing
def _value_of(program: LoadedProgram, operand: int, is_float: bool, event: int) -> float:
    """The value of an aggregate's argument as a float."""
    return program.float_columns[operand, event] if is_float else np.float64(program.integer_columns[operand, event])


@borrowing
def _read_queues(program: LoadedProgram, aggregation: Aggregation, queues: Queues) -> None:
    """Sets least, greatest, first and last values: those of the first in each queue."""
    arguments, running = aggregation.arguments, aggregation.running
    for index in range(len(arguments.function)):
        if arguments.function[index] < Function.MIN or running.size[index] == 0:
            continue
        operand, place = arguments.operand[index], queues.first[index]
        is_empty, event = place == queues.stop[index], queues.positions[index, place]
        if not arguments.is_float[index]:
            running.integers[index] = program.integer_columns[operand, event]
        # There are values, but all of them are NaN.
        elif is_empty:
            running.floats[index] = np.nan
        else:
            running.floats[index] = program.float_columns[operand, event]


# Which queries `find every` can compute without enumerating their candidates.
#
# See `runtime.matching.kernel.short_cuts`.


def sliding_window(
    query: QueryPlan, programs: Sequence[int], program: KernelProgram, arguments: Arguments
) -> Window | str:
    """What the aggregates follow; or why the candidates must be enumerated.

    programs: by condition, its program; -1 = none
    """
    if len(query.terms) != 1:
        return "the pattern has several names"
    (term,) = query.terms
    item = query.inputs[term.input]
    if item.unique:
        return "the window is `with unique`"
    if any(not isinstance(condition, Where) and not is_whole(condition) for condition in query.conditions):
        return "a `within` or `without` has a range"
    checks = [operand_of(program, number) for number in programs if number >= 0]
    operands = [own for own, number in zip(arguments.operand, arguments.program, strict=True) if number >= 0]
    if None in checks or -1 in operands:
        return "an expression mentions no field"
    return Window(
        term.input,
        NEVER if item.within is None else known(item.within),
        NEVER if item.retain is None else known(item.retain),
        np.array([check[0] for check in checks if check is not None], np.int64),
    )
