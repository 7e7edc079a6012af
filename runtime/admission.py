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

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from runtime.batch import NO_TIME
from runtime.compiled import kernel
from runtime.controls import NEVER
from runtime.time_policy import NO_WAIT

Integers = NDArray[np.int64]


class Standing(IntEnum):
    """What a row is before admission."""

    WINDOW = 0  # released in an earlier call
    PENDING = 1  # admitted in an earlier call, not definitive then
    NEW = 2


class Verdict(IntEnum):
    """Why a new record was refused."""

    ADMITTED = 0
    LATE = 1
    OUT_OF_ORDER = 2


class Waited(IntEnum):
    """Why an event was not definitive when it arrived."""

    NONE = 0  # released in the step of its own record
    WAIT = 1  # for definitive time: the clock, another record, a heartbeat
    REORDER = 2  # for the end of a reorder buffer
    LEEWAY = 3  # it was delayed and held; something prompt released it before its buffer ended


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a call. `number[row]` in `key_rows` order; `start[k]:start[k + 1]` are the rows of key k."""

    start: Integers
    key_rows: NDArray[np.int32]
    standing: NDArray[np.int8]
    input: NDArray[np.int16]
    beats: Integers
    time: Integers
    arrival: Integers
    ripe: Integers
    first_new: int


@dataclass(frozen=True, slots=True)
class Punctuation:
    """Heartbeats for every key, and the leeway in force: from row `leeway_row[j]` on, `leeway[j]` and `reorder[j]`."""

    beat_row: Integers
    beat_mask: Integers
    beat_time: Integers
    beat_arrival: Integers
    leeway_row: Integers
    leeway: Integers
    reorder: Integers


@dataclass(frozen=True, slots=True)
class Admitted:
    """By position: `order[start[k]:fresh[k]]` are key k's window rows, from `fresh[k]` to `start[k + 1]` the released ones.

    `emitted`, `definitive`, `waited`, `step` stand at the positions of released rows. `step` is the number of the new
    row whose step released it, -1 for a timer. `pending[pending_start[k]:...]` are the rows still pending, in order.
    """

    start: Integers
    fresh: Integers
    order: NDArray[np.int32]
    emitted: Integers
    definitive: Integers
    waited: NDArray[np.int8]
    step: Integers
    verdict: NDArray[np.int8]
    verdict_bound: Integers
    pending_start: Integers
    pending: NDArray[np.int32]
    next_due: int
    last_due: int


def admit(
    rows: Rows,
    punctuation: Punctuation,
    delay: Integers,
    moves: NDArray[np.bool_],
    bounds: Integers,
    everywhere: Integers,
    limit: int,
) -> Admitted:
    """Judges and releases; runs timers up to `limit` (NEVER: until nothing is due).

    Changes in place: `bounds` (keys, inputs), `rows.time` of inputs without wait (their arrival), `rows.ripe` of records that
    are held (when their buffer ends; NO_TIME for the others), `everywhere` (inputs).
    """
    count, keys = len(rows.key_rows), len(rows.start) - 1
    start, fresh = np.zeros(keys + 1, np.int64), np.zeros(keys, np.int64)
    order = np.empty(count, np.int32)
    emitted, definitive, step = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    waited = np.zeros(count, np.int8)
    verdict = np.zeros(len(rows.time) - rows.first_new, np.int8)
    verdict_bound = np.full(len(verdict), NO_TIME, np.int64)
    pending_start, pending = np.zeros(keys + 1, np.int64), np.empty(count, np.int32)
    next_due, last_due = _admit(
        rows.start, rows.key_rows, rows.standing, rows.input, rows.beats, rows.time, rows.arrival, rows.ripe,
        rows.first_new,
        punctuation.beat_row, punctuation.beat_mask, punctuation.beat_time, punctuation.beat_arrival,
        punctuation.leeway_row, punctuation.leeway, punctuation.reorder,
        delay, moves, bounds, everywhere, limit,
        start, fresh, order, emitted, definitive, waited, step, verdict, verdict_bound, pending_start, pending,
    )  # fmt: skip
    for at in range(len(punctuation.beat_row)):
        for item in range(len(delay)):
            if punctuation.beat_mask[at] >> item & 1:
                everywhere[item] = max(everywhere[item], punctuation.beat_time[at])
    released = int(start[-1])
    return Admitted(
        start, fresh, order[:released], emitted[:released], definitive[:released], waited[:released], step[:released],
        verdict, verdict_bound, pending_start, pending[: pending_start[-1]], int(next_due), int(last_due),
    )  # fmt: skip


@kernel
def _push(times: Integers, numbers: Integers, size: int, time: int, number: int) -> None:
    """Adds to the heap of `size` entries, least (time, number) on top."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if times[above] < time or (times[above] == time and numbers[above] < number):
            break
        times[at] = times[above]
        numbers[at] = numbers[above]
        at = above
    times[at] = time
    numbers[at] = number


