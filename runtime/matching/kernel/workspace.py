"""The arrays that a search works in: links, the path, dead ends, bindings and windows.

All of them are made once per call of the matcher and reused for every key and every new event.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.matching.kernel.evaluator import LoadedProgram
from runtime.matching.kernel.lookahead import Lanes, new_lanes
from runtime.matching.kernel.tables import AutomatonTables, ConditionTables, RunTables
from runtime.matching.windows import WindowColumns

MOST_DIRECT = 1 << 26
"""The most entries by one event; if more are needed, no dead ends are recorded."""


MOST_HASHED = 1 << 16
"""The most entries by several events, a power of two."""


class DeadEnds(NamedTuple):
    """Recorded failures, one entry each.

    The first `rows * width` entries are by (row, event): of dead ends that depend on one event at
    most. All others are found by a hash of the row and several events.

    search: the number of the search that recorded it, -1 = none
    event: the state failed when entered with this position, and fails with every older one
    bound: by (hashed entry, place), the events that it depends on, and last the row
    rows, width: see above
    """

    search: Integers
    event: Integers
    bound: Integers
    rows: int
    width: int


def new_dead_ends(automaton: AutomatonTables, longest_key: int) -> DeadEnds:
    """Room for the dead ends of keys of at most so many events."""
    states = automaton.states
    terms = (states["stop_dead_end_term"] - states["first_dead_end_term"])[states["dead_end_row"] >= 0]
    rows, most_terms = int((terms <= 1).sum()), int(terms.max(initial=0))
    # Of several events there are as many choices as pairs, or more.
    hashed = min(MOST_HASHED, 1 << (2 * longest_key.bit_length())) if most_terms > 1 else 0
    size = rows * (longest_key + 1) + hashed
    if size > MOST_DIRECT + MOST_HASHED:
        size = hashed = 0
    search, bound = np.full(size, -1, np.int64), np.empty((hashed, most_terms + 1), np.int64)
    return DeadEnds(search, np.empty(size, np.int64), bound, rows, longest_key + 1)


class Events(NamedTuple):
    """Ordered events by position; fields as in `runtime.matching.interface.Ordered`, and counts.

    counts: by (count row, p), how many events before position p the row counts, over all keys
    first_of: by position, the first position of its event, which may serve several inputs. Empty if
        each event has one position
    number: by position, the event's running number in its key. Empty if nothing asks for it
    """

    start: Integers
    fresh: Integers
    input: NDArray[np.int16]
    time: Integers
    superseded: Integers
    counts: NDArray[np.int32]
    may_end: NDArray[np.bool_]
    first_of: Integers
    number: Integers


@inlined
def first_position(events: Events, position: int) -> int:
    """The first position of the event that is at `position`."""
    return events.first_of[position] if len(events.first_of) > 0 else position


@inlined
def last_position(events: Events, position: int) -> int:
    """The last position of the event that is at `position`."""
    while position + 1 < len(events.first_of) and events.first_of[position + 1] == events.first_of[position]:
        position += 1
    return position


class Start(NamedTuple):
    """Where a search begins, and how far back it may look.

    position: of the first event to try
    event, begin: the new event's last position, and the first one of its key
    oldest_position, oldest_time: no older event may be taken: no window holds it
    """

    position: int
    event: int
    begin: int
    oldest_position: int
    oldest_time: int


class Reach(NamedTuple):
    """What conditions may look at.

    Numbers only, like all tuples that are made in an innermost loop: one with arrays costs as much
    as a step of the search.

    event, begin: positions of the latest event, and of the key's first one
    leading: µs, the length of the leading wait; NEVER = it has no place yet, or there is none
    """

    event: int
    begin: int
    leading: int


class RunReach(NamedTuple):
    """The same in patterns with additions, with the length of a leading wait in any case.

    deepest: the depth of the candidate's oldest event
    is_last: no more will be bound: a leading wait has a place only then
    """

    event: int
    begin: int
    leading: int
    deepest: int
    is_last: bool


class Query(NamedTuple):
    """A query as the kernels read it.

    Kernels take it apart first: to pass a tuple within a tuple costs as much as a step of the
    search.

    followed: `runtime.matching.kernel.tables.followed_windows`
    within: µs, of the whole pattern; NEVER = no limit
    leading: µs, the length of the leading wait; NEVER = none
    is_ambiguous: some transitions can tie
    """

    automaton: AutomatonTables
    conditions: ConditionTables
    program: LoadedProgram
    windows: WindowColumns
    followed: NDArray[np.bool_]
    within: int
    leading: int
    is_ambiguous: bool


class Limits(NamedTuple):
    """What a search in a pattern with additions ends at; the first three as in `Query`.

    most_bound: so many events may count in one search
    most_matches: of a `find all`, so many are given for one event; 0 = the most recent one is;
        EVERY = all candidates in the windows are
    """

    within: int
    leading: int
    is_ambiguous: bool
    most_bound: int
    most_matches: int


class Skip(NamedTuple):
    """Where the next match may begin.

    term: it is moved to its event, -1 = past the latest event
    to_last: the term's last event counts, not the first one
    """

    term: int
    to_last: bool


class Links(NamedTuple):
    """Of the key at hand.

    previous_of_input: by (linked input, position p within the key), the newest event of the input
        before the event at p; -1: none
    starts: the new events that may be the latest of a match
    """

    previous_of_input: NDArray[np.int32]
    starts: Integers


class Path(NamedTuple):
    """The path of the search, one entry per depth.

    state: the state at this depth
    event: the position of the event taken there
    next_transition: the transition after the one that took it
    has_candidate: 1 if a candidate was found below this depth, else 0
    tied_until: end of the transitions that tie with the one of the best candidate: only these are
        still to be explored; -1 = no candidate yet, all are
    dead_until: a dead end was known when the state was entered: events older than this position
        need not be tried; -1 = none. In a chain, the oldest event that may be taken
    """

    state: Integers
    event: Integers
    next_transition: Integers
    has_candidate: Integers
    tied_until: Integers
    dead_until: Integers


class SearchState(NamedTuple):
    """What is bound, and where the windows are.

    bindings: by term, see `runtime.matching.kernel.conditions`
    oldest_position: by input, where its window begins by `retain`, and by `within` too if the
        window is followed
    oldest_time: by input, µs, the oldest time that its window holds
    size: by input, how many events a followed window holds
    """

    bindings: Integers
    oldest_position: Integers
    oldest_time: Integers
    size: Integers


class Workspace(NamedTuple):
    """All that a search works in; `ours` and `theirs` are for comparing two candidates."""

    links: Links
    path: Path
    dead_ends: DeadEnds
    search_state: SearchState
    lanes: Lanes
    ours: Integers
    theirs: Integers


def new_workspace(start: Integers, automaton: AutomatonTables, terms: int, inputs: int) -> Workspace:
    """Room to search keys that begin at the positions `start`, with so many terms and inputs."""
    # Keys are searched one after the other, so the longest one decides what is needed.
    longest_key = int(np.diff(start).max(initial=1))
    count = len(automaton.linked_inputs)
    links = Links(np.empty((count, longest_key), np.int32), np.empty(longest_key, np.int64))
    state, event, next_transition, has_candidate = (np.zeros(terms + 1, np.int64) for _ in range(4))
    tied_until, dead_until = (np.full(terms + 1, -1, np.int64) for _ in range(2))
    path = Path(state, event, next_transition, has_candidate, tied_until, dead_until)
    oldest_position, oldest_time, in_window = (np.zeros(inputs, np.int64) for _ in range(3))
    search_state = SearchState(np.full(terms + 1, -1, np.int64), oldest_position, oldest_time, in_window)
    lanes = new_lanes(count, longest_key)
    ours, theirs = np.zeros(terms, np.int64), np.zeros(terms, np.int64)
    return Workspace(links, path, new_dead_ends(automaton, longest_key), search_state, lanes, ours, theirs)


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


# The arrays that a search works in.
#
# They are made once per call of the matcher. Those that may become full begin small: a search that
# finds one full stops, and continues in a larger one.


class Frames(NamedTuple):
    """The path of the search, one entry per depth; the event bound at depth d is the d-th newest.

    state, next_transition: the state that took it, and the transition after the one that did
    best: the best completion found so far, -1 = none
    """

    state: Integers
    next_transition: Integers
    best: Integers


class Bound(NamedTuple):
    """What is bound.

    counts: by term, how many events
    runs: by (term, place), the depth of its events, newest first
    numbers: the same shape: the number of the run so far (`runtime.matching.kernel.memory`)
    at: by slot, the position of an event
    path: by depth, the position of the event that is bound there
    """

    counts: Integers
    runs: NDArray[np.int32]
    numbers: NDArray[np.int32]
    at: Integers
    path: Integers


class Round(NamedTuple):
    """The search at hand.

    begin: the position of the key's first event
    first_search, number: the numbers of the key's first search, and of this one
    """

    begin: int
    first_search: int
    number: int


class Failures(NamedTuple):
    """Results of states that depend on one place at most.

    fail_search, fail_until: by fail row, the number of the last search that failed there, and with
        which event bound last; it fails with every older one too
    direct_search: by entry, the number of the last search that failed there
    found_search, found: by entry, the number of the last search that found a completion, and that
    width: the entries of a direct row
    """

    fail_search: Integers
    fail_until: Integers
    direct_search: Integers
    found_search: Integers
    found: Integers
    width: int


class Memory(NamedTuple):
    """Results by several events, and completions.

    keys: by (entry, place); the last two are the number of the search that stored the value, and
        the size of the key
    value: by entry
    following: by entry, the next one of the same bucket; -1 = none
    buckets: the first entry; -1 = none
    used: how many entries, buckets and completions are in use
    parts: by part of a key, a `PartKind` and a term, as in `RunTables`
    event, transition, rest: by completion, its newest event, what took it, and the rest of it
    """

    keys: Integers
    value: Integers
    following: Integers
    buckets: Integers
    used: Integers
    parts: Integers
    event: Integers
    transition: Integers
    rest: Integers


class Matches(NamedTuple):
    """What was found.

    latest: by match, the position of its latest event
    first: by match, where its events begin in the other two; one more entry for the end
    event, transition: the events of all matches, newest first, each with what took it
    errors: the events whose search was ended, or gave too much; errors are negative numbers then
    """

    latest: Integers
    first: Integers
    event: Integers
    transition: Integers
    errors: Integers


class RunWorkspace(NamedTuple):
    """All of it; `place`: where the search is, by KEY and the entries behind it."""

    links: Links
    search_state: SearchState
    frames: Frames
    bound: Bound
    failures: Failures
    place: Integers


KEY, INDEX, COUNT, PREVIOUS, FIRST_SEARCH, SEARCH, MATCHES, ERRORS = range(8)
"""Entries of `RunWorkspace.place`: where the search continues.

