"""One step of the search: the next event, and the transition that may take it.

Whether a condition holds is decided in `runtime.matching.kernel.conditions`; the order of the steps
is that of `runtime.matching.kernel.search`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.conditions import Events, within_holds, without_holds
from runtime.matching.kernel.evaluator import LoadedProgram, Stacks, comparison_holds, holds
from runtime.matching.kernel.tables import AutomatonTables, ConditionKind
from runtime.matching.kernel.workspace import Links, SearchState
from runtime.matching.windows import WindowColumns
from runtime.number_arrays import Integers


@inlined
def link_events(
    events: Events,
    linked_inputs: Integers,
    is_first: NDArray[np.bool_],
    links: Links,
    begin: int,
    fresh: int,
    end: int,
) -> int:
    """Fills the links of a key and its `starts`; returns how many starts there are.

    linked_inputs, is_first: as in `runtime.matching.kernel.tables.AutomatonTables`
    """
    # One pass per input, oldest event first: `newest` is the last event of the input before the
    # position.
    for row in range(len(linked_inputs)):
        item, newest = linked_inputs[row], -1
        for position in range(begin, end):
            links.previous_of_input[row, position - begin] = newest
            newest = position if events.input[position] == item else newest
    count = 0
    # Written for every event, and overwritten by the next one unless this one counts: without a
    # branch.
    for position in range(fresh, end):
        links.starts[count] = position
        count += is_first[events.input[position]]
    return count


@inlined
def move_windows(
    events: Events,
    windows: WindowColumns,
    followed: NDArray[np.bool_],
    previous: int,
    event: int,
    search_state: SearchState,
) -> None:
    """Moves the windows on from the event `previous` to the event `event`."""
    now = events.time[event]
    for item in range(len(search_state.oldest_time)):
        search_state.oldest_time[item] = now - windows.within[item] + 1
    if len(followed) > 0:
        for position in range(previous + 1, event + 1):
            search_state.size[events.input[position]] += 1
        # Times never decrease within a key, so a window's beginning only moves forward: each event
        # enters and leaves a window once. Invariant: `size` is the number of the input's events
        # from `position` to `event`.
        for item in range(len(followed)):
            if followed[item]:
                position = search_state.oldest_position[item]
                while position < event and events.time[position] < search_state.oldest_time[item]:
                    search_state.size[item] -= events.input[position] == item
                    position += 1
                while search_state.size[item] > windows.retain[item]:
                    search_state.size[item] -= events.input[position] == item
                    position += 1
                search_state.oldest_position[item] = position


@inlined
def bind(
    automaton: AutomatonTables, program: LoadedProgram, transition: int, position: int, bindings: Integers
) -> bool:
    """Binds the transition's terms to the event at `position` if its comparisons hold.

    Returns whether they do. Comparisons of two operands need no stack, so they come before
    all other checks.
    """
    checks = automaton.checks
    bindings[automaton.transitions[transition].term] = position
    for index in range(automaton.transitions[transition].first_bind, automaton.transitions[transition].stop_bind):
        bindings[automaton.binds[index]] = position
    # All terms of a comparison are bound by now: it is checked on the transition that binds the
    # last of them.
    result, check = True, automaton.transitions[transition].first_check
    while result and check < automaton.transitions[transition].first_other_check:
        here, there = bindings[checks[check].left_term], bindings[checks[check].right_term]
        result = comparison_holds(
            program, checks[check].operation, checks[check].left, here, checks[check].right, there
        )
        check += 1
    if not result:
        unbind(automaton, transition, bindings)
    return result


@inlined
def other_checks_hold(
    events: Events,
    automaton: AutomatonTables,
    terms: Integers,
    program: LoadedProgram,
    transition: int,
    event: int,
    begin: int,
    leading: int,
    search_state: SearchState,
    stacks: Stacks,
) -> bool:
    """Whether all other conditions hold that a transition decides; unbinds its terms if not."""
    bindings, checks = search_state.bindings, automaton.checks
    result, check = True, automaton.transitions[transition].first_other_check
    while result and check < automaton.transitions[transition].stop_check:
        kind = checks[check].kind
        if kind == ConditionKind.WHERE:
            result = holds(program, checks[check].program, bindings, stacks)
        elif kind == ConditionKind.WITHIN:
            result = within_holds(events, checks, terms, check, leading, bindings)
        # A `without`. A negative target is the end of the search: only then the leading wait has a
        # place.
        else:
            length = leading if automaton.transitions[transition].target < 0 else NEVER
            result = without_holds(
                events,
                checks,
                terms,
                program,
                check,
                event,
                begin,
                length,
                search_state.oldest_position,
                bindings,
                stacks,
            )
        check += 1
    if not result:
        unbind(automaton, transition, bindings)
    return result


@inlined
def unbind(automaton: AutomatonTables, transition: int, bindings: Integers) -> None:
    """Unbinds the transition's terms."""
    bindings[automaton.transitions[transition].term] = -1
    for index in range(automaton.transitions[transition].first_bind, automaton.transitions[transition].stop_bind):
        bindings[automaton.binds[index]] = -1


