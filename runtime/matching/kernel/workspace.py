"""The arrays that a search works in: links, the path, dead ends, bindings and windows.

All of them are made once per call of the matcher and reused for every key and every new event.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.matching.kernel.dead_ends import DeadEnds, new_dead_ends
from runtime.matching.kernel.evaluator import Stacks, new_stacks
from runtime.matching.kernel.lookahead import Lanes, new_lanes
from runtime.matching.kernel.tables import AutomatonTables
from runtime.number_arrays import Integers


class Links(NamedTuple):
    """Of the key at hand.

    previous_of_input: by (linked input, position p within the key), the newest event of the input
        before p; -1: none
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
    failed_until: a dead end was known when the state was entered: events older than this position
        need not be tried; -1 = none. In a chain, the oldest event that may be taken
    """

    state: Integers
    event: Integers
    next_transition: Integers
    has_candidate: Integers
    tied_until: Integers
    failed_until: Integers


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
    stacks: Stacks
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
    tied_until, failed_until = (np.full(terms + 1, -1, np.int64) for _ in range(2))
    path = Path(state, event, next_transition, has_candidate, tied_until, failed_until)
    oldest_position, oldest_time, in_window = (np.zeros(inputs, np.int64) for _ in range(3))
    search_state = SearchState(np.full(terms + 1, -1, np.int64), oldest_position, oldest_time, in_window)
    lanes = new_lanes(count, longest_key)
    ours, theirs = np.zeros(terms, np.int64), np.zeros(terms, np.int64)
    return Workspace(
        links, path, new_dead_ends(automaton, longest_key), search_state, new_stacks(), lanes, ours, theirs
    )
