"""The search for the candidate that wins by the *recent* policy, in patterns with additions.

It is the search of `runtime.matching.reference`: depth first, newer events first, more events
before the end of the candidate. Where one event may serve different names, equally many, all tied
transitions are explored, and the best completion is kept and stored. In all other queries the first
candidate wins. A `find all` continues after each candidate; a `find every` continues with older
events as the newest one of a candidate, if the new event is in any.

The search stops where an array is full. It continues with the same event in a larger one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.matching.kernel.conditions import all_hold, checks_hold
from runtime.matching.kernel.evaluator import LoadedProgram
from runtime.matching.kernel.memory import (
    END,
    NOTHING,
    UNKNOWN,
    forget,
    is_completion_more_recent,
    new_completion,
    number_of_run,
    result_of,
    run_failed_until,
    store_result,
)
from runtime.matching.kernel.search import link_events, move_windows, next_older
from runtime.matching.kernel.tables import Falling, RunTables
from runtime.matching.kernel.workspace import (
    COUNT,
    ERRORS,
    FIRST_SEARCH,
    INDEX,
    KEY,
    MATCHES,
    PREVIOUS,
    SEARCH,
    Bound,
    Events,
    Limits,
    Matches,
    Memory,
    Round,
    RunReach,
    RunWorkspace,
    Skip,
    Start,
    first_position,
    last_position,
)
from runtime.matching.windows import WindowColumns

DONE, NO_ROOM_FOR_MATCHES, NO_ROOM_IN_MEMORY = range(3)
"""How `search` ends."""

EVERY = -1
"""In place of a number of matches: a `find every`."""

FOUND, NONE, ENDED, FULL_MATCHES, FULL_MEMORY = range(5)
"""How the search of one event ends."""


@borrowing
def search_runs(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    windows: WindowColumns,
    followed: NDArray[np.bool_],
    limits: Limits,
    workspace: RunWorkspace,
    memory: Memory,
    matches: Matches,
    free: Integers,
    skip: Skip,
) -> int:
    """Fills `matches` from `workspace.place` on; returns how it ends.

    followed: `runtime.matching.kernel.tables.followed_windows`
    free: as in `runtime.matching.kernel.search`
    """
    place, search_state, links = workspace.place, workspace.search_state, workspace.links
    while place[KEY] < len(events.start) - 1:
        key = place[KEY]
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if place[INDEX] == 0:
            place[COUNT] = link_events(events, tables.linked_inputs, tables.is_first, links, begin, fresh, end)
            place[PREVIOUS], place[FIRST_SEARCH] = begin - 1, place[SEARCH] + 1
            search_state.oldest_position[:] = begin
            search_state.size[:] = 0
        # Invariant: the windows are as after the event at `place[PREVIOUS]`.
        while place[INDEX] < place[COUNT]:
            start = links.starts[place[INDEX]]
            event = last_position(events, start)
            move_windows(events, windows, followed, place[PREVIOUS], event, search_state)
            oldest_position, oldest_time = start, events.time[event]
            for item in range(len(search_state.oldest_time)):
                if windows.is_used_later[item]:
                    oldest_position = min(oldest_position, search_state.oldest_position[item])
                    oldest_time = min(oldest_time, search_state.oldest_time[item])
            if len(free) > 0:
                oldest_position = max(oldest_position, free[key])
            place[PREVIOUS] = event
            place[SEARCH] += 1
            first_match = place[MATCHES]
            ending = NONE
            # A later event than the latest one may have been skipped to.
            if start >= oldest_position:
                new = Start(start, event, begin, oldest_position, oldest_time)
                ending = search_from(events, tables, program, limits, workspace, memory, matches, new)
            if ending >= FULL_MATCHES:
                place[MATCHES] = first_match
                return NO_ROOM_FOR_MATCHES if ending == FULL_MATCHES else NO_ROOM_IN_MEMORY
            if ending == ENDED:
                matches.errors[place[ERRORS]] = -1 - event
                place[ERRORS] += 1
                place[MATCHES] = first_match
            elif place[MATCHES] > first_match and len(free) > 0:
                # Of a `find all` the most recent match comes first here.
                free[key] = _free_after(events, tables, matches, first_match, event, skip)
            place[INDEX] += 1
        place[KEY], place[INDEX] = key + 1, 0
    return DONE


@borrowing
def _free_after(
    events: Events,
    tables: RunTables,
    matches: Matches,
    match: int,
    event: int,
    skip: Skip,
) -> int:
    """The first position that a later match may bind."""
    result = event + 1
    if skip.term >= 0:
        is_known = False
        for index in range(matches.first[match], matches.first[match + 1]):
            taken = matches.transition[index]
            for bind in range(tables.transitions[taken].first_bind, tables.transitions[taken].stop_bind):
                if tables.binds[bind] == skip.term and not (is_known and skip.to_last):
                    result, is_known = first_position(events, matches.event[index]), True
    return result


@inlined
def search_from(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    limits: Limits,
    workspace: RunWorkspace,
    memory: Memory,
    matches: Matches,
    new: Start,
) -> int:
    """Searches the candidates of one new event; returns how it ends."""
    most_matches = limits.most_matches
    start, event, begin, oldest_position, oldest_time = new
    states, transitions = tables.states, tables.transitions
    frames, bound, failures, place = workspace.frames, workspace.bound, workspace.failures, workspace.place
    windows = workspace.search_state
    window_position, window_time = windows.oldest_position, windows.oldest_time
    links, path, at = workspace.links, workspace.bound.path, Round(begin, place[FIRST_SEARCH], place[SEARCH])
    has_superseded, finds_all, is_every = len(events.superseded) > 0, most_matches != 0, most_matches == EVERY
    forget(memory, tables.keeps_memory, at.first_search, at.number)
    bound.counts[:] = 0
    # For conditions on the key alone, which any event of the key can answer.
    bound.at[len(bound.at) - 1] = event
    depth, state, position, transition, best, binds_made, given = 0, 0, start, 0, NOTHING, 0, 0
    item, link_row, stop = states[0].input, -1, states[0].stop_transition
    oldest, limit = start, events.time[event]
    # The pattern's `within`, counted from the candidate's newest event.
    oldest_in_match = max(oldest_time, events.time[event] - limits.within + 1)
    ending = NONE
    # Invariant: the events of `path` before `depth` are bound and fulfil all conditions that they
    # decide. `state` is next; what comes before `position` and `transition` in the order of
    # preference has been explored; the best of it is `best`.
    while True:
        # 1. The next event and transition whose checks hold.
        is_bound = False
        while position >= oldest and events.time[position] >= limit:
            own, is_current = item, True
            if item < 0:
                own = events.input[position]
                is_current = position >= window_position[own] and events.time[position] >= window_time[own]
            if has_superseded:
                is_current = is_current and events.superseded[position] > event
            if is_current:
                while transition < stop and not is_bound:
                    if transitions[transition].input == own:
                        # The first state has no such transition, so there is an event bound last.
                        is_bound = transitions[transition].follows == 0 or (
                            events.number[position] == events.number[path[depth - 1]] - 1
                        )
                        if is_bound:
                            path[depth] = position
                            if not _bind(tables, memory, bound, transition, position, depth):
                                ending = FULL_MEMORY
                                break
                            first_check, stop_check = (
                                transitions[transition].first_check,
                                transitions[transition].stop_check,
                            )
                            if first_check < stop_check:
                                is_last = transitions[transition].target < 0
                                reach = RunReach(event, begin, limits.leading, depth, is_last)
                                is_bound = checks_hold(
                                    events, tables, program, bound, first_check, stop_check, reach, windows
                                )
                                if not is_bound:
                                    _unbind(tables, bound, transition)
                    transition += 1
            # With a completion only transitions on this event can tie with it.
            if is_bound or best >= 0 or ending == FULL_MEMORY:
                break
            transition = states[state].first_transition
            position = next_older(links, link_row, position, begin)
        if ending == FULL_MEMORY:
            return ending
        result = UNKNOWN
        if is_bound:
            binds_made += states[state].is_counted
            if binds_made > limits.most_bound:
                return ENDED
            target, failed = transitions[transition - 1].target, -1
            frames.state[depth], frames.next_transition[depth], frames.best[depth] = state, transition, best
            if is_every and depth == 0:
                oldest_in_match = max(oldest_time, events.time[position] - limits.within + 1)
            # 2. What the target finds, if that is known.
            if target < 0:
                result = END
            elif not finds_all:
                failed = run_failed_until(states, failures, memory, bound, target, at)
                if position <= failed:
                    result = NOTHING
                else:
                    last = first_position(events, position)
                    result = result_of(states, failures, memory, bound, target, last, at)
            # 3. Else one deeper: the target looks for events older than this one.
            if result == UNKNOWN:
                depth, state, best = depth + 1, target, NOTHING
                item, link_row = states[state].input, states[state].link_row
                transition, stop = states[state].first_transition, states[state].stop_transition
                oldest, limit = oldest_position, oldest_in_match
                if item >= 0:
                    oldest, limit = max(oldest, window_position[item]), max(limit, window_time[item])
                oldest = max(oldest, failed)
                position = first_position(events, position)
                if states[state].is_next_only == 1:
                    oldest = max(oldest, first_position(events, position - 1))
                position = next_older(links, link_row, position, begin)
                continue
        else:
            # 4. The state is exhausted: its result is its best completion, or the end of the
            # candidate if it may end here.
            result = best
            if result == NOTHING and states[state].is_end == 1 and depth > 0:
                first_check, stop_check = states[state].first_check, states[state].stop_check
                whole = RunReach(event, begin, limits.leading, depth - 1, True)
                if first_check == stop_check or all_hold(
                    events, tables, program, bound, first_check, stop_check, whole, windows
                ):
                    result = END
            if depth == 0:
                break
            if not finds_all and not store_result(
                states, failures, memory, bound, state, first_position(events, path[depth - 1]), at, result
            ):
                return FULL_MEMORY
            depth -= 1
            state, position, transition, best = (
                frames.state[depth],
                path[depth],
                frames.next_transition[depth],
                frames.best[depth],
            )
        # 5. Here `transition - 1` has bound the event at `position`, at `depth`; `result` is what
        # completes it. The first candidate wins, unless there are ties or all are wanted.
        if result >= 0 and not limits.is_ambiguous:
            if result == END and not _add_match(
                frames.next_transition, path, depth, event, given, most_matches, matches, place
            ):
                return FULL_MATCHES
            given += result == END
            if not finds_all:
                return FOUND
            ending = FOUND
            # The most recent ones come first, so no more need be searched.
            if given > most_matches and not is_every:
                break
        elif result >= 0:
            completion = new_completion(memory, position, transition - 1, result)
            if completion < 0:
                return FULL_MEMORY
            if best < 0 or is_completion_more_recent(
                transitions, tables.binds, memory, len(bound.counts), completion, best
            ):
                best = completion
        _unbind(tables, bound, transition - 1)
        # 6. On with this state.
        item, link_row = states[state].input, states[state].link_row
        stop = states[state].stop_transition
        if depth == 0 and not (is_every and given > 0):
            oldest, limit = start, events.time[event]
        else:
            oldest, limit = oldest_position, oldest_in_match if depth > 0 else oldest_time
            if item >= 0:
                oldest, limit = max(oldest, window_position[item]), max(limit, window_time[item])
            if states[state].is_next_only == 1 and depth > 0:
                before = first_position(events, path[depth - 1]) - 1
                oldest = max(oldest, first_position(events, before))
            # This event has failed in the same state: what is older fails for the same reason. Only
            # other transitions on this event are left.
            if not finds_all and transitions[transition - 1].target == state:
                if states[state].is_falling == Falling.LOOP:
                    if result == NOTHING:
                        oldest = max(oldest, position)
                else:
                    failed = run_failed_until(states, failures, memory, bound, state, at)
                    oldest = max(oldest, min(failed, position))
        if best >= 0:
            stop = transitions[transition - 1].tied_until
    if best >= 0:
        return FOUND if _add_completion(events, memory, best, matches, place) else FULL_MATCHES
    if finds_all and given > most_matches and not is_every:
        matches.errors[place[ERRORS]] = event
        place[ERRORS] += 1
    return ending


@inlined
def _bind(tables: RunTables, memory: Memory, bound: Bound, transition: int, position: int, depth: int) -> bool:
    """Binds the transition's terms to the event at `position`; whether there was room."""
    has_room = True
    for index in range(tables.transitions[transition].first_bind, tables.transitions[transition].stop_bind):
        term = tables.binds[index]
        count = bound.counts[term]
        bound.runs[term, count] = depth
        bound.at[term] = position
        bound.counts[term] = count + 1
        if tables.terms[term].is_numbered == 1:
            before = int(bound.numbers[term, count - 1]) if count > 0 else -1
            own = number_of_run(memory, term, before, position)
            bound.numbers[term, count] = own
            has_room = has_room and own >= 0
    return has_room


