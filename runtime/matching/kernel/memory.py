"""What a search stores of states that it has been in, so that it does not search them twice."""

from __future__ import annotations

from querylang.plan.remembering import PartKind
from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.matching.kernel.tables import AutomatonTables, Falling, Records
from runtime.matching.kernel.workspace import FIRST_BUCKETS, Bound, DeadEnds, Failures, Memory, Round

# Record where the search found nothing, so that it does not look there again.
#
# Why it would find nothing again: `querylang.plan.remembering`.


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


# Store what a search found in a state, or that it found nothing there.
#
# What the results depend on: `querylang.plan.remembering`. A completion is a list: its newest
# event, the transition that took it, and the rest. `END` is the empty one.
#
# Runs that are compared as a whole have numbers: that of a run is looked up by the number of the
# run without its oldest event and by that event. So equal runs have equal numbers.

END, NOTHING, UNKNOWN = 0, -1, -2
"""The empty completion; there is none; it was not searched."""

ENTRIES, BUCKETS, COMPLETIONS = range(3)
"""Entries of `Memory.used`."""


MOST_KEPT = 500_000
"""So many entries at most are kept for later searches of a key."""


@inlined
def forget(memory: Memory, is_kept: bool, first_search: int, search: int) -> None:
    """Empties the memory for another search.

    is_kept: failures may last; they do for searches of one key, whose first one is `first_search`
    """
    if memory.used[ENTRIES] > 0 or memory.used[BUCKETS] == 0:
        _empty(memory.buckets, memory.used, is_kept and search > first_search)
    memory.used[COMPLETIONS] = 1


@borrowing
def _empty(buckets: Integers, used: Integers, is_kept: bool) -> None:
    if not is_kept or used[ENTRIES] > MOST_KEPT or used[BUCKETS] == 0:
        for bucket in range(used[BUCKETS]):
            buckets[bucket] = -1
        used[ENTRIES], used[BUCKETS] = 0, FIRST_BUCKETS


@borrowing
def _bucket_of(memory: Memory, entry: int, size: int) -> int:
    mixed = 0
    for place in range(size):
        mixed = ((mixed ^ memory.keys[entry, place]) * 0x9E3779B1) & 0x7FFFFFFFFFF
        mixed ^= mixed >> 17
    return mixed & (memory.used[BUCKETS] - 1)


@borrowing
def entry_of(memory: Memory, size: int, adds: bool) -> int:
    """The entry of the key in the first free one; -1 = there is none, or with `adds` no room.

    size: of the key; the first entry of a key decides it
    """
    used, keys = memory.used, memory.keys
    free = used[ENTRIES]
    bucket = _bucket_of(memory, free, size)
    entry = memory.buckets[bucket]
    while entry >= 0:
        place = 0
        while place < size and keys[entry, place] == keys[free, place]:
            place += 1
        if place == size:
            return entry
        entry = memory.following[entry]
    # The last entry is for keys that are looked up.
    if not adds or free + 1 >= len(memory.value):
        return -1
    memory.value[free] = UNKNOWN
    keys[free, -2], keys[free, -1] = -1, size
    memory.following[free] = memory.buckets[bucket]
    memory.buckets[bucket] = free
    used[ENTRIES] = free + 1
    if free + 1 > used[BUCKETS] and 2 * used[BUCKETS] <= len(memory.buckets):
        _spread(memory)
    return free


@borrowing
def _spread(memory: Memory) -> None:
    """Twice as many buckets."""
    memory.used[BUCKETS] *= 2
    for bucket in range(memory.used[BUCKETS]):
        memory.buckets[bucket] = -1
    for entry in range(memory.used[ENTRIES]):
        bucket = _bucket_of(memory, entry, memory.keys[entry, -1])
        memory.following[entry] = memory.buckets[bucket]
        memory.buckets[bucket] = entry


@borrowing
def number_of_run(memory: Memory, term: int, before: int, position: int) -> int:
    """The number of a run with one more event; -1 = no room."""
    key = memory.used[ENTRIES]
    memory.keys[key, 0] = -1 - term
    memory.keys[key, 1] = before
    memory.keys[key, 2] = position
    return entry_of(memory, 3, True)


@borrowing
def _state_entry(
    states: Records,
    memory: Memory,
    bound: Bound,
    state: int,
    place: int,
    adds: bool,
) -> int:
    """The entry of a state for what is bound; `place`: the event bound last, -1 = any."""
    key = memory.used[ENTRIES]
    memory.keys[key, 0] = states[state].hash_row
    memory.keys[key, 1] = place
    size = 2
    for part in range(states[state].first_part, states[state].stop_part):
        kind, term = memory.parts[part, 0], memory.parts[part, 1]
        count, value = bound.counts[term], -1
        if kind == PartKind.COUNT:
            value = count
        elif count > 0:
            if kind == PartKind.EVENT:
                value = bound.path[bound.runs[term, 0]]
            elif kind == PartKind.OLDEST:
                value = bound.path[bound.runs[term, count - 1]]
            else:
                value = int(bound.numbers[term, count - 1])
        memory.keys[key, size] = value
        size += 1
    return entry_of(memory, size, adds)


