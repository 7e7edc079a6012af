"""What admission takes and gives, as tables of numbers: see `runtime.admission.per_key`."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.compiled import inlined, kernel

Integers = NDArray[np.int64]


class Standing(IntEnum):
    """What a row is before admission."""

    WINDOW = 0  # released in an earlier call
    PENDING = 1  # admitted in an earlier call, not definitive then
    NEW = 2


class Waited(IntEnum):
    """Why an event was not definitive when it arrived."""

    NONE = 0  # released in the step of its own record
    WAIT = 1  # for definitive time: the clock, another record, a heartbeat
    REORDER = 2  # for the end of a reorder buffer
    LEEWAY = 3  # it was delayed and held; something prompt released it before its buffer ended


class Rows(NamedTuple):
    """All rows of a call, kept ones first; `key_rows[start[k]:start[k + 1]]` are those of key k, in order of arrival.

    The other columns are by row: `key` (-1: none), `standing`, `input` (-1: none), `beats` (bits of the inputs that the record is a heartbeat of; empty:
    of none at all), `time`, `arrival`, and `ripe`: when the buffer of a held event ends, NO_TIME for all others.
    """

    start: Integers
    key_rows: NDArray[np.int32]
    key: Integers
    standing: NDArray[np.int8]
    input: NDArray[np.int16]
    beats: Integers
    time: Integers
    arrival: Integers
    ripe: Integers
    first_new: int


class Punctuation(NamedTuple):
    """Heartbeats for every key, and the leeway in force: from row `leeway_row[j]` on, `leeway[j]` and `reorder[j]`, by input."""

    beat_row: Integers
    beat_mask: Integers
    beat_time: Integers
    beat_arrival: Integers
    leeway_row: Integers
    leeway: Integers
    reorder: Integers


class Ready(NamedTuple):
    """When the clocks that keys share have reached each row's time, and each timer's: a moment and the number of the new
    record that brings it, -1 for a timer; NEVER: not before another record. Empty where there are no such clocks."""

    moment: Integers
    row: Integers
    timer_moment: Integers
    timer_row: Integers


class Timers(NamedTuple):
    """Moments that the query waits for: those of key k are `start[k]` to `start[k + 1]`; `time`: when each is due.

    `emitted`, `definitive`, `step` are filled as those of released events, where `time` has become definitive; `emitted`
    of the others is NO_TIME. Timer t is number `first + t`: at equal times it stands behind all events.
    """

    start: Integers
    time: Integers
    emitted: Integers
    definitive: Integers
    step: Integers
    first: int


def no_timers(keys: int, rows: int) -> Timers:
    """None at all, for so many keys and rows."""
    none = np.empty(0, np.int64)
    return Timers(np.zeros(keys + 1, np.int64), none, none, none, none, rows)


NO_CLOCKS = Ready(*(np.empty(0, np.int64) for _ in range(4)))
"""What there is to say where every timeline belongs to one key."""


class Released(NamedTuple):
    """Events by position: `order[start[k]:fresh[k]]` are key k's window rows, from `fresh[k]` to `start[k + 1]` the released ones;
    `time` and `input` are those of the events, so that nobody has to look them up by row.

    `emitted`, `definitive`, `waited`, `step` stand at the positions of released rows. `step` is the number of the new
    row whose step released it, -1 for a timer. `pending[pending_start[k]:...]` are the rows still pending, in order.
    `due`, by key: when time alone does something to it, NEVER: not at all.
    `verdict` and the bound that refused stand by new row. `definitive` is that of the key's own timelines, NEVER without any.
    """

    start: Integers
    fresh: Integers
    order: NDArray[np.int32]
    time: Integers
    input: NDArray[np.int16]
    emitted: Integers
    definitive: Integers
    waited: NDArray[np.int8]
    step: Integers
    verdict: NDArray[np.int8]
    verdict_bound: Integers
    pending_start: Integers
    pending: NDArray[np.int32]
    due: Integers


class Came(NamedTuple):
    """Arrival, time and input of rows, one key after the other: `Rows.key_rows` looked up."""

    arrival: Integers
    time: Integers
    input: NDArray[np.int16]


@kernel
def in_key_order(rows: Rows) -> Came:
    """Arrival, time and input one key after the other, so that the loop over keys reads memory in order."""
    count = len(rows.key_rows)
    came = Came(np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int16))
    next_of = rows.start[:-1].copy()
    for row in range(len(rows.key)):  # writing here and there is faster than reading so
        if rows.key[row] >= 0:
            at = next_of[rows.key[row]]
            next_of[rows.key[row]] = at + 1
            came.arrival[at] = rows.arrival[row]
            came.time[at] = rows.time[row]
            came.input[at] = rows.input[row]
    return came


@inlined
def ready_of(ready: Ready, rows: Rows, timers: Timers, number: int) -> tuple[int, int]:
    """When the shared clocks let the oldest pending event go, or the timer."""
    if number >= timers.first:
        return ready.timer_moment[number - timers.first], ready.timer_row[number - timers.first]
    return ready.moment[rows.key_rows[number]], ready.row[rows.key_rows[number]]


@inlined
def is_ready(ready: Ready, rows: Rows, timers: Timers, number: int, now: int, row: int) -> bool:
    """Whether the shared clocks let an event or timer go at (now, row)."""
    if len(ready.moment) == 0:
        return True
    moment, by = ready_of(ready, rows, timers, number)
    return moment < now or (moment == now and by <= row)


@inlined
def release(
    rows: Rows,
    came: Came,
    released: Released,
    timers: Timers,
    number: int,
    out: int,
    now: int,
    reached: int,
    waited: int,
    step: int,
) -> int:
    """Writes down the release of an event, or that a timer is over; gives the next free position.

    `number`: the event's place among `Rows.key_rows`, or the timer's.
    """
    if number >= timers.first:
        timer = number - timers.first
        timers.emitted[timer] = now
        timers.definitive[timer] = reached
        timers.step[timer] = step
    else:
        released.order[out] = rows.key_rows[number]
        released.time[out] = came.time[number]
        released.input[out] = came.input[number]
        released.emitted[out] = now
        released.definitive[out] = reached
        released.waited[out] = waited
        released.step[out] = step
        out += 1
    return out
