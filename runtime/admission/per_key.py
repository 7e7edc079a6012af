"""Per-key admission: late and out-of-order checks, timers, and the order in which events are
released.

The new records of a call, grouped by key and in order of arrival, are judged against the timelines
of their key. An event is pending until all timelines of its key have reached its time; then it is
released, in the key's total order (time, arrival, arrival number). At equal times the smaller row
number comes first, which is that order.

Timers are logical. Before a record is judged, every timer that expires by its arrival is run, in
order, and stamped with the moment at which it expires. So the answer does not depend on how records
are cut into calls.

Keys without delayed events, in calls without heartbeats, go to `runtime.admission.per_key_sorted`,
which is faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.admission.arrays import (
    NO_CLOCKS,
    TIMER,
    KeyedRows,
    Leaving,
    Punctuation,
    Ready,
    Released,
    Timelines,
    Timers,
    Waited,
    advances_bound,
    by_place,
    copy_window,
    end_of_window,
    is_ready,
    leeway_at,
    no_timers,
    ready_of,
    release,
)
from runtime.admission.per_key_sorted import admit_sorted
from runtime.admission.rules import Outcome, judge, own_settings
from runtime.admission.workspace import (
    Admission,
    Facts,
    KeyWorkspace,
    Progress,
    advanced_by_punctuation,
    facts_of,
    new_workspace,
    pop,
    push,
    times_to_fill,
)
from runtime.column_types import Integers
from runtime.columns.arrivals import Shape
from runtime.compiling.compiled import borrowing, inlined
from runtime.input_policies import BY_CLOCK, NO_WAIT, PolicyColumns
from runtime.instants import NEVER, NO_TIME


class Admitted(NamedTuple):
    """The outcome of `admit`.

    released: released events, refused records, pending events
    timelines: the bounds after the call
    times: by row, the time at which the event happened, µs: its arrival for inputs without wait
    buffer_end: by row, when the buffer of a delayed event ends, µs; NO_TIME = not delayed
    timers: those given, filled in
    next_timer: the earliest pending timer, µs; NEVER = none
    last_release: the latest moment at which a timer, or a later record, released something, µs;
        NO_TIME = none
    """

    released: Released
    timelines: Timelines
    times: Integers
    buffer_end: Integers
    timers: Timers
    next_timer: int
    last_release: int


def admit(
    rows: KeyedRows,
    punctuation: Punctuation,
    policies: PolicyColumns,
    timelines: Timelines,
    limit: int,
    judged: tuple[NDArray[np.int8], Integers],
    timers: Timers | None = None,
    ready: Ready = NO_CLOCKS,
) -> Admitted:
    """Judges the new records and releases what becomes definitive; changes none of its arguments.

    limit: timers run up to this moment, µs; NEVER = until none is pending
    judged: by new record, the verdicts of shared clocks, and the bounds that refused
    timers: times of which the caller wants to know when they become definitive
    ready: when shared clocks allow a release
    """
    keys = len(rows.start) - 1
    timers = no_timers(keys, len(rows.time)) if timers is None else timers
    # Kernels fill arrays in place; these are copies, so that a call can be admitted twice.
    times, buffer_end = times_to_fill(rows, policies)
    admission = Admission(
        rows=rows,
        places=by_place(rows),
        punctuation=punctuation,
        policies=policies,
        bounds=timelines.bounds.copy(),
        everywhere=timelines.everywhere,
        limit=limit,
        times=times,
        buffer_end=buffer_end,
        timers=timers._replace(
            emitted=timers.emitted.copy(), definitive=timers.definitive.copy(), record=timers.record.copy()
        ),
        ready=ready,
        released=_nothing_released(keys, len(rows.key_rows), judged),
    )
    next_timer, last_release = _admit_all(admission, facts_of(admission), new_workspace(admission))
    return Admitted(
        released=_trimmed(admission.released),
        timelines=Timelines(admission.bounds, advanced_by_punctuation(timelines.everywhere, punctuation)),
        times=times,
        buffer_end=buffer_end,
        timers=admission.timers,
        next_timer=int(next_timer),
        last_release=int(last_release),
    )


def _nothing_released(keys: int, count: int, judged: tuple[NDArray[np.int8], Integers]) -> Released:
    """Room for the outcome: each of `count` rows is released or pending, if it is not refused."""
    return Released(
        start=np.zeros(keys + 1, np.int64),
        fresh=np.zeros(keys, np.int64),
        order=np.empty(count, np.int32),
        time=np.empty(count, np.int64),
        input=np.empty(count, np.int16),
        emitted=np.empty(count, np.int64),
        definitive=np.empty(count, np.int64),
        waited=np.zeros(count, np.int8),
        record=np.empty(count, np.int64),
        verdict=judged[0].copy(),
        verdict_bound=judged[1].copy(),
        pending_start=np.zeros(keys + 1, np.int64),
        pending=np.empty(count, np.int32),
        next_timer=np.full(keys, NEVER, np.int64),
    )


_BY_POSITION = ("order", "time", "input", "emitted", "definitive", "waited", "record")


def _trimmed(released: Released) -> Released:
    """The outcome without the room that was not needed."""
    positions = int(released.start[-1])
    columns = {name: getattr(released, name)[:positions] for name in _BY_POSITION}
    return released._replace(**columns, pending=released.pending[: released.pending_start[-1]])


class Partition(NamedTuple):
    """The timelines of the key at work, and its heaps; how many entries `pending_time` has is in
    `KeyProgress`.

    delay: by input, the largest delay, µs; NO_WAIT, BY_CLOCK
    bound: by input, the bound by the key's own records and heartbeats
    others: as in `KeyWorkspace`
    """

    delay: Integers
    bound: Integers
    common: Integers
    delayed_time: Integers
    delayed_until: Integers
    delayed_count: Integers
    pending_time: Integers
    pending_entry: Integers


class KeyProgress(NamedTuple):
    """The progress of the work on a key.

    place: its next record
    heartbeat: the next heartbeat for every key
    change: the change of leeway in force
    pending: the size of the heap of pending entries
    follows_clock: definitive time is `Facts.longest` behind the clock, because nothing else has
        moved the timelines and no event is delayed
    has_other_timers: something may be released before its time plus the least delay, because an
        event is delayed or a clock is shared
    out: the next free position of released events
    last_release: as in `Progress`
    """

    place: int
    heartbeat: int
    change: int
    pending: int
    follows_clock: bool
    has_other_timers: bool
    out: int
    last_release: int


class Incoming(NamedTuple):
    """What is processed next for a key.

    row: a record of the key, or a heartbeat for every key; -1 = neither, the call is at its end
    now: its arrival, µs; at the end the limit of timers
    is_heartbeat: it is for every key
    """

    row: int
    now: int
    is_heartbeat: bool


@borrowing
def _admit_all(admission: Admission, facts: Facts, workspace: KeyWorkspace) -> tuple[int, int]:
    """Fills the outcome, key by key; returns `next_timer` and `last_release`."""
    keys = len(admission.rows.start) - 1
    progress = Progress(0, 0, 0, NEVER, NO_TIME)
    # The sorted path stops at a key with delayed events. The general path takes that key alone, so
    # that the sorted path can continue behind it; it takes all keys if the sorted path takes none.
    while progress.key < keys:
        if facts.may_sort:
            progress = admit_sorted(admission, facts, workspace, progress)
        if progress.key < keys:
            stop = progress.key + 1 if facts.may_sort else keys
            progress = _admit_keys(admission, facts, workspace, progress, stop)
    admission.released.start[keys] = progress.out
    admission.released.pending_start[keys] = progress.pending_out
    return progress.next_timer, progress.last_release


@borrowing
def _admit_keys(admission: Admission, facts: Facts, workspace: KeyWorkspace, progress: Progress, stop: int) -> Progress:
    """The general path: the keys up to the one before `stop`, record by record.

    Invariant: when a record is judged, the heaps hold what is pending and what is delayed at its
    arrival. Everything that was definitive before it has been released, in total order.
    """
    for key in range(progress.key, stop):
        part = _timelines_of(admission, workspace, key)
        state = _load_key(admission, facts, part, key, progress)
        while True:
            incoming = _next_incoming(admission, state, key)
            # 1. Timers that expire up to its arrival. They come first: a record cannot change what
            #    was definitive before it, and it is judged by the bounds at its arrival.
            state = _run_timers(admission, facts, part, state, incoming)
            if incoming.row < 0:
                break
            # 2. The record or heartbeat itself: it may advance timelines, and be pending.
            newest = -1
            if incoming.is_heartbeat:
                state = _take_heartbeat(admission, part, state)
            else:
                newest = state.place
                state = _take_record(admission, facts, part, state, incoming)
            # 3. What it made definitive. Afterwards the oldest pending entry is not definitive.
            state = _release_due(admission, facts, part, state, incoming, newest)
        progress = _keep_pending(admission, part, state, progress, key)
    return progress


@inlined
def _timelines_of(admission: Admission, workspace: KeyWorkspace, key: int) -> Partition:
    """The timelines of a key, and empty heaps."""
    return Partition(
        admission.policies.delay,
        admission.bounds[key],
        workspace.common,
        workspace.delayed_time,
        workspace.delayed_until,
        workspace.delayed_count,
        workspace.pending_time,
        workspace.pending_entry,
    )


@inlined
def _load_key(admission: Admission, facts: Facts, part: Partition, key: int, progress: Progress) -> KeyProgress:
    """Loads what is stored of a key: its window into the outcome, the rest into the heaps."""
    rows, places, timers, released = admission.rows, admission.places, admission.timers, admission.released
    for item in range(len(part.delay)):
        part.delayed_count[item] = 0
        part.common[item] = admission.everywhere[item]
    follows_clock, has_other_timers = facts.may_follow_clock and _is_unmoved(part.bound), facts.is_shared
    # The window was released by earlier calls, in total order, and before all that is pending.
    place = end_of_window(rows, key)
    released.start[key] = progress.out
    out = copy_window(rows, places, released, rows.start[key], place, progress.out)
    released.fresh[key] = out
    # Pending events, and of these the delayed ones, with which time may advance at other moments.
    pending = 0
    while place < rows.start[key + 1] and rows.key_rows[place] < rows.first_new:
        push(part.pending_time, part.pending_entry, pending, places.time[place], place)
        pending += 1
        until = admission.buffer_end[rows.key_rows[place]]
        if until != NO_TIME:
            _buffer_delayed(part, places.input[place], places.time[place], until)
            follows_clock, has_other_timers = False, True
        place += 1
    # Timers of pending matches are released like events; their entries are numbered from
    # `timers.first` on.
    for timer in range(timers.start[key], timers.start[key + 1]):
        push(part.pending_time, part.pending_entry, pending, timers.time[timer], timers.first + timer)
        pending += 1
    return KeyProgress(place, 0, 0, pending, follows_clock, has_other_timers, out, progress.last_release)


@borrowing
def _is_unmoved(bounds: Integers) -> bool:
    """Whether only the clock has moved a key's timelines."""
    moved = 0
    for bound in bounds:
        moved += bound != NO_TIME
    return moved == 0


