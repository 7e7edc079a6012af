"""Admission where a key's records do not move its clocks: each event's release is known from the event alone.

So it is with `@OutOfOrder` inputs and inputs without `wait`, as long as there are no heartbeats: definitive time is the arrival clock
less the longest delay; and with inputs that are judged by clocks that keys share (`runtime.clocks`). What comes out is what
`runtime.admission` gives for all other cases as well, at several times the cost.
"""

from __future__ import annotations

from runtime.admission_tables import Came, Integers, Ready, Released, Rows, Timers, is_ready, ready_of, release
from runtime.batch import NO_TIME
from runtime.compiled import borrowing
from runtime.controls import NEVER
from runtime.heaps import pop, push
from runtime.judging import Settings, judge
from runtime.time_policy import BY_CLOCK, NO_WAIT

PATIENCE = 16
"""Sorting by insertion is given up for a heap when it takes so many moves a record: arrivals are nearly in order, or not at all."""


@borrowing
def _sort(times: Integers, numbers: Integers, size: int) -> bool:
    """Sorts by (time, number), where numbers go up; False: it is a heap now, least on top."""
    moves, most = 0, PATIENCE * size
    for at in range(1, size):
        time, number, place = times[at], numbers[at], at
        while place > 0 and times[place - 1] > time:
            times[place] = times[place - 1]
            numbers[place] = numbers[place - 1]
            place -= 1
        times[place] = time
        numbers[place] = number
        moves += at - place
        if moves > most:
            for entry in range(size):
                push(times, numbers, entry, times[entry], numbers[entry])
            return False
    return True


@borrowing
def _collect(
    rows: Rows,
    came: Came,
    timers: Timers,
    key: int,
    at: int,
    delay: Integers,
    early: Integers,
    released: Released,
    times: Integers,
    numbers: Integers,
) -> int:
    """A key's pending rows, its new ones that are admitted, its timers, in this order; gives how many there are."""
    size, first_new = 0, rows.first_new
    for place in range(at, rows.start[key + 1]):
        row, item, time = rows.key_rows[place], came.input[place], came.time[place]
        admitted = item >= 0
        if admitted and row >= first_new:
            now = came.arrival[place]
            if delay[item] == NO_WAIT:
                time = now
                rows.time[row] = now
                came.time[place] = now
            elif delay[item] == BY_CLOCK:
                admitted = released.verdict[row - first_new] == 0
            else:
                settings = Settings(early[item], delay[item], 0, 0, 0, NEVER, 0)
                judged = judge(settings, now - delay[item], time, now, 0, NO_TIME)
                admitted = judged.is_admitted
                if not admitted:
                    released.verdict[row - first_new] = judged.reason
                    released.verdict_bound[row - first_new] = judged.bound
        if admitted:
            times[size] = time
            numbers[size] = place
            size += 1
    for timer in range(timers.start[key], timers.start[key + 1]):
        times[size] = timers.time[timer]
        numbers[size] = timers.first + timer
        size += 1
    return size


@borrowing
def admit_simply(
    rows: Rows,
    came: Came,
    delay: Integers,
    early: Integers,
    longest: int,
    limit: int,
    timers: Timers,
    ready: Ready,
    times: Integers,
    numbers: Integers,
    released: Released,
) -> tuple[int, int]:
    """Fills `released`; gives the next moment at which something is due, and the last one at which something was.

    `longest`: the largest delay of the key's own timelines, -1: it has none. `times`, `numbers`: room for one key.
    """
    out, left, next_due, last_due = 0, 0, NEVER, NO_TIME
    first_new, is_shared = rows.first_new, len(ready.moment) > 0
    for key in range(len(rows.start) - 1):
        at, end = rows.start[key], rows.start[key + 1]
        released.start[key] = out
        while at < end and rows.key_rows[at] < first_new and rows.standing[rows.key_rows[at]] == 0:
            released.order[out] = rows.key_rows[at]
            released.time[out] = came.time[at]
            released.input[out] = came.input[at]
            out += 1
            at += 1
        released.fresh[key] = out
        size = _collect(rows, came, timers, key, at, delay, early, released, times, numbers)
        is_sorted = _sort(times, numbers, size)
        released.pending_start[key] = left
        is_over = False
        for turn in range(size):
            place = turn if is_sorted else 0
            time, number = times[place], numbers[place]
            if not is_sorted:
                pop(times, numbers, size - turn)
            own, row = NO_TIME, -1
            if number < timers.first and rows.key_rows[number] >= first_new:
                own, row = came.arrival[number], rows.key_rows[number] - first_new
            moment, by = own, row
            if longest >= 0 and time + longest > moment:
                moment, by = time + longest, -1
            if is_shared and not is_ready(ready, rows, timers, number, moment, by):
                moment, by = ready_of(ready, rows, timers, number)
            is_over = is_over or moment > limit or moment >= NEVER
            if is_over:
                released.due[key] = min(released.due[key], moment)
                if number < timers.first:
                    released.pending[left] = rows.key_rows[number]
                    left += 1
                continue
            waited = 0 if moment == own and by == row and own != NO_TIME else 1
            if waited:
                last_due = max(last_due, moment)
            reached = NEVER if longest < 0 else moment - longest
            out = release(rows, came, released, timers, number, out, moment, reached, waited, by)
        next_due = min(next_due, released.due[key])
    released.start[len(rows.start) - 1] = out
    released.pending_start[len(rows.start) - 1] = left
    return next_due, last_due