@kernel
def _pop(times: Integers, numbers: Integers, size: int) -> None:
    """Takes the top from the heap of `size` entries."""
    last = size - 1
    time, number = times[last], numbers[last]
    at = 0
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


@kernel
def _settle(
    now: int, delay: Integers, bound: Integers, common: Integers, held_time: Integers, held_ripe: Integers, held: Integers
) -> tuple[int, bool]:
    """Lets ripe held times move the bounds; the query's definitive time at `now`, and whether a held time was ripe.

    A held time is ripe when its buffer is over and no older one is held; at or below its input's bound it is not held.
    """
    least, ripened = NEVER, False
    for item in range(len(delay)):
        reached = now if delay[item] == NO_WAIT else max(max(bound[item], common[item]), now - delay[item])
        while held[item] > 0:
            oldest = held_time[item, 0]
            if oldest > reached:
                if held_ripe[item, 0] > now:
                    break
                bound[item] = oldest
                reached = oldest
                ripened = True
            _pop(held_time[item], held_ripe[item], held[item])
            held[item] -= 1
        least = min(least, reached)
    return least, ripened


@kernel
def _next_due(
    time: int, delay: Integers, bound: Integers, common: Integers, held_time: Integers, held_ripe: Integers, held: Integers
) -> int:
    """The earliest moment at which time alone releases the oldest pending event (`time`) or ends a held time."""
    release, soonest = NO_TIME, NEVER
    for item in range(len(delay)):
        if delay[item] == NO_WAIT:
            release = max(release, time)
        elif max(bound[item], common[item]) < time:
            release = max(release, time + delay[item])
        if held[item] > 0:
            soonest = min(soonest, min(held_ripe[item, 0], held_time[item, 0] + delay[item]))
    return min(release, soonest)