@inlined
def _next_incoming(admission: Admission, state: KeyProgress, key: int) -> Incoming:
    """A record of the key or a heartbeat for every key, whichever is first; or the call's end."""
    rows, punctuation = admission.rows, admission.punctuation
    row, now, is_heartbeat = -1, admission.limit, False
    if state.place < rows.start[key + 1]:
        row, now = rows.key_rows[state.place], admission.places.arrival[state.place]
    if state.heartbeat < len(punctuation.heartbeat_row):
        heartbeat_row = punctuation.heartbeat_row[state.heartbeat]
        if row < 0 or heartbeat_row < row:
            row, now, is_heartbeat = heartbeat_row, punctuation.heartbeat_arrival[state.heartbeat], True
    return Incoming(row, now, is_heartbeat)


@inlined
def _run_timers(
    admission: Admission, facts: Facts, part: Partition, state: KeyProgress, incoming: Incoming
) -> KeyProgress:
    """Runs the timers that expire up to the arrival of what comes next, each at its own moment."""
    rows, timers, ready = admission.rows, admission.timers, admission.ready
    now, pending, out, last_release = incoming.now, state.pending, state.out, state.last_release
    record = incoming.row - rows.first_new
    # Short cut: the oldest entry is not definitive yet (phase 3), so some timeline is behind it. By
    # the clock alone that timeline reaches it no earlier than its time plus the least delay. Before
    # that moment nothing can expire, unless a buffer ends or a shared clock decides. A key that
    # follows the clock is always looked at: its moment is just a sum.
    while pending > 0 and (
        state.follows_clock or state.has_other_timers or part.pending_time[0] + facts.shortest <= now
    ):
        moment, by = part.pending_time[0] + facts.longest, TIMER
        if not state.follows_clock:
            moment, by = _next_change(part, ready, rows, timers)
        # A shared clock that is advanced by this record, or by a later one of the same moment, does
        # not release anything before it.
        is_behind = by >= 0 and moment == now and incoming.row >= 0 and by >= record
        if moment > now or moment >= NEVER or is_behind:
            break
        last_release = max(last_release, moment)
        # Release all that is definitive at this moment; several entries may have the same timer.
        definitive, buffer_ended = moment - facts.longest, False
        if not state.follows_clock:
            definitive, buffer_ended = _advance_timelines(part, moment)
        while (
            pending > 0
            and part.pending_time[0] <= definitive
            and is_ready(ready, rows, timers, part.pending_entry[0], moment, by)
        ):
            waited = Waited.REORDER if buffer_ended else Waited.WAIT
            entry = part.pending_entry[0]
            leaving = Leaving(moment, definitive, waited, by)
            out = release(rows, admission.places, admission.released, timers, entry, out, leaving)
            pop(part.pending_time, part.pending_entry, pending)
            pending -= 1
    return _after_releases(state, pending, out, last_release)


