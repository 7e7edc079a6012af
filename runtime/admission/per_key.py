"""Who is admitted, and when it is definitive: the rules of time, key by key.

Takes the records of a batch grouped by key, in order of arrival, with what earlier calls left pending; gives for each key its
events in the partition's total order (time, arrival, arrival number) with the moment at which each was released, the verdict on
each refused record, and what stays pending. Matching is none of its business. Timers are logical: before a record
is judged, everything due by its arrival is run, in due order, stamped with the moment at which it was due; so the
answer does not depend on how records are cut into calls.

A record's number is its row in [rows kept from before, new rows in order of arrival]; at equal times the smaller number is
first, which is the total order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.admission.arrays import (
    NO_CLOCKS,
    Punctuation,
    Ready,
    Released,
    Rows,
    Timers,
    in_key_order,
    is_ready,
    no_timers,
    ready_of,
    release,
)
from runtime.admission.heaps import pop, push
from runtime.admission.per_key_sorted import admit_simply
from runtime.admission.rules import Settings, judge
from runtime.admission.workspace import Case, Facts, Progress, Room, facts_of, new_room
from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER, NO_TIME
from runtime.policies.per_input import BY_CLOCK, NO_WAIT, PolicyColumns

Integers = NDArray[np.int64]


class Admitted(NamedTuple):
    """What `admit` gives; `next_due`: when time alone will do something (NEVER: nothing waits), `last_due`: when it did last, or a
    record let go what had waited."""

    released: Released
    next_due: int
    last_due: int


class _Partition(NamedTuple):
    """Working memory for the key at hand. `bound`, `common`: what each input's timeline has reached by its own records and heartbeats,
    and by heartbeats for every key; `held`: how many entries the heap of held times has, by input; `pending`: a heap."""

    delay: Integers
    bound: Integers
    common: Integers
    held_time: Integers
    held_ripe: Integers
    held: Integers
    pending_time: Integers
    pending_number: Integers
    longest: int


def admit(
    rows: Rows,
    punctuation: Punctuation,
    policies: PolicyColumns,
    bounds: Integers,
    everywhere: Integers,
    limit: int,
    judged: tuple[NDArray[np.int8], Integers],
    timers: Timers | None = None,
    ready: Ready = NO_CLOCKS,
) -> Admitted:
    """Judges and releases; runs timers up to `limit` (NEVER: until nothing is due).

    `judged`: verdicts, and the bounds that refused, of new rows that a shared clock has judged; `ready`: when it lets them go.
    Changes in place: `bounds` (keys, inputs), `rows.time` of inputs without wait (their arrival), `rows.ripe` of records that
    are held, `everywhere` (inputs), and what came of `timers`.
    """
    count, keys, delay = len(rows.key_rows), len(rows.start) - 1, policies.delay
    released = Released(
        start=np.zeros(keys + 1, np.int64),
        fresh=np.zeros(keys, np.int64),
        order=np.empty(count, np.int32),
        time=np.empty(count, np.int64),
        input=np.empty(count, np.int16),
        emitted=np.empty(count, np.int64),
        definitive=np.empty(count, np.int64),
        waited=np.zeros(count, np.int8),
        step=np.empty(count, np.int64),
        verdict=judged[0].copy(),
        verdict_bound=judged[1].copy(),
        pending_start=np.zeros(keys + 1, np.int64),
        pending=np.empty(count, np.int32),
        due=np.full(keys, NEVER, np.int64),
    )
    awaited = no_timers(keys, len(rows.time)) if timers is None else timers
    case = Case(rows, in_key_order(rows), punctuation, policies, bounds, everywhere, limit, awaited, ready, released)
    next_due, last_due = _admit_all(case, facts_of(case), new_room(case))
    for at in range(len(punctuation.beat_row)):
        for item in range(len(delay)):
            if punctuation.beat_mask[at] >> item & 1:
                everywhere[item] = max(everywhere[item], punctuation.beat_time[at])
    positions = int(released.start[-1])
    trimmed = {name: getattr(released, name)[:positions] for name in _BY_POSITION}
    pending = released.pending[: released.pending_start[-1]]
    return Admitted(released._replace(**trimmed, pending=pending), int(next_due), int(last_due))


_BY_POSITION = ("order", "time", "input", "emitted", "definitive", "waited", "step")


@borrowing
def _is_unmoved(bounds: Integers) -> bool:
    """Whether only the clock has moved a key's timelines."""
    moved = 0
    for bound in bounds:
        moved += bound != NO_TIME
    return moved == 0


