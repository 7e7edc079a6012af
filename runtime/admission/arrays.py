"""The arrays that admission reads and fills, and the steps on them that both of its kernels share.

Two ways to number things are used throughout. A *row* is an index into the columns of a call:
stored events first, then its new records in order of arrival. A *place* is an index into
`KeyedRows.key_rows`, where rows are grouped by key; a *new record* is numbered from
`KeyedRows.first_new`. An *entry* is what waits for its release: the place of an event, or
`Timers.first + t` for timer t.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.column_types import Integers
from runtime.compiling.compiled import inlined, kernel
from runtime.input_policies import PolicyColumns


class RowOrigin(IntEnum):
    """Where a row of a call comes from."""

    WINDOW = 0  # stored, and released by an earlier call
    PENDING = 1  # stored, and not definitive yet
    NEW = 2


class Waited(IntEnum):
    """Why an event was not definitive when it arrived."""

    NONE = 0  # it was: its own record released it
    WAIT = 1  # for definitive time: the clock, another record, a heartbeat
    REORDER = 2  # for the end of a reorder buffer
    LEEWAY = 3  # it was delayed, and a record in time released it before its buffer ended


TIMER = -1
"""In place of a new record's number: no record, arrival time alone."""


class BoundRule(IntEnum):
    """Whether a record advances its input's bound.

    BY_INPUT: as the input says
    IN_ORDER: yes: it was routed, and happens when it is
    OUT_OF_ORDER: no: it was routed, and has a time of its own
    """

    BY_INPUT = 0
    IN_ORDER = 1
    OUT_OF_ORDER = 2


class KeyedRows(NamedTuple):
    """All rows of a call, stored ones first.

    start: by key; `key_rows[start[k]:start[k + 1]]` are the rows of key k, in order of arrival
    key_rows: rows, grouped by key
    key: by row; -1 = no key
    origin: by row; a `RowOrigin`
    input: by row; the input that the record is an event of, -1 = none
    heartbeats: by row; bits of the inputs that the record is a heartbeat of; empty = no record is
        one
    time: by row; source time, µs
    arrival: by row; µs
    buffer_end: by row; when the reorder buffer of a delayed event ends, µs; NO_TIME = not delayed
    first_new: the first row that is a new record
    rule: by new record; a `BoundRule`; empty = of all the input says it
    """

    start: Integers
    key_rows: NDArray[np.int32]
    key: Integers
    origin: NDArray[np.int8]
    input: NDArray[np.int16]
    heartbeats: Integers
    time: Integers
    arrival: Integers
    buffer_end: Integers
    first_new: int
    rule: NDArray[np.int8]


class Punctuation(NamedTuple):
    """What concerns all keys at once, in order of arrival.

    heartbeat_row: the row of each heartbeat without a key
    heartbeat_mask: bits of the inputs that it is for
    heartbeat_time: the time up to which they are complete, µs
    heartbeat_arrival: µs
    leeway_row: the row from which on `leeway[j]` and `reorder[j]` hold
    leeway: by change and input, how far behind its arrival a record is still in time, µs
    reorder: by change and input, how long a delayed event is buffered, µs; NEVER = until a record
        in time releases it
    """

    heartbeat_row: Integers
    heartbeat_mask: Integers
    heartbeat_time: Integers
    heartbeat_arrival: Integers
    leeway_row: Integers
    leeway: Integers
    reorder: Integers


class Timelines(NamedTuple):
    """The bounds of the keys' timelines, µs; NO_TIME = only the clock has advanced it.

    bounds: by key and input, by the key's records and heartbeats
    everywhere: by input, by heartbeats for every key
    """

    bounds: Integers
    everywhere: Integers


class Ready(NamedTuple):
    """When the clocks that keys share reach the time of each row and timer.

    moment: by row, µs; NEVER = not before a record of a later call
    record: by row, the new record that advances the last clock there; TIMER = none
    timer_moment, timer_record: the same by timer

    All are empty if no clock is shared.
    """

    moment: Integers
    record: Integers
    timer_moment: Integers
    timer_record: Integers


class Timers(NamedTuple):
    """Times of which a query wants to know when they become definitive.

    start: by key; the timers of key k are `start[k]` to `start[k + 1]`
    time: by timer, µs
    emitted: by timer, the moment at which `time` became definitive; NO_TIME = not yet
    definitive: by timer, definitive time then, by the key's own timelines
    record: by timer, the new record that brought it; TIMER = none
    first: the entry of timer 0, above all places: at equal times a timer comes after all events
    """

    start: Integers
    time: Integers
    emitted: Integers
    definitive: Integers
    record: Integers
    first: int


def no_timers(keys: int, rows: int) -> Timers:
    """No timers, for so many keys and rows."""
    none = np.empty(0, np.int64)
    return Timers(np.zeros(keys + 1, np.int64), none, none, none, none, rows)


NO_CLOCKS = Ready(*(np.empty(0, np.int64) for _ in range(4)))
"""For queries of which every timeline belongs to one key."""


