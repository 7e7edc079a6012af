"""What one run of admission works on: its arguments, facts that hold for all keys, and memory for
one key at a time.

All of it is tuples of arrays and numbers, because that is what kernels take.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.admission.arrays import BoundRule, KeyedRows, Places, Punctuation, Ready, Released, Timers
from runtime.column_types import Integers, made_once
from runtime.compiling.compiled import borrowing
from runtime.input_policies import BY_CLOCK, NO_WAIT, PolicyColumns
from runtime.instants import NO_TIME


class Admission(NamedTuple):
    """One run of admission. It reads all but `bounds`, `times`, `buffer_end`, `places.time`,
    `timers` and `released`.

    rows: all rows of the call
    places: their arrival, time and input grouped by key
    punctuation: heartbeats without a key, changes of leeway
    policies: the inputs' settings
    bounds: `Timelines.bounds`, advanced by this run
    everywhere: `Timelines.everywhere` before this call
    limit: timers run up to this moment, µs; NEVER = all of them
    times: by row; filled in for inputs without wait, whose events happen when they arrive
    buffer_end: by row; filled in for new events that are delayed
    timers: filled in as they expire
    ready: when shared clocks allow a release
    released: the outcome, filled in key by key
    """

    rows: KeyedRows
    places: Places
    punctuation: Punctuation
    policies: PolicyColumns
    bounds: Integers
    everywhere: Integers
    limit: int
    times: Integers
    buffer_end: Integers
    timers: Timers
    ready: Ready
    released: Released


class Progress(NamedTuple):
    """The progress of a run of admission.

    key: the next key
    out: the next free position of released events
    pending_out: the next free one of `Released.pending`
    next_timer: the earliest pending timer of the keys so far, µs; NEVER = none
    last_release: the latest moment at which a timer, or a later record, released something, µs;
        NO_TIME = none
    """

    key: int
    out: int
    pending_out: int
    next_timer: int
    last_release: int


class Facts(NamedTuple):
    """What holds for all keys of a run.

    longest: the largest delay of an input, µs; inputs without wait and those with a shared clock
        count as 0
    shortest: the least delay, counted the same way
    longest_own: the largest delay of the keys' own timelines; -1 = all clocks are shared
    only_clock: no record advances a bound, and none has: timelines follow the clock
    has_heartbeats: some record is a heartbeat for its key
    may_sort: keys without delayed events may go to `runtime.admission.per_key_sorted`
    may_follow_clock: some keys' definitive time may be just `longest` behind the clock: no
        heartbeat for every key so far, no shared clock
    is_shared: some input has a shared clock
    """

    longest: int
    shortest: int
    longest_own: int
    only_clock: bool
    has_heartbeats: bool
    may_sort: bool
    may_follow_clock: bool
    is_shared: bool


def facts_of(admission: Admission) -> Facts:
    """What holds for all keys of a run, before it begins."""
    always, rule = _always(admission.policies), admission.rows.rule
    records_advance = always.may_advance or (len(rule) > 0 and bool((rule == BoundRule.IN_ORDER).any()))
    furthest = int(admission.everywhere.max())
    is_advanced = max(furthest, int(admission.bounds.max(initial=NO_TIME))) != NO_TIME
    has_heartbeats = bool(admission.rows.heartbeats.any())
    return Facts(
        longest=always.longest,
        shortest=always.shortest,
        longest_own=always.longest_own,
        only_clock=not records_advance and not is_advanced,
        has_heartbeats=has_heartbeats,
        may_sort=not has_heartbeats and not len(admission.punctuation.heartbeat_row),
        may_follow_clock=furthest == NO_TIME and not always.is_shared,
        is_shared=always.is_shared,
    )


class _Always(NamedTuple):
    """What holds for all runs with the same settings of inputs.

    longest, shortest, longest_own, is_shared: as in `Facts`
    may_advance: records of some input advance its bound
    has_no_wait: some input has no wait
    """

    longest: int
    shortest: int
    longest_own: int
    is_shared: bool
    may_advance: bool
    has_no_wait: bool


@made_once
def _always(policies: PolicyColumns) -> _Always:
    delay = policies.delay
    # timelines of shared clocks are judged elsewhere: here they only hold back a release
    own = delay[delay != BY_CLOCK]
    return _Always(
        longest=max(0, int(delay.max())),
        shortest=int(np.maximum(delay, 0).min()),
        longest_own=max(0, int(own.max())) if len(own) else -1,
        is_shared=bool(delay.min() == BY_CLOCK),
        may_advance=bool((policies.moves & (delay >= 0)).any()),
        has_no_wait=bool((delay == NO_WAIT).any()),
    )


class Advances(NamedTuple):
    """How records advance the bounds of the key at work: what `runtime.admission.per_key_sorted`
    goes along.

    time: by input and number; the bound after this advance, µs; strictly increasing
    place: by input and number; the record that advances it
    size: by input, how many there are
    next_reaching: by input, how far the search for the first bound at or above a time has come
    next_after: by input, how far the search for the last bound at a moment has come
    """

    time: Integers
    place: Integers
    size: Integers
    next_reaching: Integers
    next_after: Integers


class KeyWorkspace(NamedTuple):
    """Memory for one key at a time, for the key that has most rows and timers.

    common: by input, the bound by heartbeats for every key
    delayed_time: by input, a heap: times of delayed events
    delayed_until: by input, the same heap: when their buffers end
    delayed_count: by input, the size of the heap
    pending_time: a heap (or sorted): times of pending events and timers
    pending_entry: their entries
    advances: of `runtime.admission.per_key_sorted`
    """

    common: Integers
    delayed_time: Integers
    delayed_until: Integers
    delayed_count: Integers
    pending_time: Integers
    pending_entry: Integers
    advances: Advances


def new_workspace(admission: Admission) -> KeyWorkspace:
    """Memory for a run of admission, allocated once."""
    inputs = len(admission.everywhere)
    sizes = np.diff(admission.rows.start + admission.timers.start)
    # each row and timer of a key is pending or delayed at most once
    widest = int(sizes.max(initial=1))
    return KeyWorkspace(
        common=np.empty(inputs, np.int64),
        delayed_time=np.empty((inputs, widest), np.int64),
        delayed_until=np.empty((inputs, widest), np.int64),
        delayed_count=np.zeros(inputs, np.int64),
        pending_time=np.empty(widest, np.int64),
        pending_entry=np.empty(widest, np.int64),
        advances=_new_advances(inputs, widest),
    )


def _new_advances(inputs: int, widest: int) -> Advances:
    time, place = np.empty((inputs, widest), np.int64), np.empty((inputs, widest), np.int64)
    return Advances(time, place, *(np.zeros(inputs, np.int64) for _ in range(3)))


def advanced_by_punctuation(everywhere: Integers, punctuation: Punctuation) -> Integers:
    """`Timelines.everywhere` after the heartbeats of a call that are for every key."""
    advanced = everywhere.copy()
    for mask, time in zip(punctuation.heartbeat_mask.tolist(), punctuation.heartbeat_time.tolist(), strict=True):
        for item in range(len(advanced)):
            if mask >> item & 1:
                advanced[item] = max(advanced[item], time)
    return advanced


def times_to_fill(rows: KeyedRows, policies: PolicyColumns) -> tuple[Integers, Integers]:
    """`Admission.times` and `.buffer_end`: the columns of `rows`, copied where a run may change
    them."""
    always = _always(policies)
    times = rows.time.copy() if always.has_no_wait else rows.time
    return times, rows.buffer_end.copy() if always.may_advance else rows.buffer_end


# Binary heaps of (time, number) pairs, the least pair on top. A heap is two arrays and a size that
# the caller keeps, because kernels without reference counts cannot allocate.


@borrowing
def push(times: Integers, numbers: Integers, size: int, time: int, number: int) -> None:
    """Adds a pair to a heap of `size` pairs."""
    at = size
    # invariant: the pair belongs at `at` or above it; everything below `at` is in heap order
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and numbers[above] < number):
            break
        times[at] = times[above]
        numbers[at] = numbers[above]
        at = above
    times[at] = time
    numbers[at] = number


@borrowing
def pop(times: Integers, numbers: Integers, size: int) -> None:
    """Removes the top pair from a heap of `size` pairs."""
    last = size - 1
    time, number = times[last], numbers[last]
    at = 0
    # invariant: the last pair belongs at `at` or below it; `at` is free
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        right = below + 1
        if right < last and (
            times[right] < times[below] or (times[right] == times[below] and numbers[right] < numbers[below])
        ):
            below = right
        if time < times[below] or (time == times[below] and number <= numbers[below]):
            break
        times[at] = times[below]
        numbers[at] = numbers[below]
        at = below
    times[at] = time
    numbers[at] = number