@inlined
def _take_heartbeat(admission: Admission, part: Partition, state: KeyProgress) -> KeyProgress:
    """Advances the key's timelines by the next heartbeat for every key."""
    punctuation, number = admission.punctuation, state.heartbeat
    _advance_by_heartbeat(part.common, punctuation.heartbeat_mask[number], punctuation.heartbeat_time[number])
    return KeyProgress(
        state.place,
        number + 1,
        state.change,
        state.pending,
        False,
        state.has_other_timers,
        state.out,
        state.last_release,
    )


@inlined
def _take_record(
    admission: Admission, facts: Facts, part: Partition, state: KeyProgress, incoming: Incoming
) -> KeyProgress:
    """Judges the key's next record. Admitted, it is pending, and advances a bound or is delayed."""
    rows, places, policies, released = admission.rows, admission.places, admission.policies, admission.released
    place, row, now, pending = state.place, incoming.row, incoming.now, state.pending
    item, time, change = places.input[place], places.time[place], state.change
    follows_clock, has_other_timers = state.follows_clock, state.has_other_timers
    # A record may be a heartbeat and an event: as a heartbeat it counts first, by its own time.
    if facts.has_heartbeats and rows.heartbeats[row] != 0:
        follows_clock = False
        _advance_by_heartbeat(part.bound, rows.heartbeats[row], time)
    is_admitted = item >= 0
    # Inputs without wait happen at arrival; shared clocks have judged theirs; the others are judged
    # here.
    if is_admitted and part.delay[item] == NO_WAIT:
        time = now
        admission.times[row] = now
        places.time[place] = now
    elif is_admitted and part.delay[item] == BY_CLOCK:
        is_admitted = released.verdict[row - rows.first_new] == Outcome.USED
    elif is_admitted:
        bound = max(part.bound[item], part.common[item], now - part.delay[item])
        judged = judge(own_settings(policies, item), bound, time, now, Shape.POINT, NO_TIME)
        if not judged.is_admitted:
            is_admitted = False
            released.verdict[row - rows.first_new] = judged.reason
            released.verdict_bound[row - rows.first_new] = judged.bound
        elif advances_bound(rows, policies, row, item):
            follows_clock = False
            change = leeway_at(admission.punctuation, change, row)
            # In time: the bound advances at once. Delayed: only when the buffer ends.
            if now - time > admission.punctuation.leeway[change, item]:
                buffer = admission.punctuation.reorder[change, item]
                until = NEVER if buffer >= NEVER else now + buffer
                admission.buffer_end[row] = until
                _buffer_delayed(part, item, time, until)
                has_other_timers = True
            else:
                part.bound[item] = time
    if is_admitted:
        push(part.pending_time, part.pending_entry, pending, time, place)
        pending += 1
    return KeyProgress(
        place + 1,
        state.heartbeat,
        change,
        pending,
        follows_clock,
        has_other_timers,
        state.out,
        state.last_release,
    )