class Released(NamedTuple):
    """The outcome of admission: released events by position, refused records, pending events.

    start: by key; `order[start[k]:start[k + 1]]` are the events of key k in total order (time,
        arrival, number)
    fresh: by key; the first position that this call released; those before it are the stored window
    order: by position, the event's row
    time, input: by position, the event's
    emitted: by released position, the moment of release, µs
    definitive: by released position, definitive time then, by the key's own timelines; NEVER = it
        has none
    waited: by released position, a `Waited`
    record: by released position, the new record that released the event; TIMER = none
    verdict: by new record, the `Outcome` of a refused one; USED = admitted
    verdict_bound: by new record, the bound that refused it, µs
    pending_start: by key; `pending[pending_start[k]:pending_start[k + 1]]` are the rows that are
        still pending, in total order
    next_timer: by key, when arrival time alone releases something, µs; NEVER = nothing waits for it
    """

    start: Integers
    fresh: Integers
    order: NDArray[np.int32]
    time: Integers
    input: NDArray[np.int16]
    emitted: Integers
    definitive: Integers
    waited: NDArray[np.int8]
    record: Integers
    verdict: NDArray[np.int8]
    verdict_bound: Integers
    pending_start: Integers
    pending: NDArray[np.int32]
    next_timer: Integers


class Places(NamedTuple):
    """Arrival, time and input of rows, by place: grouped by key."""

    arrival: Integers
    time: Integers
    input: NDArray[np.int16]


@kernel
def by_place(rows: KeyedRows) -> Places:
    """Arrival, time and input grouped by key, so that the loops over keys read memory in order."""
    count = len(rows.key_rows)
    places = Places(np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int16))
    next_of = rows.start[:-1].copy()
    # Rows in order, places scattered: scattered writes are faster here than scattered reads.
    for row in range(len(rows.key)):
        if rows.key[row] >= 0:
            place = next_of[rows.key[row]]
            next_of[rows.key[row]] = place + 1
            places.arrival[place] = rows.arrival[row]
            places.time[place] = rows.time[row]
            places.input[place] = rows.input[row]
    return places


@inlined
def ready_of(ready: Ready, rows: KeyedRows, timers: Timers, entry: int) -> tuple[int, int]:
    """When the shared clocks release an entry: the moment, and the new record that brings it."""
    if entry >= timers.first:
        return ready.timer_moment[entry - timers.first], ready.timer_record[entry - timers.first]
    return ready.moment[rows.key_rows[entry]], ready.record[rows.key_rows[entry]]


@inlined
def is_ready(ready: Ready, rows: KeyedRows, timers: Timers, entry: int, now: int, record: int) -> bool:
    """Whether the shared clocks release an entry at `now`, after the new record `record`."""
    # no shared clocks: nothing holds the entry back
    if len(ready.moment) == 0:
        return True
    moment, by = ready_of(ready, rows, timers, entry)
    return moment < now or (moment == now and by <= record)


@inlined
def advances_bound(rows: KeyedRows, policies: PolicyColumns, row: int, item: int) -> bool:
    """Whether a new record of an input with a wait advances the input's bound."""
    if len(rows.rule) > 0 and rows.rule[row - rows.first_new] != BoundRule.BY_INPUT:
        return bool(rows.rule[row - rows.first_new] == BoundRule.IN_ORDER)
    return bool(policies.moves[item])


@inlined
def leeway_at(punctuation: Punctuation, change: int, row: int) -> int:
    """The last change of leeway at or before a row; `change`: the answer for an earlier row of the
    key."""
    while change + 1 < len(punctuation.leeway_row) and punctuation.leeway_row[change + 1] <= row:
        change += 1
    return change


@inlined
def copy_window(rows: KeyedRows, places: Places, released: Released, begin: int, end: int, out: int) -> int:
    """Copies a key's stored window, the places from `begin` to `end`, to positions from `out`.

    Returns the next free position.
    """
    for place in range(begin, end):
        released.order[out] = rows.key_rows[place]
        released.time[out] = places.time[place]
        released.input[out] = places.input[place]
        out += 1
    return out


@inlined
def end_of_window(rows: KeyedRows, key: int) -> int:
    """The first place of a key behind its stored window."""
    place, end = rows.start[key], rows.start[key + 1]
    while (
        place < end and rows.key_rows[place] < rows.first_new and rows.origin[rows.key_rows[place]] == RowOrigin.WINDOW
    ):
        place += 1
    return place


class Leaving(NamedTuple):
    """How an entry leaves: columns of `Released` for it."""

    emitted: int
    definitive: int
    waited: int
    record: int


@inlined
def release(
    rows: KeyedRows, places: Places, released: Released, timers: Timers, entry: int, out: int, leaving: Leaving
) -> int:
    """Writes the release of an event to position `out`, or that a timer has expired.

    Returns the next free position.
    """
    # a timer takes no position: it is not an event
    if entry >= timers.first:
        timer = entry - timers.first
        timers.emitted[timer] = leaving.emitted
        timers.definitive[timer] = leaving.definitive
        timers.record[timer] = leaving.record
    else:
        released.order[out] = rows.key_rows[entry]
        released.time[out] = places.time[entry]
        released.input[out] = places.input[entry]
        released.emitted[out] = leaving.emitted
        released.definitive[out] = leaving.definitive
        released.waited[out] = leaving.waited
        released.record[out] = leaving.record
        out += 1
    return out
