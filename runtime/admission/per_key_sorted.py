"""Admission of keys whose timelines go with the arrival clock and with records that come in order.

Then the moment of each event's release is known from the events alone: an event is released when all of the key's timelines have
reached it, each by the clock or by the first record that is as new. Events are sorted once, and a pointer for each
timeline goes along. It gives what `runtime.admission.per_key` gives for all other keys as well, at several times the cost: for those
with delayed events that are held, and in calls with heartbeats.
"""

from __future__ import annotations

from runtime.admission.arrays import (
    Came,
    Integers,
    Punctuation,
    Released,
    Rows,
    Timers,
    is_ready,
    ready_of,
    release,
)
from runtime.admission.heaps import pop, push
from runtime.admission.rules import Settings, judge
from runtime.admission.workspace import Case, Facts, Progress, Room, Steps
from runtime.compiled import borrowing, inlined
from runtime.instants import NEVER, NO_TIME
from runtime.policies.per_input import BY_CLOCK, NO_WAIT, PolicyColumns

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


@inlined
def _collect(
    rows: Rows,
    came: Came,
    timers: Timers,
    key: int,
    at: int,
    policies: PolicyColumns,
    punctuation: Punctuation,
    floor: Integers,
    everywhere: Integers,
    released: Released,
    steps: Steps,
    times: Integers,
    numbers: Integers,
) -> int:
    """A key's pending rows, its new ones that are admitted, its timers, in this order; gives how many there are, -1: an event is held.

    `floor`: how far earlier calls have brought the timelines. What it has written down of a key with held events is written again.
    """
    size, first_new, delay, era = 0, rows.first_new, policies.delay, 0
    for place in range(at, rows.start[key + 1]):
        row, item, time = rows.key_rows[place], came.input[place], came.time[place]
        admitted = item >= 0
        if row < first_new:
            if rows.ripe[row] != NO_TIME:
                return -1
        elif admitted:
            now = came.arrival[place]
            if delay[item] == NO_WAIT:
                time = now
                rows.time[row] = now
                came.time[place] = now
            elif delay[item] == BY_CLOCK:
                admitted = released.verdict[row - first_new] == 0
            else:
                reached = max(floor[item], everywhere[item])
                if steps.size[item] > 0:
                    reached = max(reached, steps.time[item, steps.size[item] - 1])
                settings = Settings(policies.early[item], delay[item], 0, 1, 0, NEVER, 0)
                judged = judge(settings, max(reached, now - delay[item]), time, now, 0, NO_TIME)
                admitted = judged.is_admitted
                if not admitted:
                    released.verdict[row - first_new] = judged.reason
                    released.verdict_bound[row - first_new] = judged.bound
                elif policies.moves[item]:
                    while era + 1 < len(punctuation.leeway_row) and punctuation.leeway_row[era + 1] <= row:
                        era += 1
                    if now - time > punctuation.leeway[era, item]:
                        return -1
                    if time > reached:
                        steps.time[item, steps.size[item]] = time
                        steps.place[item, steps.size[item]] = place
                        steps.size[item] += 1
        if admitted:
            times[size] = time
            numbers[size] = place
            size += 1
    for timer in range(timers.start[key], timers.start[key + 1]):
        times[size] = timers.time[timer]
        numbers[size] = timers.first + timer
        size += 1
    return size


@inlined
def _reached_at(
    rows: Rows, came: Came, delay: Integers, floor: Integers, everywhere: Integers, steps: Steps, time: int
) -> tuple[int, int]:
    """When all timelines have reached a time: the moment, NO_TIME if earlier calls had brought them there, and the new record that
    brings it, -1: the clock."""
    moment, by = NO_TIME, -1
    for item in range(len(delay)):
        if delay[item] != BY_CLOCK and (delay[item] == NO_WAIT or max(floor[item], everywhere[item]) < time):
            due, row = time, -1
            if delay[item] != NO_WAIT:
                due = time + delay[item]
                while steps.next[item] < steps.size[item] and steps.time[item, steps.next[item]] < time:
                    steps.next[item] += 1
                if steps.next[item] < steps.size[item]:
                    place = steps.place[item, steps.next[item]]
                    if came.arrival[place] < due:
                        due, row = came.arrival[place], rows.key_rows[place] - rows.first_new
            if due > moment or (due == moment and row > by):
                moment, by = due, row
    return moment, by


@inlined
def _definitive_at(
    rows: Rows,
    came: Came,
    delay: Integers,
    floor: Integers,
    everywhere: Integers,
    steps: Steps,
    moment: int,
    by: int,
) -> int:
    """How far all timelines have come at a moment, after the new record `by` if it is one."""
    least = NEVER
    for item in range(len(delay)):
        reached = moment
        if delay[item] == BY_CLOCK:
            reached = NEVER
        elif delay[item] != NO_WAIT:
            reached = max(floor[item], everywhere[item], moment - delay[item])
            goes_on = True
            while goes_on and steps.seen[item] < steps.size[item]:
                place = steps.place[item, steps.seen[item]]
                row = rows.key_rows[place] - rows.first_new
                goes_on = came.arrival[place] < moment or (came.arrival[place] == moment and row <= by)
                steps.seen[item] += goes_on
            if steps.seen[item] > 0:
                reached = max(reached, steps.time[item, steps.seen[item] - 1])
        least = min(least, reached)
    return least


@borrowing
def admit_simply(case: Case, facts: Facts, room: Room, progress: Progress) -> Progress:
    """Fills `released` and `bounds` from key to key, up to one that has a held event."""
    rows, came, punctuation, policies, bounds, everywhere, limit, timers, ready, released = case
    steps, times, numbers = room.steps, room.pending_time, room.pending_number
    longest, is_still = facts.longest_own, facts.is_still
    key, out, left, next_due, last_due = progress
    first_new, is_shared, delay = rows.first_new, len(ready.moment) > 0, policies.delay
    inputs = 0 if is_still else len(delay)
    while key < len(rows.start) - 1:
        begin, end = rows.start[key], rows.start[key + 1]
        at, floor, is_moved = begin, bounds[key], False
        for item in range(inputs):
            steps.size[item] = 0
            steps.next[item] = 0
            steps.seen[item] = 0
            is_moved = is_moved or floor[item] != NO_TIME or everywhere[item] != NO_TIME
        while at < end and rows.key_rows[at] < first_new and rows.standing[rows.key_rows[at]] == 0:
            at += 1
        size = _collect(
            rows, came, timers, key, at, policies, punctuation, floor, everywhere, released, steps, times, numbers
        )
        if size < 0:
            break
        released.start[key] = out
        for place in range(begin, at):
            released.order[out] = rows.key_rows[place]
            released.time[out] = came.time[place]
            released.input[out] = came.input[place]
            out += 1
        released.fresh[key] = out
        for item in range(inputs):
            is_moved = is_moved or steps.size[item] > 0
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
            if is_moved:
                due, other = _reached_at(rows, came, delay, floor, everywhere, steps, time)
                if due > moment or (due == moment and other > by):
                    moment, by = due, other
            elif longest >= 0 and time + longest > moment:
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
            if is_moved:
                reached = _definitive_at(rows, came, delay, floor, everywhere, steps, moment, by)
            else:
                reached = NEVER if longest < 0 else moment - longest
            out = release(rows, came, released, timers, number, out, moment, reached, waited, by)
        next_due = min(next_due, released.due[key])
        for item in range(inputs):
            if steps.size[item] > 0:
                floor[item] = steps.time[item, steps.size[item] - 1]
        key += 1
    return Progress(key, out, left, next_due, last_due)