@inlined
def _release_due(
    admission: Admission, facts: Facts, part: Partition, state: KeyProgress, incoming: Incoming, newest: int
) -> KeyProgress:
    """Releases what a record or heartbeat made definitive; `newest`: the record's place, -1 =
    heartbeat."""
    rows, timers, ready = admission.rows, admission.timers, admission.ready
    now, record, pending, out = incoming.now, incoming.row - rows.first_new, state.pending, state.out
    definitive = now - facts.longest
    if not state.follows_clock:
        definitive, _ = _advance_timelines(part, now)
    # The top of the heap is the first in total order, so events leave in that order. If it is not
    # definitive, no other one is: their times are not earlier, and shared clocks go by time too.
    while (
        pending > 0
        and part.pending_time[0] <= definitive
        and is_ready(ready, rows, timers, part.pending_entry[0], now, record)
    ):
        entry = part.pending_entry[0]
        waited = Waited.WAIT
        if entry == newest:
            waited = Waited.NONE
        elif entry < timers.first and admission.buffer_end[rows.key_rows[entry]] != NO_TIME:
            waited = Waited.LEEWAY
        leaving = Leaving(now, definitive, waited, record)
        out = release(rows, admission.places, admission.released, timers, entry, out, leaving)
        pop(part.pending_time, part.pending_entry, pending)
        pending -= 1
    return _after_releases(state, pending, out, state.last_release)


