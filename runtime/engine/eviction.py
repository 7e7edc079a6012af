"""Eviction at the end of a call: which events and bounds are stored, which keys are forgotten."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.admission.per_key import Admitted
from runtime.columns.rows import taken_rows
from runtime.engine.call_rows import CallRows
from runtime.engine.forgetting import LIFE_FIELDS, Ends, Lives, definitive_at, ends_of, heartbeats_before
from runtime.engine.query_parts import QueryParts
from runtime.engine.query_state import ALIVE, CUT_OFF, STATE_FIELDS, QueryState
from runtime.engine.running_numbers import NUMBER, with_newest
from runtime.engine.skipped_events import with_skipped
from runtime.instants import NEVER, NO_TIME
from runtime.matching.windows import rows_to_keep
from runtime.number_arrays import Integers
from runtime.policies.per_input import BY_CLOCK, NO_WAIT, definitive_times


@dataclass(frozen=True, slots=True)
class Carry:
    """What a call leaves until the engine's clock is known: the input of `QueryRunner.evict`.

    superseded: by position of released events, as in `runtime.matching.interface.Ordered`
    free: as in `Ordered`, after the matches of the call
    cut_off: by key number, how many blocks in a row were cut off
    """

    rows: CallRows
    admitted: Admitted
    superseded: Integers
    cut_off: Integers
    free: Integers


@dataclass(frozen=True, slots=True)
class _Keys:
    """What the keys of a call have reached at its end.

    definitive: by key, µs; of a key that is forgotten when that happens
    is_ahead: (keys, inputs), whether its bound is ahead of the clock and of heartbeats for every
        key. The others need not be stored: a timeline's progress is the latest of all three, and
        neither the clock nor these heartbeats go back
    is_over: by key, whether it is forgotten
    """

    definitive: Integers
    is_ahead: NDArray[np.bool_]
    is_over: NDArray[np.bool_]


def evict(parts: QueryParts, state: QueryState, carry: Carry, clock: int) -> int:
    """Stores events that a future event may still match, and pending ones; evicts the others.

    Windows are measured from the definitive time of each key at `clock`, µs; NO_TIME = nothing has
    happened yet. Returns how many keys were forgotten: those that had something to forget.
    """
    if clock == NO_TIME:
        return 0
    rows, admitted, lives = carry.rows, carry.admitted, carry.rows.lives
    released = admitted.released
    ends = None if lives is None else ends_of(lives, parts.forgetting)
    keys = _keys_at(parts, state, carry, clock, ends)
    kept = rows_to_keep(released, carry.superseded, carry.free, keys.definitive, parts.windows)
    if NUMBER.name in parts.schema.names:
        kept = with_newest(kept, released)
    is_over, of_kept = keys.is_over, rows.numbers.take(kept)
    has_state = keys.is_ahead.any(axis=1) | (carry.cut_off > 0)
    has_state[of_kept] = True
    forgotten = int((is_over & has_state).sum())
    if forgotten:
        kept = kept[~is_over[of_kept]]
    stored = np.concatenate([kept, released.pending])
    number, bounds = _stored_bounds(carry, keys, ends if parts.forgetting.wait else None)
    times, buffer_end = taken_rows(admitted.times, stored), taken_rows(admitted.buffer_end, stored)
    own = [times, buffer_end, np.arange(len(stored)) >= len(kept)]
    events = with_skipped(rows.table, released, carry.free).take(pa.array(stored))
    for field, values in zip(STATE_FIELDS, own, strict=True):
        events = events.append_column(field, pa.array(values))
    numbers = taken_rows(rows.numbers, stored)
    timers, bound_timers = released.next_timer.take(numbers), np.full(len(number), NEVER)
    if lives is not None and ends is not None:
        events, bounds = _with_lives(events, lives, numbers), _with_lives(bounds, lives, number)
        timers, bound_timers = np.minimum(timers, ends.moment[numbers]), ends.moment[number]
    state.everywhere = admitted.timelines.everywhere
    state.keys.store(events.combine_chunks(), bounds, timers, bound_timers)
    state.hot_release = admitted.next_timer
    state.hot_timer = min(admitted.next_timer, int(timers.min(initial=NEVER)), int(bound_timers.min(initial=NEVER)))
    state.clocks.evict(clock)
    return forgotten


def _keys_at(parts: QueryParts, state: QueryState, carry: Carry, clock: int, ends: Ends | None) -> _Keys:
    rows, timelines, delay = carry.rows, carry.admitted.timelines, parts.policies.delay
    definitive = definitive_times(timelines.bounds, timelines.everywhere, delay, clock)
    definitive = np.minimum(definitive, state.clocks.definitive(rows.clocks, clock, len(definitive)))
    has_none = (delay == NO_WAIT) | (delay == BY_CLOCK)
    anyway = np.maximum(np.where(has_none, NEVER, clock - delay), timelines.everywhere)
    keys = _Keys(definitive, timelines.bounds > anyway, np.zeros(len(definitive), np.bool_))
    if ends is None:
        return keys
    # A key that is forgotten has what it had at that moment, not now: so no cut makes a difference.
    over = np.flatnonzero(ends.moment <= clock)
    then = Ends(ends.moment[over], ends.step[over], ends.is_held[over])
    by_clock = np.where(has_none, NEVER, then.moment[:, np.newaxis] - delay)
    anyway = np.maximum(by_clock, heartbeats_before(rows.punctuation, rows.timelines, then, rows.rows.first_new))
    bounds = timelines.bounds[over]
    keys.is_over[over], keys.is_ahead[over] = True, bounds > anyway
    own = definitive_at(bounds, anyway, delay, then.moment)
    keys.definitive[over] = rows.clocks.lowered(over, then.moment, then.step, own)
    return keys


def _stored_bounds(carry: Carry, keys: _Keys, held: Ends | None) -> tuple[Integers, pa.Table]:
    """The bounds that are stored, and the number of each one's key.

    `held`: the ends of lives, if a key without events and bounds may be held by what was pending.
    """
    rows, lasts = carry.rows, ~keys.is_over
    number, item = np.nonzero(keys.is_ahead & lasts[:, np.newaxis])
    counted = np.flatnonzero((carry.cut_off > 0) & lasts)
    alive = np.flatnonzero(held.is_held & lasts) if held is not None else counted[:0]
    numbers = np.concatenate([number, counted, alive])
    bound = [carry.admitted.timelines.bounds[number, item], carry.cut_off[counted], np.zeros(len(alive), np.int64)]
    items = np.concatenate([item, np.full(len(counted), CUT_OFF), np.full(len(alive), ALIVE)])
    index = pa.array(_rows_of(numbers, rows.numbers, rows.key_count))
    columns = {f"key{place}": column.take(index) for place, column in enumerate(rows.keys)}
    columns |= {"input": pa.array(items.astype(np.int32)), "bound": pa.array(np.concatenate(bound))}
    return numbers, pa.table(columns)


def _with_lives(table: pa.Table, lives: Lives, number: Integers) -> pa.Table:
    for field, values in zip(LIFE_FIELDS, (lives.last, lives.latest), strict=True):
        table = table.append_column(field, pa.array(values[number]))
    return table


def _rows_of(wanted: Integers, numbers: Integers, count: int) -> Integers:
    """A row of each wanted key number; `numbers`: by row, below `count`."""
    if not len(wanted):
        return wanted
    some_row = np.zeros(count, np.int64)
    known = np.flatnonzero(numbers >= 0)
    some_row[numbers[known]] = known
    return some_row[wanted]
