"""The compiled search: for each new event, backwards in time, the first candidate that all conditions let through.

Takes events, automaton and conditions as tables of numbers; fills arrays. Depth first, newer events first: what is found first
is the winner by the *recent* policy, except where one event may serve different names, equally many: there all of those
ways are gone and their results compared. A `find every` goes all ways there are, from each event of the windows.

Read it from `search`, which goes through keys and new events, by way of `_go`, which takes step after step, to what a
step is, in `runtime.matching.kernel.steps`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import borrowing, inlined
from runtime.matching.kernel.aggregates import Gathering, finish, take
from runtime.matching.kernel.conditions import Events, Query
from runtime.matching.kernel.lookahead import look_ahead
from runtime.matching.kernel.steps import (
    Memory,
    advance,
    is_hopeless,
    is_more_recent,
    learn,
    link,
    older,
    passes,
    release,
    scope_of,
    slide,
)

Integers = NDArray[np.int64]


@borrowing
def search(
    events: Events,
    query: Query,
    memory: Memory,
    is_ambiguous: bool,
    gathering: Gathering,
    latest: Integers,
    members: Integers,
) -> int:
    """Fills `latest` and `members`, or what is gathered, with at most one match a new event; gives how many there are."""
    chain, moment, windows = memory.chain, memory.moment, query.windows
    found, number = 0, 0
    for key in range(len(events.start) - 1):
        begin, fresh, end = events.start[key], events.fresh[key], events.start[key + 1]
        if fresh == end:
            continue
        count, previous = link(events, query.automaton, chain, begin, fresh, end), begin - 1
        moment.oldest[:] = begin
        moment.inside[:] = 0
        for index in range(count):
            event = chain.starts[index]
            slide(events, windows, query.followed, previous, event, moment)
            previous, floor, least = event, event, events.time[event] - 1
            for item in range(len(moment.edge)):
                if windows.remembered[item]:
                    floor, least = min(floor, moment.oldest[item]), min(least, moment.edge[item])
            candidates, number = _go(
                events, query, memory, is_ambiguous, gathering, members, found, event, begin, floor, least, number
            )
            if candidates > 0:
                latest[found] = event
                if gathering.is_every:
                    finish(gathering, candidates, found)
                found += 1
    return found


@inlined
def _go(
    events: Events,
    query: Query,
    memory: Memory,
    is_ambiguous: bool,
    gathering: Gathering,
    members: Integers,
    found: int,
    event: int,
    begin: int,
    floor: int,
    least: int,
    number: int,
) -> tuple[int, int]:
    """Goes the ways to candidates for one new event; gives how many there were, and the number of the last search.

    Nothing before the position `floor` and nothing at the time `least` or before is in any window. Of one search is what
    has the same newest event: that is the new one, but for a `find every`.
    """
    automaton, program = query.automaton, query.program
    chain, path, lessons, moment = memory.chain, memory.path, memory.lessons, memory.moment
    bound, states, transitions = moment.bound, automaton.states, automaton.transitions
    is_every, terms = gathering.is_every, len(bound) - 1
    bound[terms] = event
    scope = scope_of(automaton, moment, 0, floor + states[0].need - 1 if is_every else event, least)
    start, horizon, newest, candidates = scope, least, -1, 0
    depth, state, position, transition, misses = 0, 0, event, 0, 0
    path.won[0] = 0
    path.only[0] = -1
    while True:
        only = path.only[depth]
        taken, position, transition, misses = advance(
            events, automaton, program, chain, scope, only, position, transition, misses, event, begin, moment
        )
        if misses == scope.patience and only < 0:
            if transition > scope.first:
                position = older(chain, scope.link, position, begin)
            misses, transition = 0, scope.first
            position = look_ahead(
                events.time,
                events.superseded,
                events.input,
                scope.input,
                scope.link,
                program,
                states[state].ahead,
                position,
                event,
                begin,
                scope.lowest,
                scope.horizon,
                bound,
                memory.block,
            )
            continue
        if not taken:
            if depth == 0:
                break
            depth -= 1
            if path.won[depth + 1] == 0:
                learn(automaton, lessons, bound, state, path.at[depth], begin, number)
            state, position, transition, misses = path.state[depth], path.at[depth], path.choice[depth], 0
            release(automaton, transition - 1, bound)
            scope = start
            if depth > 0:
                scope = scope_of(automaton, moment, state, floor + states[state].need - 1, horizon)
            continue
        if depth == 0 and position != newest:
            if candidates == 0 and position < event:
                release(automaton, transition - 1, bound)
                break
            newest, number, horizon = position, number + 1, max(least, events.time[position] - query.within)
        terms_of_ranges, leading = query.conditions.terms, query.leading
        if not passes(
            events,
            automaton,
            terms_of_ranges,
            program,
            transition - 1,
            event,
            begin,
            leading,
            moment,
            memory.stacks,
        ):
            misses += 1
            continue
        path.at[depth] = position
        path.choice[depth] = transition
        target = transitions[transition - 1].target
        if target < 0:
            candidates += 1
            if is_every:
                take(program, gathering, is_ambiguous, candidates == 1, bound, memory)
            elif candidates == 1 or is_more_recent(bound, members[found], terms, memory.ours, memory.theirs):
                for term in range(terms):
                    members[found, term] = bound[term]
            release(automaton, transition - 1, bound)
            if not is_every and not is_ambiguous:
                break
            for above in range(depth + 1):
                path.won[above] = 1
                if not is_every:
                    path.only[above] = transitions[path.choice[above] - 1].equals
        elif is_hopeless(automaton, lessons, bound, target, position, begin, number):
            release(automaton, transition - 1, bound)
        else:
            path.state[depth] = state
            depth, state, misses = depth + 1, target, 0
            scope = scope_of(automaton, moment, state, floor + states[state].need - 1, horizon)
            position, transition = older(chain, scope.link, position, begin), scope.first
            path.won[depth] = 0
            path.only[depth] = -1
    while depth > 0:
        depth -= 1
        release(automaton, path.choice[depth] - 1, bound)
    return candidates, number