@inlined
def _after_releases(state: KeyProgress, pending: int, out: int, last_release: int) -> KeyProgress:
    """The progress of a key after some of its pending entries have left."""
    return KeyProgress(
        state.place,
        state.heartbeat,
        state.change,
        pending,
        state.follows_clock,
        state.has_other_timers,
        out,
        last_release,
    )


@inlined
def _keep_pending(admission: Admission, part: Partition, state: KeyProgress, progress: Progress, key: int) -> Progress:
    """Writes what is still pending of a key, in total order, and its next timer."""
    rows, timers, released = admission.rows, admission.timers, admission.released
    pending, next_timer, pending_out = state.pending, progress.next_timer, progress.pending_out
    if pending > 0:
        released.next_timer[key] = _next_change(part, admission.ready, rows, timers)[0]
        next_timer = min(next_timer, released.next_timer[key])
    # Timers are not stored: the caller has them. The heap returns the others in total order.
    released.pending_start[key] = pending_out
    while pending > 0:
        if part.pending_entry[0] < timers.first:
            released.pending[pending_out] = rows.key_rows[part.pending_entry[0]]
            pending_out += 1
        pop(part.pending_time, part.pending_entry, pending)
        pending -= 1
    return Progress(key + 1, state.out, pending_out, next_timer, state.last_release)


@inlined
def _buffer_delayed(part: Partition, item: int, time: int, until: int) -> None:
    """Adds a delayed event to its input's heap; `until`: when its buffer ends, µs."""
    push(part.delayed_time[item], part.delayed_until[item], part.delayed_count[item], time, until)
    part.delayed_count[item] += 1


@inlined
def _advance_by_heartbeat(bounds: Integers, mask: int, time: int) -> None:
    """A heartbeat advances the inputs in `mask` at once, however late it is."""
    for item in range(len(bounds)):
        if mask >> item & 1:
            bounds[item] = max(bounds[item], time)


@inlined
def _advance_timelines(part: Partition, now: int) -> tuple[int, bool]:
    """Advances the bounds by reorder buffers that have ended.

    Returns definitive time at `now`, µs, and whether a buffer advanced a bound. A delayed event
    advances its bound when its buffer has ended and no older event of its input is delayed.
    """
    delay, definitive, buffer_ended = part.delay, NEVER, False
    for item in range(len(delay)):
        reached = now
        if delay[item] == BY_CLOCK:
            continue
        if delay[item] != NO_WAIT:
            reached = max(part.bound[item], part.common[item], now - delay[item])
        # The oldest first: at or below the bound it is not delayed any more; above it, it advances
        # the bound if its buffer has ended. Otherwise it holds back all newer ones.
        while part.delayed_count[item] > 0:
            oldest = part.delayed_time[item, 0]
            if oldest > reached:
                if part.delayed_until[item, 0] > now:
                    break
                part.bound[item] = oldest
                reached = oldest
                buffer_ended = True
            pop(part.delayed_time[item], part.delayed_until[item], part.delayed_count[item])
            part.delayed_count[item] -= 1
        definitive = min(definitive, reached)
    return definitive, buffer_ended


@inlined
def _next_timer(part: Partition) -> tuple[int, int]:
    """When arrival time alone changes something, in two ways, µs.

    Returns the moment at which the key's timelines reach the oldest pending entry by the clock, and
    the first moment at which a delayed event may leave its heap; NEVER = none is delayed.
    """
    time, delay = part.pending_time[0], part.delay
    release_at, delayed_end = NO_TIME, NEVER
    for item in range(len(delay)):
        if delay[item] == BY_CLOCK:
            continue
        if delay[item] == NO_WAIT:
            release_at = max(release_at, time)
        elif max(part.bound[item], part.common[item]) < time:
            release_at = max(release_at, time + delay[item])
        if part.delayed_count[item] > 0:
            # its buffer ends, or the clock passes it
            passed = part.delayed_time[item, 0] + delay[item]
            delayed_end = min(delayed_end, part.delayed_until[item, 0], passed)
    return release_at, delayed_end


@inlined
def _next_change(part: Partition, ready: Ready, rows: KeyedRows, timers: Timers) -> tuple[int, int]:
    """When something changes for the key without a record of its own.

    Returns the moment, and the new record that advances a shared clock there; TIMER = none.
    """
    moment, delayed_end = _next_timer(part)
    by = TIMER
    # A release needs the key's timelines and the shared clocks: the later of both.
    if len(ready.moment) > 0:
        shared, record = ready_of(ready, rows, timers, part.pending_entry[0])
        if shared >= moment:
            moment, by = shared, record
    if delayed_end < moment:
        moment, by = delayed_end, TIMER
    return moment, by
