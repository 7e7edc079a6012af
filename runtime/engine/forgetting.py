"""Forgetting keys: `forget_keys` after the last arrival of a key, its windows and clock go.

A key's time from its first record to being forgotten is a life. Each life has a key number of its
own, so that a record behind a gap meets an empty key, as if it were new. A life does not end while
an event or a trailing wait of the key may be pending. All of it follows from arrivals and times
alone: it is the same for every cut of the stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import QueryPlan, known
from runtime.admission import ClocksRun, KeyedRows, Punctuation, Timelines
from runtime.column_types import Integers
from runtime.columns.keys import group_rows
from runtime.compiling.compiled import borrowing
from runtime.input_policies import BY_CLOCK, NO_WAIT, PolicyColumns
from runtime.instants import NEVER, NO_TIME

TIMER = -1

LIFE_FIELDS = (pa.field("_last", pa.int64()), pa.field("_latest", pa.int64()))
"""Columns that events and bounds have beside their own if keys are forgotten.

_last: the last arrival of the key, µs
_latest: the latest time of its events, µs; NO_TIME = it has none
"""


class Forgetting(NamedTuple):
    """When a query forgets a key.

    length: how long after its last arrival, µs; NEVER = it forgets none
    wait: how long after a match its trailing wait is due for the last time, µs; 0 = none
    own: the largest delay of the keys' own timelines, µs; -1 = all clocks are shared
    """

    length: int
    wait: int
    own: int

    @property
    def is_on(self) -> bool:
        """Whether keys are forgotten at all."""
        return self.length < NEVER


def forgetting_of(query: QueryPlan, policies: PolicyColumns) -> Forgetting:
    """When a query forgets a key; one without keys has none to forget."""
    length = query.forget_keys if query.forget_keys is not None and query.keys else NEVER
    own = policies.delay[policies.delay != BY_CLOCK]
    longest = max(0, int(own.max())) if len(own) else -1
    trailing = query.trailing
    wait = 0 if trailing is None else trailing.most * known(trailing.duration)
    return Forgetting(length, wait, longest)


class Lives(NamedTuple):
    """The lives of a call's keys, one entry per key number.

    owner: the key's number before its rows were divided
    last: its last arrival, µs; NO_TIME = it only has a pending wait
    latest: the latest time of its events, µs; NO_TIME = none
    moment, step: when the shared clocks reach what may be pending; NO_TIME, TIMER = nothing is
    """

    owner: Integers
    last: Integers
    latest: Integers
    moment: Integers
    step: Integers


@dataclass(frozen=True, slots=True)
class Ends:
    """When lives end if no more records come, by key number.

    moment: µs; NEVER = not before a record of a later call
    step: the new record after which it ends; TIMER = none
    is_held: whether something may be pending for longer than the length
    """

    moment: Integers
    step: Integers
    is_held: NDArray[np.bool_]


def ends_of(lives: Lives, forgetting: Forgetting) -> Ends:
    """When the lives of a call end."""
    due = np.where(lives.last == NO_TIME, NEVER, lives.last + forgetting.length)
    held = np.full(len(due), NO_TIME, np.int64)
    if forgetting.own >= 0:
        held = np.where(lives.latest == NO_TIME, NO_TIME, lives.latest + forgetting.wait + forgetting.own)
    by_timer = np.maximum(due, held)
    is_shared = lives.moment >= by_timer
    moment = np.where(is_shared, lives.moment, by_timer)
    step = np.where(is_shared & (lives.moment > NO_TIME), lives.step, TIMER)
    return Ends(moment, step, np.maximum(held, lives.moment) > due)


class StoredLives(NamedTuple):
    """What is stored of the keys' lives, by key number; columns as in `Lives`."""

    last: Integers
    latest: Integers


def stored_lives(count: int, numbers: Integers, last: Integers, latest: Integers) -> StoredLives:
    """By key number, what the stored rows of these numbers say."""
    found = StoredLives(np.full(count, NO_TIME, np.int64), np.full(count, NO_TIME, np.int64))
    np.maximum.at(found.last, numbers, last)
    np.maximum.at(found.latest, numbers, latest)
    return found


@dataclass(frozen=True, slots=True)
class Divided:
    """The rows of a call with a key number for each life.

    numbers: by row of the table, then by stored bound
    """

    lives: Lives
    numbers: Integers
    rows: KeyedRows
    clocks: ClocksRun


def divide(
    rows: KeyedRows,
    numbers: Integers,
    clocks: ClocksRun,
    policies: PolicyColumns,
    stored: StoredLives,
    forgetting: Forgetting,
) -> Divided:
    """Gives each life a key number of its own; stored rows belong to the first one of their key."""
    judged, count = len(rows.key), len(rows.start) - 1
    time = _event_times(rows, clocks, policies, judged)
    moment, step = _reached(clocks, rows.key, time, forgetting.wait)
    first = _reached(clocks, np.arange(count), stored.latest, forgetting.wait)
    room = count + judged - rows.first_new
    lives = Lives(*(np.full(room, filling, np.int64) for filling in (-1, NO_TIME, NO_TIME, NO_TIME, TIMER)))
    lives.owner[:count] = np.arange(count)
    lives.last[:count], lives.latest[:count] = stored
    lives.moment[:count], lives.step[:count] = first
    number = rows.key.astype(np.int64).copy()
    total = _divide(rows, time, moment, step, forgetting, lives, number, count)
    lives = Lives(*(column[:total] for column in lives))
    if total == count:
        return Divided(lives, numbers, rows, clocks)
    start, key_rows = group_rows(number, total)
    return Divided(
        lives=lives,
        numbers=np.concatenate([number, numbers[judged:]]),
        rows=rows._replace(start=start, key_rows=key_rows, key=number),
        clocks=replace(clocks, runs=tuple(run.of_lives(lives.owner) for run in clocks.runs)),
    )


