"""Record where the search found nothing, so that it does not look there again.

Why it would find nothing again: `runtime.matching.kernel.dead_end_rules`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.compiling.compiled import borrowing
from runtime.matching.kernel.tables import AutomatonTables
from runtime.number_arrays import Integers

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


@borrowing
def record_dead_end(
    automaton: AutomatonTables,
    dead_ends: DeadEnds,
    bindings: Integers,
    state: int,
    entry: int,
    begin: int,
    search: int,
) -> None:
    """Records that the search numbered `search` failed in a state that it entered with `entry`."""
    if len(dead_ends.search) > 0:
        entry_number = _entry_of(automaton, dead_ends, bindings, state, begin)
        # An entry is replaced by the latest failure. A state that is known to fail from a position
        # is not entered again from there on, so what it replaces was recorded from an older
        # position, under other circumstances, or for other events with the same hash.
        dead_ends.search[entry_number] = search
        dead_ends.event[entry_number] = entry
        hashed = entry_number - dead_ends.rows * dead_ends.width
        if hashed >= 0:
            first, stop = automaton.states[state].first_dead_end_term, automaton.states[state].stop_dead_end_term
            for index in range(first, stop):
                dead_ends.bound[hashed, index - first] = bindings[automaton.dead_end_terms[index]]
            dead_ends.bound[hashed, -1] = automaton.states[state].dead_end_row


@borrowing
def failed_until(
    automaton: AutomatonTables,
    dead_ends: DeadEnds,
    bindings: Integers,
    state: int,
    begin: int,
    first_search: int,
    search: int,
) -> int:
    """The position with which the state is known to fail, and with all older ones; -1 = none.

    first_search, search: the numbers of the key's first search and of the one at work
    """
    if len(dead_ends.search) == 0:
        return -1
    entry_number = _entry_of(automaton, dead_ends, bindings, state, begin)
    since = first_search if automaton.states[state].is_lasting else search
    if dead_ends.search[entry_number] < since:
        return -1
    # Different events may have the same hash.
    hashed = entry_number - dead_ends.rows * dead_ends.width
    if hashed >= 0:
        if dead_ends.bound[hashed, -1] != automaton.states[state].dead_end_row:
            return -1
        first, stop = automaton.states[state].first_dead_end_term, automaton.states[state].stop_dead_end_term
        for index in range(first, stop):
            if dead_ends.bound[hashed, index - first] != bindings[automaton.dead_end_terms[index]]:
                return -1
    return dead_ends.event[entry_number]


@borrowing
def _entry_of(automaton: AutomatonTables, dead_ends: DeadEnds, bindings: Integers, state: int, begin: int) -> int:
    """The entry of a state's dead ends for the events that are bound."""
    row = automaton.states[state].dead_end_row
    first, stop = automaton.states[state].first_dead_end_term, automaton.states[state].stop_dead_end_term
    # Places within the key, from 1 on. A term that is optional may not be bound: its place is 0.
    place = 0
    if stop - first <= 1:
        if stop > first:
            place = max(0, bindings[automaton.dead_end_terms[first]] - begin + 1)
        return row * dead_ends.width + place
    mixed = row
    for index in range(first, stop):
        place = max(0, bindings[automaton.dead_end_terms[index]] - begin + 1)
        mixed = (mixed * 7919 + place) & 0x7FFFFFFF
    return dead_ends.rows * dead_ends.width + mixed % len(dead_ends.bound)