@kernel
def _admit(
    key_start: Integers,
    key_rows: NDArray[np.int32],
    standing: NDArray[np.int8],
    input_of: NDArray[np.int16],
    beats: Integers,
    time: Integers,
    arrival: Integers,
    ripe: Integers,
    first_new: int,
    beat_row: Integers,
    beat_mask: Integers,
    beat_time: Integers,
    beat_arrival: Integers,
    leeway_row: Integers,
    leeway: Integers,
    reorder: Integers,
    delay: Integers,
    moves: NDArray[np.bool_],
    bounds: Integers,
    everywhere: Integers,
    limit: int,
    start: Integers,
    fresh: Integers,
    order: NDArray[np.int32],
    emitted: Integers,
    definitive: Integers,
    waited: NDArray[np.int8],
    step: Integers,
    verdict: NDArray[np.int8],
    verdict_bound: Integers,
    pending_start: Integers,
    pending: NDArray[np.int32],
) -> tuple[int, int]:
    """`admit` over plain arrays; gives the next moment at which something is due, and the last one that was run."""
    keys, inputs, beat_count = len(key_start) - 1, len(delay), len(beat_row)
    widest = 1
    for key in range(keys):
        widest = max(widest, key_start[key + 1] - key_start[key])
    heap_time, heap_row = np.empty(widest, np.int64), np.empty(widest, np.int64)
    held_time, held_ripe = np.empty((inputs, widest), np.int64), np.empty((inputs, widest), np.int64)
    held, common = np.zeros(inputs, np.int64), np.empty(inputs, np.int64)
    out, left, next_due, last_due = 0, 0, NEVER, NO_TIME
    any_beats = beats.any()
    longest = max(0, delay.max())
    nowhere = everywhere.max() == NO_TIME
    # by key, one after the other: the loop below then reads memory in order
    came, moments, kinds = np.empty(len(key_rows), np.int64), np.empty(len(key_rows), np.int64), np.empty(len(key_rows), np.int16)
    for at in range(len(key_rows)):
        row = key_rows[at]
        came[at] = arrival[row]
        moments[at] = time[row]
        kinds[at] = input_of[row]

    for key in range(keys):
        bound = bounds[key]
        at, end = key_start[key], key_start[key + 1]
        size, next_beat, era = 0, 0, 0
        held[:] = 0
        common[:] = everywhere
        # quiet: only the clock has moved this key's timelines so far, and nothing is held
        quiet = nowhere and bound.max() == NO_TIME
        start[key] = out
        while at < end and key_rows[at] < first_new and standing[key_rows[at]] == 0:
            order[out] = key_rows[at]
            out += 1
            at += 1
        fresh[key] = out
        while at < end and key_rows[at] < first_new:
            row = key_rows[at]
            _push(heap_time, heap_row, size, time[row], row)
            size += 1
            if ripe[row] != NO_TIME:
                item = input_of[row]
                _push(held_time[item], held_ripe[item], held[item], time[row], ripe[row])
                held[item] += 1
                quiet = False
            at += 1

        while True:
            # what is next: a record of this key, a heartbeat for every key, or the end
            row = key_rows[at] if at < end else -1
            is_beat = next_beat < beat_count and (row < 0 or beat_row[next_beat] < row)
            if is_beat:
                now = beat_arrival[next_beat]
            else:
                now = came[at] if row >= 0 else limit
            # timers first
            while size > 0:
                if quiet:
                    due = heap_time[0] + longest
                else:
                    due = _next_due(heap_time[0], delay, bound, common, held_time, held_ripe, held)
                if due > now or due >= NEVER:
                    break
                last_due = max(last_due, due)
                reached, ripened = due - longest, False
                if not quiet:
                    reached, ripened = _settle(due, delay, bound, common, held_time, held_ripe, held)
                while size > 0 and heap_time[0] <= reached:
                    order[out] = heap_row[0]
                    emitted[out] = due
                    definitive[out] = reached
                    waited[out] = 2 if ripened else 1
                    step[out] = -1
                    out += 1
                    _pop(heap_time, heap_row, size)
                    size -= 1
            if is_beat:
                quiet = False
                for item in range(inputs):
                    if beat_mask[next_beat] >> item & 1:
                        common[item] = max(common[item], beat_time[next_beat])
                row = beat_row[next_beat]
                next_beat += 1
            elif row < 0:
                break
            else:
                item = kinds[at]
                moment = moments[at]
                at += 1
                if any_beats and beats[row] != 0:
                    quiet = False
                    for other in range(inputs):
                        if beats[row] >> other & 1:
                            bound[other] = max(bound[other], time[row])
                if item >= 0:
                    if delay[item] == NO_WAIT:
                        moment = now
                        time[row] = now
                        admitted = True
                    else:
                        reached = max(max(bound[item], common[item]), now - delay[item])
                        admitted = moment >= reached
                        if not admitted:
                            verdict[row - first_new] = 1 if moment < now - delay[item] else 2
                            verdict_bound[row - first_new] = reached
                        elif moves[item]:
                            quiet = False
                            while era + 1 < len(leeway_row) and leeway_row[era + 1] <= row:
                                era += 1
                            if now - moment > leeway[era]:
                                ripe[row] = NEVER if reorder[era] >= NEVER else now + reorder[era]
                                _push(held_time[item], held_ripe[item], held[item], moment, ripe[row])
                                held[item] += 1
                            else:
                                bound[item] = moment
                    if admitted:
                        _push(heap_time, heap_row, size, moment, row)
                        size += 1
            # what the record, or the heartbeat, made definitive
            reached = now - longest
            if not quiet:
                reached, _ = _settle(now, delay, bound, common, held_time, held_ripe, held)
            while size > 0 and heap_time[0] <= reached:
                other_row = heap_row[0]
                order[out] = other_row
                emitted[out] = now
                definitive[out] = reached
                if other_row == row:
                    waited[out] = 0
                else:
                    waited[out] = 3 if ripe[other_row] != NO_TIME else 1
                step[out] = row - first_new
                out += 1
                _pop(heap_time, heap_row, size)
                size -= 1

        if size > 0:
            due = _next_due(heap_time[0], delay, bound, common, held_time, held_ripe, held)
            next_due = min(next_due, due)
        pending_start[key] = left
        while size > 0:
            pending[left] = heap_row[0]
            left += 1
            _pop(heap_time, heap_row, size)
            size -= 1
    start[keys] = out
    pending_start[keys] = left
    return next_due, last_due
