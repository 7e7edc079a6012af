"""A step of the search: which events may come next, what taking one binds and checks, what a failure teaches.

Takes the tables of a query and where the search stands, as arrays that change. Whether a condition holds is said in
`runtime.matching.kernel.conditions`, the order of steps in `runtime.matching.kernel.search`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.conditions import Events, is_free, is_shorter
from runtime.matching.kernel.evaluator import Conditions, Stacks, compares, holds, new_stacks
from runtime.matching.kernel.lookahead import Block, new_block
from runtime.matching.kernel.tables import AutomatonTables
from runtime.matching.windows import WindowColumns

Integers = NDArray[np.int64]

MEMORY = 1 << 26
"""The largest memory of failed searches, in entries of eight bytes."""


class Chain(NamedTuple):
    """Of the key at hand: `before[row, p]`, the position of the newest event before position p (within the key) of an input
    that is linked, -1: there is none; and `starts`, the new events that may be the latest of a match."""

    before: NDArray[np.int32]
    starts: Integers


class Path(NamedTuple):
    """The path of the search, an entry a depth: the state there, the event taken and the transition behind the one that took it,
    whether a candidate was found from there, and (`only`) where the ways end that are left to be gone then, -1: all of them."""

    state: Integers
    at: Integers
    choice: Integers
    won: Integers
    only: Integers


class Lessons(NamedTuple):
    """What failures have taught, by memory row and by position within the key, plus one, of the event on which the failure depends
    (0: on none): the number of the search for which it is true, and the position from which on it fails."""

    number: Integers
    entry: Integers


class Moment(NamedTuple):
    """Where the search stands. `bound`: by term, see `runtime.matching.kernel.conditions`; by input: `oldest`, the position where its window
    begins by `retain`, or at all if the window is followed; `edge`, the time that its events must be after; `inside`, how many events
    a followed window holds."""

    bound: Integers
    oldest: Integers
    edge: Integers
    inside: Integers


class Memory(NamedTuple):
    """What a search works in; `ours` and `theirs` are for the comparison of two candidates."""

    chain: Chain
    path: Path
    lessons: Lessons
    moment: Moment
    stacks: Stacks
    block: Block
    ours: Integers
    theirs: Integers


def new_memory(start: Integers, automaton: AutomatonTables, terms: int, inputs: int) -> Memory:
    """Working memory for keys that begin at `start`.

    Failures are not remembered where that would take more than MEMORY entries.
    """
    widest = int(np.diff(start).max(initial=1))
    rows = int(automaton.states["memory"].max(initial=-1)) + 1
    size = rows if rows * (widest + 1) <= MEMORY else 0
    chain = Chain(np.empty((len(automaton.links), widest), np.int32), np.empty(widest, np.int64))
    state, at, choice, won = (np.zeros(terms + 1, np.int64) for _ in range(4))
    path = Path(state, at, choice, won, np.full(terms + 1, -1, np.int64))
    lessons = Lessons(np.full((size, widest + 1), -1, np.int64), np.empty((size, widest + 1), np.int64))
    oldest, edge, inside = (np.zeros(inputs, np.int64) for _ in range(3))
    moment = Moment(np.full(terms + 1, -1, np.int64), oldest, edge, inside)
    block = new_block(len(automaton.links), widest)
    ours, theirs = np.zeros(terms, np.int64), np.zeros(terms, np.int64)
    return Memory(chain, path, lessons, moment, new_stacks(), block, ours, theirs)


@inlined
def link(events: Events, automaton: AutomatonTables, chain: Chain, begin: int, fresh: int, end: int) -> int:
    """Links the events of a key, and lists those that may be the latest of a match; gives how many there are of them."""
    for row in range(len(automaton.links)):
        item, newest = automaton.links[row], -1
        for position in range(begin, end):
            chain.before[row, position - begin] = newest
            newest = position if events.input[position] == item else newest
    count = 0
    for position in range(fresh, end):
        chain.starts[count] = position
        count += automaton.is_first[events.input[position]]
    return count


@inlined
def slide(
    events: Events, windows: WindowColumns, followed: NDArray[np.bool_], previous: int, event: int, moment: Moment
) -> None:
    """Moves the windows on from `previous`, the last event that has been added, until `event` is added."""
    now = events.time[event]
    for item in range(len(moment.edge)):
        moment.edge[item] = now - windows.within[item]
    if len(followed) > 0:
        for position in range(previous + 1, event + 1):
            moment.inside[events.input[position]] += 1
        for item in range(len(followed)):
            if followed[item]:
                low = moment.oldest[item]
                while low < event and events.time[low] <= moment.edge[item]:
                    moment.inside[item] -= events.input[low] == item
                    low += 1
                while moment.inside[item] > windows.retain[item]:
                    moment.inside[item] -= events.input[low] == item
                    low += 1
                moment.oldest[item] = low


@inlined
def takes(automaton: AutomatonTables, program: Conditions, transition: int, position: int, bound: Integers) -> bool:
    """Binds the event at `position` to the transition's names if all comparisons that this decides are true; whether they are."""
    checks = automaton.checks
    bound[automaton.transitions[transition].term] = position
    for index in range(automaton.transitions[transition].first_bind, automaton.transitions[transition].stop_bind):
        bound[automaton.binds[index]] = position
    good, check = True, automaton.transitions[transition].first_check
    while good and check < automaton.transitions[transition].first_slow:
        here, there = bound[checks[check].left_term], bound[checks[check].right_term]
        good = compares(program, checks[check].operation, checks[check].left, here, checks[check].right, there)
        check += 1
    if not good:
        release(automaton, transition, bound)
    return good