@inlined
def _settle(partition: _Partition, now: int) -> tuple[int, bool]:
    """Lets ripe held times move the bounds; the query's definitive time at `now`, and whether a held time was ripe.

    A held time is ripe when its buffer is over and no older one is held; at or below its input's bound it is not held.
    """
    delay, held, least, ripened = partition.delay, partition.held, NEVER, False
    for item in range(len(delay)):
        reached = now
        if delay[item] == BY_CLOCK:
            continue
        if delay[item] != NO_WAIT:
            reached = max(partition.bound[item], partition.common[item], now - delay[item])
        while held[item] > 0:
            oldest = partition.held_time[item, 0]
            if oldest > reached:
                if partition.held_ripe[item, 0] > now:
                    break
                partition.bound[item] = oldest
                reached = oldest
                ripened = True
            pop(partition.held_time[item], partition.held_ripe[item], held[item])
            held[item] -= 1
        least = min(least, reached)
    return least, ripened


@inlined
def _next_due(partition: _Partition) -> tuple[int, int]:
    """The earliest moment at which time alone brings the key's own timelines to the oldest pending event; and one at
    which it ends a held time."""
    time, delay = partition.pending_time[0], partition.delay
    release, soonest = NO_TIME, NEVER
    for item in range(len(delay)):
        if delay[item] == BY_CLOCK:
            continue
        if delay[item] == NO_WAIT:
            release = max(release, time)
        elif max(partition.bound[item], partition.common[item]) < time:
            release = max(release, time + delay[item])
        if partition.held[item] > 0:
            over = partition.held_time[item, 0] + delay[item]
            soonest = min(soonest, partition.held_ripe[item, 0], over)
    return release, soonest


@inlined
def _due(partition: _Partition, ready: Ready, rows: Rows, timers: Timers) -> tuple[int, int]:
    """When something happens to the oldest pending event of a key: the moment, and the number of the new record that brings it, -1
    for a timer."""
    moment, soonest = _next_due(partition)
    row = -1
    if len(ready.moment) > 0:
        shared, by = ready_of(ready, rows, timers, partition.pending_number[0])
        if shared >= moment:
            moment, row = shared, by
    if soonest < moment:
        moment, row = soonest, -1
    return moment, row


@inlined
def _hold(partition: _Partition, item: int, time: int, ripe: int) -> None:
    """Adds a held time to its input's."""
    push(partition.held_time[item], partition.held_ripe[item], partition.held[item], time, ripe)
    partition.held[item] += 1


@inlined
def _beat(timelines: Integers, mask: int, time: int) -> None:
    """A heartbeat moves the timelines of the inputs in `mask` at once, however late it is."""
    for item in range(len(timelines)):
        if mask >> item & 1:
            timelines[item] = max(timelines[item], time)


@inlined
def _why(released_by_own_record: bool, was_held: bool) -> int:
    """Why an event that a record released had waited (`Waited`)."""
    if released_by_own_record:
        return 0
    return 3 if was_held else 1


@borrowing
def _admit_all(case: Case, facts: Facts, room: Room) -> tuple[int, int]:
    """Fills `released`, key by key; gives the next moment at which something is due, and the last one at which something was."""
    keys = len(case.rows.start) - 1
    progress = Progress(0, 0, 0, NEVER, NO_TIME)
    while progress.key < keys:
        if facts.may_be_simple:
            progress = admit_simply(case, facts, room, progress)
        if progress.key < keys:
            stop = progress.key + 1 if facts.may_be_simple else keys
            progress = _admit(case, facts, room, progress, stop)
    case.released.start[keys] = progress.out
    case.released.pending_start[keys] = progress.left
    return progress.next_due, progress.last_due


