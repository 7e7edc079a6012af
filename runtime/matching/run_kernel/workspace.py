"""The arrays that a search works in.

They are made once per call of the matcher. Those that may become full begin small: a search that
finds one full stops, and continues in a larger one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.matching.kernel.evaluator import Stacks, new_stacks
from runtime.matching.kernel.workspace import Links, SearchState
from runtime.matching.run_kernel.tables import Tables
from runtime.number_arrays import Integers


class Frames(NamedTuple):
    """The path of the search, one entry per depth; the event bound at depth d is the d-th newest.

    position: the event bound there
    state, next_transition: the state that took it, and the transition after the one that did
    best: the best completion found so far, -1 = none
    """

    position: Integers
    state: Integers
    next_transition: Integers
    best: Integers


class Bound(NamedTuple):
    """What is bound.

    counts: by term, how many events
    runs: by (term, place), the depth of its events, newest first
    numbers: the same shape: the number of the run so far (`runtime.matching.run_kernel.memory`)
    at: by slot, the position of an event
    """

    counts: Integers
    runs: NDArray[np.int32]
    numbers: NDArray[np.int32]
    at: Integers


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
    """Results by several events, and completions, of the search at work.

    keys: by (entry, place)
    value: by entry
    following: by entry, the next one of the same bucket; -1 = none
    buckets: the first entry; -1 = none
    used: how many entries, buckets and completions are in use
    event, transition, rest: by completion, its newest event, what took it, and the rest of it
    """

    keys: Integers
    value: Integers
    following: Integers
    buckets: Integers
    used: Integers
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


class Workspace(NamedTuple):
    """All of it, and where the search is: see `Place`."""

    links: Links
    search_state: SearchState
    frames: Frames
    bound: Bound
    failures: Failures
    stacks: Stacks
    place: Integers


KEY, INDEX, COUNT, PREVIOUS, FIRST_SEARCH, SEARCH, MATCHES, ERRORS = range(8)
"""Entries of `Workspace.place`: where the search continues.

The key; how many of its new events are done; how many starts it has; the last event that is in the
windows; the numbers of the key's first search and of the last one; how many matches and errors.
"""

LEAST_ROOM, FIRST_BUCKETS = 1024, 64


def new_workspace(start: Integers, tables: Tables, slots: int, inputs: int) -> Workspace:
    """Room to search keys that begin at the positions `start`."""
    longest = int(np.diff(start).max(initial=1))
    terms, linked = len(tables.terms), len(tables.linked_inputs)
    links = Links(np.empty((linked, longest), np.int32), np.empty(longest, np.int64))
    oldest_position, oldest_time, size = (np.zeros(inputs, np.int64) for _ in range(3))
    search_state = SearchState(np.zeros(1, np.int64), oldest_position, oldest_time, size)
    frames = Frames(*(np.empty(longest + 2, np.int64) for _ in range(4)))
    runs, numbers = (np.empty((terms, longest + 1), np.int32) for _ in range(2))
    bound = Bound(np.zeros(terms, np.int64), runs, numbers, np.zeros(slots, np.int64))
    fail_rows, direct_rows = (1 + int(tables.states[name].max(initial=-1)) for name in ("fail_row", "direct_row"))
    width = longest + 1
    size_of_direct = max(1, direct_rows * width)
    fail_search, fail_until = (np.zeros(max(1, fail_rows), np.int64) for _ in range(2))
    direct_search, found_search, found = (np.zeros(size_of_direct, np.int64) for _ in range(3))
    failures = Failures(fail_search, fail_until, direct_search, found_search, found, width)
    return Workspace(links, search_state, frames, bound, failures, new_stacks(), np.zeros(8, np.int64))


def new_memory(room: int, parts: int) -> Memory:
    """Room for so many entries, with keys of so many parts."""
    keys, buckets = np.empty((room, parts + 3), np.int64), np.full(max(room, FIRST_BUCKETS), -1, np.int64)
    value, following, event, transition, rest = (np.empty(room, np.int64) for _ in range(5))
    return Memory(keys, value, following, buckets, np.zeros(3, np.int64), event, transition, rest)


def new_matches(most: int, room: int, errors: int) -> Matches:
    """Room for so many matches, with so many events together, and for so many errors."""
    latest, first = np.empty(most, np.int64), np.zeros(most + 1, np.int64)
    event, transition = (np.empty(room, np.int64) for _ in range(2))
    return Matches(latest, first, event, transition, np.empty(errors, np.int64))