def _event_times(rows: KeyedRows, clocks: ClocksRun, policies: PolicyColumns, judged: int) -> Integers:
    """By row, the time of a new event that may be pending; NO_TIME = it is refused, or no event."""
    item, time, arrival = rows.input[:judged], rows.time[:judged], rows.arrival[:judged]
    is_event = item >= 0
    is_event[: rows.first_new] = False
    own = np.where(is_event, item, 0)
    time = np.where(is_event & (policies.delay[own] == NO_WAIT), arrival, np.where(is_event, time, arrival))
    is_event &= (policies.delay[own] == BY_CLOCK) | (time - arrival <= policies.early[own])
    if len(clocks.verdicts.refused):
        is_event[rows.first_new :] &= clocks.verdicts.refused[: judged - rows.first_new] == 0
    return np.where(is_event, time, NO_TIME)


def _reached(clocks: ClocksRun, keys: Integers, time: Integers, wait: int) -> tuple[Integers, Integers]:
    """The step at which the shared clocks reach each time and the wait behind it."""
    moment, step = np.full(len(time), NO_TIME, np.int64), np.full(len(time), TIMER, np.int64)
    chosen = np.flatnonzero(time != NO_TIME)
    if clocks.runs and len(chosen):
        moment[chosen], step[chosen] = clocks.ready(keys[chosen], time[chosen] + wait)
    return moment, step


@borrowing
def _divide(
    rows: KeyedRows,
    time: Integers,
    moment: Integers,
    step: Integers,
    forgetting: Forgetting,
    lives: Lives,
    number: Integers,
    count: int,
) -> int:
    """Fills `lives` and the `number` of each new row; returns how many lives there are.

    Invariant: `lives` says of the life at hand what is known before the next record.
    """
    for key in range(len(rows.start) - 1):
        life = key
        for place in range(rows.start[key], rows.start[key + 1]):
            row = rows.key_rows[place]
            if row < rows.first_new:
                continue
            arrival, record = rows.arrival[row], row - rows.first_new
            last, latest = lives.last[life], lives.latest[life]
            # 1. The life has ended if its timer expires by this arrival and nothing is held.
            is_over = last != NO_TIME and arrival - last >= forgetting.length
            if is_over and forgetting.own >= 0 and latest != NO_TIME:
                is_over = arrival >= latest + forgetting.wait + forgetting.own
            if is_over and lives.moment[life] != NO_TIME:
                is_over = lives.moment[life] < arrival or (lives.moment[life] == arrival and lives.step[life] < record)
            if is_over:
                lives.owner[count] = key
                life = count
                count += 1
            # 2. The record belongs to the life, and may hold it.
            number[row] = life
            lives.last[life] = arrival
            lives.latest[life] = max(lives.latest[life], time[row])
            if moment[row] > lives.moment[life]:
                lives.moment[life], lives.step[life] = moment[row], step[row]
            elif moment[row] == lives.moment[life]:
                lives.step[life] = max(lives.step[life], step[row])
    return count


def heartbeats_before(punctuation: Punctuation, timelines: Timelines, ends: Ends, first_new: int) -> Integers:
    """By life and input, the bound by heartbeats for every key when it ends, µs."""
    before_timer = np.searchsorted(punctuation.heartbeat_arrival, ends.moment, "left")
    behind_record = np.searchsorted(punctuation.heartbeat_row, first_new + ends.step, "right")
    count = np.where(ends.step == TIMER, before_timer, behind_record)
    everywhere = np.repeat(timelines.everywhere[np.newaxis, :], len(count), axis=0)
    for item in range(everywhere.shape[1]):
        concerns = (punctuation.heartbeat_mask >> item & 1).astype(np.bool_)
        time = np.where(concerns, punctuation.heartbeat_time, NO_TIME)
        reached = np.concatenate([[NO_TIME], np.maximum.accumulate(time)])
        np.maximum(everywhere[:, item], reached[count], out=everywhere[:, item])
    return everywhere


def definitive_at(bounds: Integers, anyway: Integers, delay: Integers, moment: Integers) -> Integers:
    """The watermark of each life when it ends, by the query's own timelines; NEVER = it has none.

    anyway: (lives, inputs), what clock and heartbeats for every key have reached then
    """
    each = np.where(delay == NO_WAIT, moment[:, np.newaxis], np.maximum(bounds, anyway))
    reached: Integers = np.where(delay == BY_CLOCK, NEVER, each).min(axis=1)
    return reached