class Scope(NamedTuple):
    """Where the state at hand looks for an event.

    first, stop: its transitions
    input: the only input that it takes, -1 = several
    link_row: the row of links by which to go from event to event; -1 = through all events of the
        key
    oldest_position, oldest_time: the oldest event that it may take
    lookahead_after: after how many rejected events in a row it looks ahead; NEVER = it does not
    """

    first: int
    stop: int
    input: int
    link_row: int
    oldest_position: int
    oldest_time: int
    lookahead_after: int


@inlined
def scope_of(
    automaton: AutomatonTables, search_state: SearchState, state: int, oldest_position: int, oldest_time: int
) -> Scope:
    """The scope of a state that may take no event before `oldest_position` or `oldest_time`."""
    item = automaton.states[state].input
    if item >= 0:
        oldest_position = max(oldest_position, search_state.oldest_position[item])
        oldest_time = max(oldest_time, search_state.oldest_time[item])
    return Scope(
        automaton.states[state].first_transition,
        automaton.states[state].stop_transition,
        item,
        automaton.states[state].link_row,
        oldest_position,
        oldest_time,
        automaton.states[state].lookahead_after,
    )


@inlined
def next_older(links: Links, link_row: int, position: int, begin: int) -> int:
    """The position of the next older event that may be taken.

    With links, events of other inputs are skipped. A state with a link takes one input only, so
    none of the skipped events has a transition.
    """
    return links.previous_of_input[link_row, position - begin] if link_row >= 0 else position - 1


@inlined
def next_step(
    events: Events,
    automaton: AutomatonTables,
    program: LoadedProgram,
    links: Links,
    scope: Scope,
    tied_until: int,
    position: int,
    transition: int,
    rejected: int,
    event: int,
    begin: int,
    search_state: SearchState,
) -> tuple[bool, int, int, int]:
    """Binds the next event that a transition may take, from `position` and `transition` on.

    Returns whether there is one; its position; the next transition; how many events in a row have
    been rejected, `rejected` of them before. Gives up after `scope.lookahead_after`. `tied_until`:
    as in `Path`.
    """
    has_superseded, is_bound = len(events.superseded) > 0, False
    stop = scope.stop if tied_until < 0 else tied_until
    # Invariant: no event of the scope newer than `position` has a transition left to try, and
    # `position` has none before `transition`. Times never decrease with positions, so the first
    # event that is too old ends the scope.
    while (
        rejected < scope.lookahead_after
        and position >= scope.oldest_position
        and events.time[position] >= scope.oldest_time
    ):
        # Is the event in its input's window? The scope of a state with one input has its window's
        # bounds already.
        item, is_current = scope.input, True
        if item < 0:
            item = events.input[position]
            is_current = (
                position >= search_state.oldest_position[item]
                and events.time[position] >= search_state.oldest_time[item]
            )
        if has_superseded:
            is_current = is_current and events.superseded[position] > event
        # The first transition that may take it; earlier transitions are preferred.
        if is_current:
            while transition < stop and not is_bound:
                if automaton.transitions[transition].input == item:
                    is_bound = bind(automaton, program, transition, position, search_state.bindings)
                transition += 1
        # Once a candidate is known only transitions on this event can tie with it: an older event
        # makes it worse.
        if is_bound or tied_until >= 0:
            break
        transition = scope.first
        position = next_older(links, scope.link_row, position, begin)
        rejected += 1
    return is_bound, position, transition, rejected


@inlined
def _sort(positions: Integers, terms: int, into: Integers) -> None:
    """Writes the first `terms` positions, newest first."""
    # Insertion sort: there are few terms, and they are almost sorted already.
    for term in range(terms):
        position, index = positions[term], term
        while index > 0 and into[index - 1] < position:
            into[index] = into[index - 1]
            index -= 1
        into[index] = position


@borrowing
def is_more_recent(bindings: Integers, best: Integers, terms: int, ours: Integers, theirs: Integers) -> bool:
    """Whether `bindings` wins over `best` by the *recent* policy.

    Compared are the positions, newest first, one per name; if these are the same, the names, the
    last one first.
    """
    _sort(bindings, terms, ours)
    _sort(best, terms, theirs)
    for index in range(terms):
        if ours[index] != theirs[index]:
            return ours[index] > theirs[index]
    for term in range(terms - 1, -1, -1):
        if bindings[term] != best[term]:
            return bindings[term] > best[term]
    return False