@inlined
def _unbind(tables: RunTables, bound: Bound, transition: int) -> None:
    """Unbinds the transition's terms."""
    for index in range(tables.transitions[transition].first_bind, tables.transitions[transition].stop_bind):
        bound.counts[tables.binds[index]] -= 1


@borrowing
def _add_match(
    next_transition: Integers,
    path: Integers,
    deepest: int,
    event: int,
    given: int,
    most: int,
    matches: Matches,
    place: Integers,
) -> bool:
    """Adds the candidate of the path, unless `most` are given; whether there was room.

    event: the new event, which of a `find every` need not be in the candidate
    """
    if most > 0 and given >= most:
        return True
    match = place[MATCHES]
    first = matches.first[match]
    end = first + deepest + 1
    if match >= len(matches.latest) or end > len(matches.event):
        return False
    for depth in range(deepest + 1):
        matches.event[first + depth] = path[depth]
        matches.transition[first + depth] = next_transition[depth] - 1
    matches.latest[match], matches.first[match + 1] = event, end
    place[MATCHES] = match + 1
    return True


@borrowing
def _add_completion(events: Events, memory: Memory, completion: int, matches: Matches, place: Integers) -> bool:
    """Adds the candidate that a completion is; whether there was room."""
    match = place[MATCHES]
    at = matches.first[match]
    if match >= len(matches.latest):
        return False
    matches.latest[match] = last_position(events, memory.event[completion])
    while completion != END:
        if at >= len(matches.event):
            return False
        matches.event[at], matches.transition[at] = memory.event[completion], memory.transition[completion]
        at += 1
        completion = memory.rest[completion]
    matches.first[match + 1] = at
    place[MATCHES] = match + 1
    return True