@inlined
def passes(
    events: Events,
    automaton: AutomatonTables,
    terms: Integers,
    program: Conditions,
    transition: int,
    event: int,
    begin: int,
    leading: int,
    moment: Moment,
    stacks: Stacks,
) -> bool:
    """Whether all other conditions hold that taking the event by the transition decides; if not the event is not bound any more."""
    bound, checks = moment.bound, automaton.checks
    good, check = True, automaton.transitions[transition].first_slow
    while good and check < automaton.transitions[transition].stop_check:
        kind = checks[check].kind
        if kind == 0:
            good = holds(program, checks[check].program, bound, stacks)
        elif kind == 1:
            good = is_shorter(events, checks, terms, check, leading, bound)
        else:
            length = leading if automaton.transitions[transition].target < 0 else NEVER
            good = is_free(events, checks, terms, program, check, event, begin, length, moment.oldest, bound, stacks)
        check += 1
    if not good:
        release(automaton, transition, bound)
    return good


@inlined
def release(automaton: AutomatonTables, transition: int, bound: Integers) -> None:
    """Takes the transition's names off what they are bound to."""
    bound[automaton.transitions[transition].term] = -1
    for index in range(automaton.transitions[transition].first_bind, automaton.transitions[transition].stop_bind):
        bound[automaton.binds[index]] = -1


class Scope(NamedTuple):
    """Where the state at hand looks: from which transition to before which, at events of which input (-1: several), by which links
    (-1: none), from position `lowest` on and after `horizon`. After `patience` events
    that it may not take it looks ahead."""

    first: int
    stop: int
    input: int
    link: int
    lowest: int
    horizon: int
    patience: int


@inlined
def scope_of(automaton: AutomatonTables, moment: Moment, state: int, lowest: int, horizon: int) -> Scope:
    """The scope of a state that has been entered; it looks at nothing before position `lowest`, at nothing at the time `horizon`
    or before."""
    item = automaton.states[state].input
    if item >= 0:
        lowest, horizon = max(lowest, moment.oldest[item]), max(horizon, moment.edge[item])
    first, stop = automaton.states[state].first, automaton.states[state].stop
    return Scope(first, stop, item, automaton.states[state].link, lowest, horizon, automaton.states[state].patience)


@inlined
def older(chain: Chain, row: int, position: int, begin: int) -> int:
    """The event before that may come next."""
    return chain.before[row, position - begin] if row >= 0 else position - 1


@inlined
def advance(
    events: Events,
    automaton: AutomatonTables,
    program: Conditions,
    chain: Chain,
    scope: Scope,
    only: int,
    position: int,
    transition: int,
    misses: int,
    event: int,
    begin: int,
    moment: Moment,
) -> tuple[bool, int, int, int]:
    """Takes the next event by the next transition that may, from this event and transition on: whether there is one, and both.

    `only`: just this event is left, and transitions to before this one; -1: all. Gives up after `scope.patience` events that it
    may not take, `misses` those before included; how many there were comes last.
    """
    has_places, taken = len(events.superseded) > 0, False
    stop = scope.stop if only < 0 else only
    while misses < scope.patience and position >= scope.lowest and events.time[position] > scope.horizon:
        kind, is_current = scope.input, True
        if kind < 0:
            kind = events.input[position]
            is_current = position >= moment.oldest[kind] and events.time[position] > moment.edge[kind]
        if has_places:
            is_current = is_current and events.superseded[position] > event
        if is_current:
            while transition < stop and not taken:
                if automaton.transitions[transition].input == kind:
                    taken = takes(automaton, program, transition, position, moment.bound)
                transition += 1
        if taken or only >= 0:
            break
        transition = scope.first
        position = older(chain, scope.link, position, begin)
        misses += 1
    return taken, position, transition, misses


@inlined
def learn(
    automaton: AutomatonTables, lessons: Lessons, bound: Integers, state: int, entry: int, begin: int, number: int
) -> None:
    """Remembers that the state failed when it was entered at `entry`. `number`: of the search."""
    row, term = automaton.states[state].memory, automaton.states[state].asks
    if row >= 0 and len(lessons.number) > 0:
        place = 0
        if term >= 0 and bound[term] >= 0:
            place = bound[term] - begin + 1
        lessons.number[row, place] = number
        lessons.entry[row, place] = entry


@inlined
def is_hopeless(
    automaton: AutomatonTables,
    lessons: Lessons,
    bound: Integers,
    state: int,
    position: int,
    begin: int,
    number: int,
) -> bool:
    """Whether the state is known to fail when it is entered at `position`."""
    row, term, hopeless = automaton.states[state].memory, automaton.states[state].asks, False
    if row >= 0 and len(lessons.number) > 0:
        place = 0
        if term >= 0 and bound[term] >= 0:
            place = bound[term] - begin + 1
        hopeless = lessons.number[row, place] == number and position <= lessons.entry[row, place]
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
def is_more_recent(bound: Integers, best: Integers, terms: int, ours: Integers, theirs: Integers) -> bool:
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