@borrowing
def _admit(case: Case, facts: Facts, room: Room, progress: Progress, stop: int) -> Progress:
    """Fills `released` up to the key before `stop`: record by record, with heaps of what waits and of what is held."""
    rows, came, punctuation, policies, bounds, everywhere, limit, timers, ready, released = case
    first, out, left, next_due, last_due = progress
    beat_count, first_new, key_rows = len(punctuation.beat_row), rows.first_new, rows.key_rows
    delay, moves, early = policies.delay, policies.moves, policies.early
    common, held_time, held_ripe, held = room.common, room.held_time, room.held_ripe, room.held
    pending_time, pending_number = room.pending_time, room.pending_number
    longest, any_beats = facts.longest, facts.any_beats
    times, inputs_of = came.time, came.input

    for key in range(first, stop):
        partition = _Partition(
            delay, bounds[key], common, held_time, held_ripe, held, pending_time, pending_number, longest
        )
        at, end, size, next_beat, era = rows.start[key], rows.start[key + 1], 0, 0, 0
        for item in range(len(delay)):
            held[item] = 0
            common[item] = everywhere[item]
        # quiet: only the clock has moved this key's timelines, and nothing is held: definitive time is now - longest
        quiet, may_be_sooner = facts.may_be_quiet and _is_unmoved(bounds[key]), facts.is_shared

        # what earlier calls have left: the window's rows, then the pending ones
        released.start[key] = out
        while at < end and key_rows[at] < first_new and rows.standing[key_rows[at]] == 0:
            released.order[out] = key_rows[at]
            released.time[out] = times[at]
            released.input[out] = inputs_of[at]
            out += 1
            at += 1
        released.fresh[key] = out
        while at < end and key_rows[at] < first_new:
            row = key_rows[at]
            push(pending_time, pending_number, size, times[at], at)
            size += 1
            if rows.ripe[row] != NO_TIME:
                _hold(partition, inputs_of[at], times[at], rows.ripe[row])
                quiet, may_be_sooner = False, True
            at += 1
        for timer in range(timers.start[key], timers.start[key + 1]):
            push(pending_time, pending_number, size, timers.time[timer], timers.first + timer)
            size += 1

        while True:
            # what is next: a record of this key, a heartbeat for every key, or the end
            row, current = key_rows[at] if at < end else -1, at
            is_beat = next_beat < beat_count and (row < 0 or punctuation.beat_row[next_beat] < row)
            now, before = limit, row
            if is_beat:
                now, before = punctuation.beat_arrival[next_beat], punctuation.beat_row[next_beat]
            elif row >= 0:
                now = came.arrival[at]

            # timers first; nothing that waits is due before the least delay is over, but for held times and shared clocks
            while size > 0 and (quiet or may_be_sooner or pending_time[0] + facts.shortest <= now):
                due, by = pending_time[0] + longest, -1
                if not quiet:
                    due, by = _due(partition, ready, rows, timers)
                if due > now or due >= NEVER or (by >= 0 and due == now and before >= 0 and by >= before - first_new):
                    break
                last_due = max(last_due, due)
                reached, ripened = due - longest, False
                if not quiet:
                    reached, ripened = _settle(partition, due)
                while (
                    size > 0
                    and pending_time[0] <= reached
                    and is_ready(ready, rows, timers, pending_number[0], due, by)
                ):
                    waited = 2 if ripened else 1
                    out = release(rows, came, released, timers, pending_number[0], out, due, reached, waited, by)
                    pop(pending_time, pending_number, size)
                    size -= 1

            # then the heartbeat, or the record
            if is_beat:
                quiet = False
                _beat(common, punctuation.beat_mask[next_beat], punctuation.beat_time[next_beat])
                row, current = punctuation.beat_row[next_beat], -1
                next_beat += 1
            elif row < 0:
                break
            else:
                item, moment = inputs_of[at], times[at]
                at += 1
                if any_beats and rows.beats[row] != 0:
                    quiet = False
                    _beat(partition.bound, rows.beats[row], moment)
                admitted = item >= 0
                if admitted and delay[item] == NO_WAIT:
                    moment = now
                    rows.time[row] = now
                    times[current] = now
                elif admitted and delay[item] == BY_CLOCK:
                    admitted = released.verdict[row - first_new] == 0
                elif admitted:
                    floor = max(partition.bound[item], common[item], now - delay[item])
                    judged = judge(
                        Settings(early[item], delay[item], 0, 1, 0, NEVER, 0), floor, moment, now, 0, NO_TIME
                    )
                    if not judged.is_admitted:
                        admitted = False
                        released.verdict[row - first_new] = judged.reason
                        released.verdict_bound[row - first_new] = judged.bound
                    elif moves[item]:
                        quiet = False
                        while era + 1 < len(punctuation.leeway_row) and punctuation.leeway_row[era + 1] <= row:
                            era += 1
                        if now - moment > punctuation.leeway[era, item]:
                            buffer = punctuation.reorder[era, item]
                            rows.ripe[row] = NEVER if buffer >= NEVER else now + buffer
                            _hold(partition, item, moment, rows.ripe[row])
                            may_be_sooner = True
                        else:
                            partition.bound[item] = moment
                if admitted:
                    push(pending_time, pending_number, size, moment, current)
                    size += 1

            # and what that made definitive
            reached = now - longest
            if not quiet:
                reached, _ = _settle(partition, now)
            while (
                size > 0
                and pending_time[0] <= reached
                and is_ready(ready, rows, timers, pending_number[0], now, row - first_new)
            ):
                other = pending_number[0]
                held_back = other < timers.first and rows.ripe[key_rows[other]] != NO_TIME
                waited = _why(other == current, held_back)
                out = release(rows, came, released, timers, other, out, now, reached, waited, row - first_new)
                pop(pending_time, pending_number, size)
                size -= 1

        if size > 0:
            released.due[key] = _due(partition, ready, rows, timers)[0]
            next_due = min(next_due, released.due[key])
        released.pending_start[key] = left
        while size > 0:
            if pending_number[0] < timers.first:
                released.pending[left] = key_rows[pending_number[0]]
                left += 1
            pop(pending_time, pending_number, size)
            size -= 1
    return Progress(stop, out, left, next_due, last_due)
