"""The compiled search: for each new event the candidate that wins by the *recent* policy.

The search is depth first and tries newer events first, so the first candidate that fulfils all
conditions wins. The only exception are ties: where one event may serve different names, equally
many, all tied transitions are explored and the best match is kept. `find every` enumerates all
candidates.

`search` iterates over keys and new events, `search_from` over the steps of one search; a step is in
`runtime.matching.kernel.search`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.aggregates import Aggregation, add_candidate, finish_match
from runtime.matching.kernel.conditions import within_holds, without_holds
from runtime.matching.kernel.evaluator import LoadedProgram, comparison_holds, holds
from runtime.matching.kernel.lookahead import Sought, look_ahead
from runtime.matching.kernel.memory import failed_until, record_dead_end
from runtime.matching.kernel.tables import AutomatonTables, ConditionKind
from runtime.matching.kernel.workspace import (
    Events,
    Links,
    Query,
    Reach,
    Round,
    SearchState,
    Start,
    Workspace,
    first_position,
    is_more_recent,
    last_position,
)
from runtime.matching.windows import WindowColumns

# One step of the search: the next event, and the transition that may take it.
#
# Whether a condition holds is decided in `runtime.matching.kernel.conditions`; the order of the
# steps is that of `runtime.matching.kernel.search`.


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
        if len(events.first_of) == 0:
            for position in range(begin, end):
                links.previous_of_input[row, position - begin] = newest
                newest = position if events.input[position] == item else newest
        else:
            # What an event is to its other inputs is not before it.
            before = -1
            for position in range(begin, end):
                before = newest if events.first_of[position] == position else before
                links.previous_of_input[row, position - begin] = before
                newest = position if events.input[position] == item else newest
    count = 0
    # Written for every event, and overwritten by the next one unless this one counts: without a
    # branch.
    has_may_end = len(events.may_end) > 0
    for position in range(fresh, end):
        links.starts[count] = position
        count += is_first[events.input[position]] & (not has_may_end or events.may_end[position])
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
    reach: Reach,
    search_state: SearchState,
) -> bool:
    """Whether all other conditions hold that a transition decides; unbinds its terms if not."""
    checks, bindings = automaton.checks, search_state.bindings
    result, check = True, automaton.transitions[transition].first_other_check
    while result and check < automaton.transitions[transition].stop_check:
        kind = checks[check].kind
        if kind == ConditionKind.WHERE:
            result = holds(program, checks[check].program, bindings)
        elif kind == ConditionKind.WITHIN:
            result = within_holds(events, checks, terms, check, reach.leading, bindings)
        # A `without`. A negative target is the end of the search: only then the leading wait has a
        # place.
        else:
            length = reach.leading if automaton.transitions[transition].target < 0 else NEVER
            own = Reach(reach.event, reach.begin, length)
            result = without_holds(events, checks, terms, program, check, own, search_state)
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


class Cursor(NamedTuple):
    """How far a state has been explored.

    position, transition: the next to try
    rejected: how many events in a row have been rejected
    tied_until: as in `Path`
    """

    position: int
    transition: int
    rejected: int
    tied_until: int


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
    cursor: Cursor,
    reach: Reach,
    search_state: SearchState,
) -> tuple[bool, int, int, int]:
    """Binds the next event that a transition may take, from a cursor on.

    Returns whether there is one; its position; the next transition; how many events in a row have
    been rejected. Gives up after `scope.lookahead_after`.
    """
    position, transition, rejected = cursor.position, cursor.transition, cursor.rejected
    has_superseded, is_bound = len(events.superseded) > 0, False
    stop = scope.stop if cursor.tied_until < 0 else cursor.tied_until
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
            is_current = is_current and events.superseded[position] > reach.event
        # The first transition that may take it; earlier transitions are preferred.
        if is_current:
            while transition < stop and not is_bound:
                if automaton.transitions[transition].input == item:
                    is_bound = bind(automaton, program, transition, position, search_state.bindings)
                transition += 1
        # Once a candidate is known only transitions on this event can tie with it: an older event
        # makes it worse.
        if is_bound or cursor.tied_until >= 0:
            break
        transition = scope.first
        position = next_older(links, scope.link_row, position, reach.begin)
        rejected += 1
    return is_bound, position, transition, rejected


@borrowing
def search(
    events: Events,
    query: Query,
    workspace: Workspace,
    aggregation: Aggregation,
    latest: Integers,
    members: Integers,
    free: Integers,
    skip_term: int,
) -> int:
    """Finds at most one match per new event; returns how many.

    Fills `latest` and `members`, or the results of `aggregation`.

    free: by key, the first position that may be bound; it is moved on after each match. Empty if
        all may
    skip_term: the term to whose event it moves, -1 = it moves past the latest event
    """
    links, search_state, windows = workspace.links, workspace.search_state, query.windows
    matches, search_number = 0, 0
    for key in range(len(events.start) - 1):
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if fresh == end:
            continue
        # Per key: link its events, and begin with empty windows before its first event.
        linked_inputs, is_first = query.automaton.linked_inputs, query.automaton.is_first
        count, previous = link_events(events, linked_inputs, is_first, links, begin, fresh, end), begin - 1
        search_state.oldest_position[:] = begin
        search_state.size[:] = 0
        first_search = search_number + 1
        # Invariant: the windows are as after `previous`. A new event that the first state does not
        # take ends no match; it is added to the windows together with the next one that may.
        for index in range(count):
            start = links.starts[index]
            event = last_position(events, start)
            move_windows(events, windows, query.followed, previous, event, search_state)
            # No window holds anything older than these two, so no step of the search need look
            # there. An input that is used as the latest event only does not count: no step after
            # the first looks for it.
            previous, oldest_position, oldest_time = event, event, events.time[event]
            for item in range(len(search_state.oldest_time)):
                if windows.is_used_later[item]:
                    oldest_position = min(oldest_position, search_state.oldest_position[item])
                    oldest_time = min(oldest_time, search_state.oldest_time[item])
            # No candidate binds what a match before has passed over. Dead ends last: the choices
            # only become fewer.
            if len(free) > 0:
                oldest_position = max(oldest_position, free[key])
            new = Start(start, event, begin, oldest_position, oldest_time)
            before = Round(begin, first_search, search_number)
            candidates, search_number = search_from(
                events, query, workspace, aggregation, members, matches, new, before
            )
            if candidates > 0:
                latest[matches] = event
                if aggregation.is_every:
                    finish_match(aggregation, candidates, matches)
                if len(free) > 0:
                    free[key] = event + 1
                    if skip_term >= 0:
                        free[key] = first_position(events, members[matches, skip_term])
                matches += 1
    return matches


@inlined
def search_from(
    events: Events,
    query: Query,
    workspace: Workspace,
    aggregation: Aggregation,
    members: Integers,
    match: int,
    new: Start,
    before: Round,
) -> tuple[int, int]:
    """Searches the candidates of one new event; returns their number and that of the last search.

    match: the row of `members` for the best candidate
    before: the search before. What has the same newest event is one search. That is the new event,
        except in `find every`, which makes one search per event.
    """
    start, event, begin, oldest_position, oldest_time = new
    search_number, is_ambiguous = before.number, query.is_ambiguous
    automaton, program = query.automaton, query.program
    links, path, dead_ends, search_state = (
        workspace.links,
        workspace.path,
        workspace.dead_ends,
        workspace.search_state,
    )
    bindings, states, transitions = search_state.bindings, automaton.states, automaton.transitions
    is_every, terms = aggregation.is_every, len(bindings) - 1
    # For conditions on the key alone, which any event of the key can answer.
    bindings[terms] = event
    # `events_needed - 1` more events must follow, one position each: with fewer positions left a
    # state cannot succeed.
    first = oldest_position + states[0].events_needed - 1 if is_every else start
    first_scope = scope_of(automaton, search_state, 0, first, oldest_time)
    reach = Reach(event, begin, query.leading)
    # `oldest_in_match`: the pattern's `within`, counted from the candidate's newest event, may end
    # before the windows do.
    scope, oldest_in_match, newest, candidates = first_scope, oldest_time, -1, 0
    depth, state, position, transition, rejected = 0, 0, start, 0, 0
    path.has_candidate[0] = 0
    path.tied_until[0] = -1
    # Invariant: the entries of `path` before `depth` are bound and fulfil all conditions that they
    # decide. `state` is next; what comes before `position` and `transition` in the order of
    # preference has been explored.
    while True:
        # 1. The next event and transition whose comparisons hold.
        tied_until = path.tied_until[depth]
        cursor = Cursor(position, transition, rejected, tied_until)
        is_bound, position, transition, rejected = next_step(
            events, automaton, program, links, scope, cursor, reach, search_state
        )
        # 2. Many events in a row were rejected: look ahead for one for which a condition of the
        # state's only transition holds. The events in between do not fulfil it, so the transition
        # would be refused for each of them. With a tie to explore no other event is wanted, so
        # there is nothing to look for.
        if rejected == scope.lookahead_after and tied_until < 0:
            if transition > scope.first:  # the last event rejected is at `position`, by a later check
                position = next_older(links, scope.link_row, position, begin)
            rejected, transition = 0, scope.first
            sought = Sought(
                scope.input,
                scope.link_row,
                states[state].lookahead_program,
                states[state].lookahead_also,
                event,
                begin,
                scope.oldest_position,
                scope.oldest_time,
            )
            position = look_ahead(
                events.time, events.superseded, events.input, program, sought, position, bindings, workspace.lanes
            )
            continue
        # 3. The state is exhausted: go back to the one before, to the transition after the one
        # taken there. If nothing was found below, the state is a dead end. The terms are unbound
        # after that: it may depend on one of them.
        if not is_bound:
            if depth == 0:
                break
            depth -= 1
            if path.has_candidate[depth + 1] == 0 and states[state].dead_end_row >= 0:
                tried = first_position(events, path.event[depth])
                record_dead_end(automaton, dead_ends, bindings, state, tried, begin, search_number)
            state, position, transition = path.state[depth], path.event[depth], path.next_transition[depth]
            rejected = 0
            unbind(automaton, transition - 1, bindings)
            scope = first_scope
            if depth > 0:
                oldest = max(oldest_position + states[state].events_needed - 1, path.dead_until[depth])
                scope = scope_of(automaton, search_state, state, oldest, oldest_in_match)
            continue
        # 4. Another newest event, so another search. A `find every` reports the new event only if
        # it is part of a candidate, and then it is the newest of that: if it has no candidate,
        # older ones need not be enumerated.
        if depth == 0 and position != newest:
            if candidates == 0 and position < start:
                unbind(automaton, transition - 1, bindings)
                break
            newest, search_number = position, search_number + 1
            oldest_in_match = max(oldest_time, events.time[position] - query.within + 1)
        # 5. The conditions that are not comparisons.
        ranges = query.conditions.terms
        if not other_checks_hold(events, automaton, ranges, program, transition - 1, reach, search_state):
            rejected += 1
            continue
        path.event[depth] = position
        path.next_transition[depth] = transition
        target = transitions[transition - 1].target
        # 6. A negative target: all terms are bound, this is a candidate.
        if target < 0:
            candidates += 1
            if is_every:
                add_candidate(
                    program,
                    aggregation,
                    is_ambiguous,
                    candidates == 1,
                    bindings,
                    workspace.ours,
                    workspace.theirs,
                )
            elif candidates == 1 or is_more_recent(bindings, members[match], terms, workspace.ours, workspace.theirs):
                for term in range(terms):
                    members[match, term] = bindings[term]
            unbind(automaton, transition - 1, bindings)
            # Newer events and transitions for more names came first: without ties nothing better
            # can follow.
            if not is_every and not is_ambiguous:
                break
            # The tie rule. At each depth, what follows is worse if it takes an older event, or the
            # same event for fewer names: positions are compared newest first, one per name. What
            # takes it for equally many names is better or worse by what follows only, so exactly
            # these transitions are left to be explored.
            for above in range(depth + 1):
                path.has_candidate[above] = 1
                if not is_every:
                    path.tied_until[above] = transitions[path.next_transition[above] - 1].tied_until
            continue
        # 7. A dead end: what is older than `failed` was explored under the same circumstances, and
        # nothing was found.
        failed = -1
        if states[target].dead_end_row >= 0:
            failed = failed_until(automaton, dead_ends, bindings, target, begin, before.first_search, search_number)
        if position <= failed:
            unbind(automaton, transition - 1, bindings)
        # 8. One deeper: the target looks for events older than this one.
        else:
            path.state[depth] = state
            depth, state, rejected = depth + 1, target, 0
            oldest = max(oldest_position + states[state].events_needed - 1, failed)
            scope = scope_of(automaton, search_state, state, oldest, oldest_in_match)
            position = next_older(links, scope.link_row, first_position(events, position), begin)
            transition = scope.first
            path.has_candidate[depth] = 0
            path.tied_until[depth] = -1
            path.dead_until[depth] = failed
    # The next search begins with nothing bound.
    while depth > 0:
        depth -= 1
        unbind(automaton, path.next_transition[depth] - 1, bindings)
    return candidates, search_number