@borrowing
def _stored(
    states: Records,
    memory: Memory,
    bound: Bound,
    state: int,
    place: int,
    at: Round,
) -> int:
    """What is stored of a state for what is bound; `place`: the event bound last, -1 = any.

    A completion counts in the search that found it only: windows may have lost its events.
    """
    entry = _state_entry(states, memory, bound, state, place, False)
    if entry < 0:
        return UNKNOWN
    value, stored = memory.value[entry], memory.keys[entry, -2]
    is_failure = place < 0 or value == NOTHING
    return value if stored >= (at.first_search if is_failure and states[state].is_lasting else at.number) else UNKNOWN


@borrowing
def _store(
    states: Records,
    memory: Memory,
    bound: Bound,
    state: int,
    last: int,
    at: Round,
    result: int,
) -> bool:
    """Stores what a state has found for what is bound; whether there was room."""
    is_falling = result == NOTHING and states[state].is_falling == Falling.OLDER
    if is_falling:
        result = max(last, _stored(states, memory, bound, state, -1, at))
    entry = _state_entry(states, memory, bound, state, -1 if is_falling else last, True)
    if entry >= 0:
        memory.value[entry], memory.keys[entry, -2] = result, at.number
    return entry >= 0


@inlined
def run_failed_until(
    states: Records,
    failures: Failures,
    memory: Memory,
    bound: Bound,
    state: int,
    at: Round,
) -> int:
    """The event with which, bound last, the state fails, and with older ones; -1 = not known."""
    result, row = -1, states[state].fail_row
    if row >= 0:
        if failures.fail_search[row] >= (at.first_search if states[state].is_lasting else at.number):
            result = failures.fail_until[row]
    elif states[state].is_falling == Falling.OLDER and states[state].hash_row >= 0:
        result = max(result, _stored(states, memory, bound, state, -1, at))
    return result


@inlined
def result_of(
    states: Records,
    failures: Failures,
    memory: Memory,
    bound: Bound,
    state: int,
    last: int,
    at: Round,
) -> int:
    """What else is known of a state: a completion, NOTHING or UNKNOWN; `last`: bound last."""
    result, row = UNKNOWN, states[state].direct_row
    if row >= 0:
        entry = row * failures.width + last - at.begin
        if failures.direct_search[entry] >= (at.first_search if states[state].is_lasting else at.number):
            result = NOTHING
        elif failures.found_search[entry] == at.number:
            result = failures.found[entry]
    elif states[state].hash_row >= 0:
        result = _stored(states, memory, bound, state, last, at)
    return result


@inlined
def store_result(
    states: Records,
    failures: Failures,
    memory: Memory,
    bound: Bound,
    state: int,
    last: int,
    at: Round,
    result: int,
) -> bool:
    """Stores a completion or NOTHING; whether there was room."""
    has_room, row = True, states[state].direct_row
    is_falling = result == NOTHING and states[state].is_falling == Falling.OLDER
    if states[state].hash_row >= 0:
        has_room = _store(states, memory, bound, state, last, at, result)
    elif is_falling and states[state].fail_row >= 0:
        fail_row = states[state].fail_row
        failures.fail_search[fail_row], failures.fail_until[fail_row] = at.number, last
    elif row >= 0:
        entry = row * failures.width + last - at.begin
        if result == NOTHING:
            failures.direct_search[entry] = at.number
        else:
            failures.found_search[entry], failures.found[entry] = at.number, result
    return has_room


@inlined
def new_completion(memory: Memory, event: int, transition: int, rest: int) -> int:
    """A completion; -1 = no room."""
    number = memory.used[COMPLETIONS]
    if number < len(memory.rest):
        memory.event[number], memory.transition[number], memory.rest[number] = event, transition, rest
        memory.used[COMPLETIONS] = number + 1
    else:
        number = -1
    return number


@borrowing
def is_completion_more_recent(
    transitions: Records, binds: Integers, memory: Memory, terms: int, ours: int, theirs: int
) -> bool:
    """Whether a completion wins over another by the *recent* policy.

    Compared are the positions, newest first, one per name; if these are the same, the names, the
    last one first, each with its events, newest first.
    """
    one, two, done_one, done_two = ours, theirs, 0, 0
    while min(one, two) != END:
        if memory.event[one] != memory.event[two]:
            return memory.event[one] > memory.event[two]
        done_one, done_two = done_one + 1, done_two + 1
        taken = memory.transition[one]
        if done_one == transitions[taken].stop_bind - transitions[taken].first_bind:
            one, done_one = memory.rest[one], 0
        taken = memory.transition[two]
        if done_two == transitions[taken].stop_bind - transitions[taken].first_bind:
            two, done_two = memory.rest[two], 0
    if one != two:
        return two == END
    for term in range(terms - 1, -1, -1):
        one, two = _next_of(transitions, binds, memory, term, ours), _next_of(transitions, binds, memory, term, theirs)
        while min(one, two) != END:
            if memory.event[one] != memory.event[two]:
                return memory.event[one] > memory.event[two]
            one = _next_of(transitions, binds, memory, term, memory.rest[one])
            two = _next_of(transitions, binds, memory, term, memory.rest[two])
        if one != two:
            return two == END
    return False


@borrowing
def _next_of(transitions: Records, binds: Integers, memory: Memory, term: int, completion: int) -> int:
    """The first part of a completion, from its beginning on, that binds the term."""
    while completion != END:
        taken = memory.transition[completion]
        for index in range(transitions[taken].first_bind, transitions[taken].stop_bind):
            if binds[index] == term:
                return completion
        completion = memory.rest[completion]
    return END