The key; how many of its new events are done; how many starts it has; the last event that is in the
windows; the numbers of the key's first search and of the last one; how many matches and errors.
"""

LEAST_ROOM, FIRST_BUCKETS = 1024, 64


def new_run_workspace(start: Integers, tables: RunTables, slots: int, inputs: int) -> RunWorkspace:
    """Room to search keys that begin at the positions `start`."""
    longest = int(np.diff(start).max(initial=1))
    terms, linked = len(tables.terms), len(tables.linked_inputs)
    links = Links(np.empty((linked, longest), np.int32), np.empty(longest, np.int64))
    oldest_position, oldest_time, size = (np.zeros(inputs, np.int64) for _ in range(3))
    search_state = SearchState(np.zeros(1, np.int64), oldest_position, oldest_time, size)
    frames = Frames(*(np.empty(longest + 2, np.int64) for _ in range(3)))
    runs, numbers = (np.empty((terms, longest + 1), np.int32) for _ in range(2))
    path = np.empty(longest + 2, np.int64)
    bound = Bound(np.zeros(terms, np.int64), runs, numbers, np.zeros(slots, np.int64), path)
    fail_rows, direct_rows = (1 + int(tables.states[name].max(initial=-1)) for name in ("fail_row", "direct_row"))
    width = longest + 1
    size_of_direct = max(1, direct_rows * width)
    fail_search, fail_until = (np.zeros(max(1, fail_rows), np.int64) for _ in range(2))
    direct_search, found_search, found = (np.zeros(size_of_direct, np.int64) for _ in range(3))
    failures = Failures(fail_search, fail_until, direct_search, found_search, found, width)
    return RunWorkspace(links, search_state, frames, bound, failures, np.zeros(8, np.int64))


def new_memory(room: int, tables: RunTables) -> Memory:
    """Room for so many entries, with keys of as many parts as a state has at most."""
    states = tables.states
    parts = max(1, int((states["stop_part"] - states["first_part"]).max(initial=0)))
    keys, buckets = np.empty((room, parts + 4), np.int64), np.full(max(room, FIRST_BUCKETS), -1, np.int64)
    value, following, event, transition, rest = (np.empty(room, np.int64) for _ in range(5))
    return Memory(keys, value, following, buckets, np.zeros(3, np.int64), tables.parts, event, transition, rest)


def new_matches(most: int, room: int, errors: int) -> Matches:
    """Room for so many matches, with so many events together, and for so many errors."""
    latest, first = np.empty(most, np.int64), np.zeros(most + 1, np.int64)
    event, transition = (np.empty(room, np.int64) for _ in range(2))
    return Matches(latest, first, event, transition, np.empty(errors, np.int64))
