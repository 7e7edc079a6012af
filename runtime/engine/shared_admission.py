"""Select, admit, store and evict the records of a call, once for all queries of equal inputs.

Queries share an admission if they make the same of every record (`QueryParts.admission`) and have
the same state: those that were there from the beginning, or whose states have become equal. What
the patterns look back on may differ, so what any of them needs is kept. A query that keeps
something of its own beside events has an admission of its own: waits, skipped events, times of
matches, blocks that were cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import QueryPlan, known
from runtime.admission import ADMITTED, Admitted, Outcome, Released, RowOrigin, Timers, Waited, admit, after_admission
from runtime.column_types import Integers, has_column, one_chunk
from runtime.columns.keys import layer_of_inputs, unique_numbers
from runtime.columns.rows import joined, taken_rows
from runtime.compiling.compiled import borrowing
from runtime.engine.call_rows import CallRecords, CallRows, Wanted, assemble, cut_off_blocks, wanted_records, with_ends
from runtime.engine.event_marks import EVENT, NUMBER, events_of, first_free, with_newest, with_numbers, with_skipped
from runtime.engine.forgetting import LIFE_FIELDS, Ends, Lives, definitive_at, ends_of, heartbeats_before
from runtime.engine.query_state import ALIVE, CUT_OFF, STATE_FIELDS, QueryParts, QueryState, Saved, saved_timers
from runtime.engine.snapshot import fitted
from runtime.engine.stored_values import old_events, without_old
from runtime.input_policies import BY_CLOCK, NO_WAIT, definitive_times, is_clocked
from runtime.instants import NEVER, NO_TIME
from runtime.matching.interface import Ordered
from runtime.matching.windows import WindowColumns, rows_to_keep, superseded_by
from runtime.results.ledger import Account, count_pending, count_records

# Eviction at the end of a call: which events and bounds are stored, which keys are forgotten.


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
    old: NDArray[np.bool_]


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


_PENDING, _NULL_KEY, _NULL_TIME = int(RowOrigin.PENDING), int(Outcome.NULL_KEY), int(Outcome.NULL_TIME)
"""As plain integers, which numpy compares in a fraction of the time."""


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
    forgotten = 0
    if ends is not None:
        is_over, of_kept = keys.is_over, rows.numbers.take(kept)
        has_state = keys.is_ahead.any(axis=1) | (carry.cut_off > 0)
        has_state[of_kept] = True
        forgotten = int((is_over & has_state).sum())
        kept = kept[~is_over[of_kept]]
    stored = np.concatenate([kept, released.pending])
    number, bounds = _stored_bounds(state, carry, keys, ends if parts.forgetting.wait else None)
    times, buffer_end = taken_rows(admitted.times, stored), taken_rows(admitted.buffer_end, stored)
    own = [times, buffer_end, np.arange(len(stored)) >= len(kept)]
    events = with_skipped(rows.table, released, carry.free).take(pa.array(stored))
    for field, values in zip(STATE_FIELDS, own, strict=True):
        events = events.append_column(field, pa.array(values))
    numbers = taken_rows(rows.numbers, stored)
    timers, bound_timers = released.next_timer.take(numbers), np.full(len(number), NEVER)
    if lives is not None and ends is not None:
        events = _with_lives(events, lives, numbers)
        timers, bound_timers = np.minimum(timers, ends.moment[numbers]), ends.moment[number]
    state.everywhere = admitted.timelines.everywhere
    state.keys.store(events.combine_chunks(), bounds, timers, bound_timers)
    state.hot_release = admitted.next_timer
    state.hot_timer = min(admitted.next_timer, int(timers.min(initial=NEVER)), int(bound_timers.min(initial=NEVER)))
    state.clocks.evict(clock)
    state.evict_values(clock)
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


def _stored_bounds(state: QueryState, carry: Carry, keys: _Keys, held: Ends | None) -> tuple[Integers, pa.Table]:
    """The bounds that are stored, and the number of each one's key.

    `held`: the ends of lives, if a key without events and bounds may be held by what was pending.
    """
    rows, lasts = carry.rows, ~keys.is_over
    number, item = np.nonzero(keys.is_ahead & lasts[:, np.newaxis])
    counted = np.flatnonzero((carry.cut_off > 0) & lasts)
    alive = np.flatnonzero(held.is_held & lasts) if held is not None else counted[:0]
    numbers = np.concatenate([number, counted, alive])
    if not len(numbers):
        return numbers, state.keys.no_bounds
    bound = [carry.admitted.timelines.bounds[number, item], carry.cut_off[counted], np.zeros(len(alive), np.int64)]
    items = np.concatenate([item, np.full(len(counted), CUT_OFF), np.full(len(alive), ALIVE)])
    index = pa.array(_rows_of(numbers, rows.numbers, rows.key_count))
    columns = {f"key{place}": column.take(index) for place, column in enumerate(rows.keys)}
    columns |= {"input": pa.array(items.astype(np.int32)), "bound": pa.array(np.concatenate(bound))}
    bounds = pa.table(columns)
    return numbers, bounds if rows.lives is None else _with_lives(bounds, rows.lives, numbers)


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


_CONCERNED = np.zeros(len(Outcome) + 1, np.bool_)
_CONCERNED[[Outcome.USED, Outcome.HEARTBEAT, Outcome.CONTROL, Outcome.NULL_KEY, Outcome.NULL_TIME]] = True
"""What a query makes of records that it counts; the others mean the same whenever they arrive."""


def moved_records(
    query: QueryPlan,
    records: CallRecords,
    wanted: Wanted,
    refused: NDArray[np.int8],
    adjusted: NDArray[np.int8],
) -> Account:
    """The counts `before_clock` and `late_by_idle` of a query, without its name.

    refused, adjusted: by wanted record, the reason; 0 = none
    """
    account: Account = Account()
    moved = records.moves.is_moved
    if not moved.any():
        return account
    sources = one_chunk(records.table.column("_source"))
    concerned = _CONCERNED.take(wanted.selection.outcome)
    _count(account, sources, np.flatnonzero(moved & concerned), "before_clock")
    is_late = np.flatnonzero((refused == Outcome.LATE) | (adjusted == Outcome.LATE))
    numbers = wanted.records[is_late]
    is_late = is_late[records.moves.without_idle[numbers] < records.arrival[numbers]]
    late = wanted.records[is_late]
    limit = _late_limits(query)[wanted.input[is_late]]
    in_time = wanted.selection.time[late] >= records.moves.without_idle[late] - limit
    _count(account, sources, np.unique(late[in_time]), "late_by_idle")
    return account


def _late_limits(query: QueryPlan) -> NDArray[np.int64]:
    """By input, how far a time may be behind its arrival, µs; NEVER = no limit."""
    limits = []
    for item in query.inputs:
        if is_clocked(item) and item.policy is not None:
            limits.append(NEVER if item.policy.max_delay is None else item.policy.max_delay)
        else:
            limits.append(NEVER if item.wait is None else min(known(item.wait), NEVER))
    return np.array(limits, np.int64)


def _count(account: Account, sources: pa.DictionaryArray, rows: NDArray[np.int64], word: str) -> None:
    counts = np.bincount(sources.indices.to_numpy()[rows])
    for place in np.flatnonzero(counts).tolist():
        account["", sources.dictionary[place].as_py(), word] += int(counts[place])


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """The records of a call, admitted.

    carry: for eviction, as long as no query changes it
    events: what matchers read
    has_new: whether any event is released in this call
    has_null: whether selection refused any record
    account: changes of the ledger, for a query without a name
    outcomes: by layer and record, what has become of it; None = there is one layer
    """

    wanted: Wanted
    carry: Carry
    events: Ordered
    has_new: bool
    has_null: bool
    account: Account
    outcomes: NDArray[np.int8] | None = None


class SharedAdmission:
    """Admission and state of queries whose inputs and states are equal; at least one.

    unopened: the state that it has been given and nobody has asked for; it fits
    is_behind: whether the last call was left out, so that expired events may be stored
    """

    def __init__(self, parts: Sequence[QueryParts]) -> None:
        first = parts[0]
        self.parts = replace(first, windows=_wide_enough([item.windows for item in parts])) if len(parts) > 1 else first
        self._has_own_clocks = first.selector.has_clocks
        self.unopened: Saved | None = None
        self.is_behind = False

    @cached_property
    def state(self) -> QueryState:
        """What is kept; made when it is first asked for."""
        made, saved = QueryState(self.parts), self.unopened
        if saved is not None:
            made.restore(saved.header, saved.tables)
            self.unopened = None
        return made

    @property
    def has_begun(self) -> bool:
        """Whether there is a state."""
        return "state" in self.__dict__ or self.unopened is not None

    def saved(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """As of `QueryState.snapshot`; it makes no state that stays."""
        return (self.state if self.has_begun else QueryState(self.parts)).snapshot()

    @property
    def next_timer(self) -> int:
        """As of `QueryState`."""
        if self.unopened is not None:
            return saved_timers(self.unopened.header)[0]
        return self.state.next_timer if self.has_begun else NEVER

    @property
    def is_moved_everywhere(self) -> bool:
        """As of `QueryState`, of a state that there is."""
        if self.unopened is not None:
            return any(bound != NO_TIME for bound in self.unopened.header["everywhere"])
        return self.state.is_moved_everywhere

    def least_definitive(self, clock: int, known: dict[bytes, int]) -> int:
        """The least definitive time of all keys at `clock`, as of `QueryState`; it makes no state.

        known: what is known at that clock of admissions without a bound, by the delays of inputs
        """
        query, delay = self.parts.query, self.parts.policies.delay
        if self._has_own_clocks or (self.has_begun and self._has_bounds_of_all):
            return self.state.definitive((None,) * len(query.keys), clock)
        place = delay.tobytes()
        if place not in known:
            nothing = np.full(len(query.inputs), NO_TIME, np.int64)
            known[place] = int(definitive_times(nothing[None], nothing, delay, clock)[0])
        return known[place]

    @property
    def _has_bounds_of_all(self) -> bool:
        """Whether the state has bounds that are of all keys."""
        return self.state.is_moved_everywhere or (not self.parts.query.keys and self.state.keys.has_bounds)

    def is_idle(self, limit: int) -> bool:
        """Whether a call without a record for it can be left out, as none of its timers expires.

        The answer does not depend on how records are cut into calls. So this one is one with the
        next that has a record, or in which a timer is due. Clocks that keys share advance with
        the engine's, without records, too: they are asked in each call.
        """
        return not self._has_own_clocks and (self.next_timer > limit or self.next_timer >= NEVER)

    def admitted(self, records: CallRecords, *, everything: bool = False) -> AdmittedCall:
        """Admits the records of a call. `evict` has to follow.

        everything: loads cold keys too
        """
        parts, state = self.parts, self.state
        wanted = wanted_records(parts, records, state.roles.first)
        state.keys.load(wanted.new, records.limit, everything=everything)
        rows = assemble(parts, state, records, wanted)
        admitted = of_one_record(self.released(rows, records.limit), wanted, rows.rows.first_new)
        old = old_events(parts.plan, parts.query, state.seen, rows.table, rows.keys, admitted.released)
        repeated = admitted.released.order[: len(old)][old]
        admitted = counted(admitted, old)
        superseded = self._superseded(rows, admitted.released)
        free = first_free(rows.table, admitted.released)
        table = with_ends(rows.table, parts.plan, rows.rows, admitted.released)
        table, numbers = with_numbers(table, admitted.released)
        carry = Carry(rows.with_table(table), admitted, superseded, cut_off_blocks(state, rows), free, old)
        events = self._ordered(carry, numbers)
        has_new = bool((events.start[1:] > events.fresh).any())
        account = self._account(records, wanted, carry)
        outcomes = None
        if wanted.layers is not None:
            outcomes, changes = self._of_roles(records, wanted, carry, repeated)
            account.update(changes)
        else:
            account.update(self._pending(rows.table, repeated, 1, Outcome.NOT_NEW))
        return AdmittedCall(
            wanted, carry, events, has_new, _has_null(wanted.selection.outcome, outcomes), account, outcomes
        )

    def released(self, rows: CallRows, limit: int, timers: Timers | None = None) -> Admitted:
        """What is admitted and released up to a moment; parameters as of `admit`."""
        judged = rows.clocks.verdicts.refused, rows.clocks.verdicts.bound
        policies = self.parts.policies
        return admit(rows.rows, rows.punctuation, policies, rows.timelines, limit, judged, timers, rows.ready)

    def evict(self, carry: Carry, clock: int) -> int:
        """Evicts what cannot matter any more at `clock`; returns how many keys were forgotten."""
        self.is_behind = False
        return evict(self.parts, self.state, carry, clock)

    def parted(self, parts: QueryParts) -> SharedAdmission:
        """An admission with the same state, for one of the queries alone."""
        other = SharedAdmission([parts])
        other.state = deepcopy(self.state, {id(self.parts): parts})
        other.is_behind = self.is_behind
        return other

    def begin_anew(self) -> None:
        """Forgets the state."""
        self.__dict__.pop("state", None)
        self.unopened = None
        self.is_behind = False

    def _counted(self, table: pa.Table) -> pa.Table:
        """The columns that events are counted by."""
        return table.select([name for name in ("_source", "_adjusted") if has_column(table, name)])

    def _superseded(self, rows: CallRows, released: Released) -> Integers:
        if not self.parts.windows.is_unique.any():
            return np.empty(0, np.int64)
        value, count = unique_numbers(self.parts.plan, self.parts.query, rows.table, rows.rows.input)
        return superseded_by(released.start, released.order, value, count)

    def _ordered(self, carry: Carry, numbers: Integers) -> Ordered:
        """The matcher's input: released events, then members of pending matches.

        numbers: by position of released events, their running numbers; empty if nothing asks
        """
        table, released, times = carry.rows.table, carry.admitted.released, carry.admitted.times
        row, input_of, time = released.order, released.input, released.time
        members = len(self.state.waits)
        if members:
            behind = np.arange(len(table) - members, len(table), dtype=np.int32)
            row = np.concatenate([row, behind])
            input_of = np.concatenate([input_of, carry.rows.rows.input[behind]])
            time = np.concatenate([time, times[behind]])
        return Ordered(
            start=released.start,
            fresh=released.fresh,
            row=row,
            input=input_of,
            time=time,
            superseded=carry.superseded,
            free=carry.free,
            table=table.append_column("_time", pa.array(times)),
            number=numbers,
            event=events_of(table, row),
        )

    def _account(self, records: CallRecords, wanted: Wanted, carry: Carry) -> Account:
        """The changes of the ledger."""
        rows, released = carry.rows, carry.admitted.released
        verdict, adjusted = released.verdict, rows.clocks.verdicts.adjusted
        if wanted.layers is not None:
            return moved_records(self.parts.query, records, wanted, verdict, adjusted)
        outcome = after_admission(wanted.selection.outcome, wanted.records, verdict, adjusted)
        account = count_records("", one_chunk(records.table.column("_source")), outcome)
        account.update(moved_records(self.parts.query, records, wanted, verdict, adjusted))
        account.update(self._pending(rows.table, np.flatnonzero(rows.rows.origin == _PENDING), -1))
        account.update(self._pending(rows.table, released.pending, 1))
        return account

    def _pending(self, table: pa.Table, rows: NDArray[Any], change: int, outcome: Outcome = Outcome.PENDING) -> Account:
        """As `count_pending`, of these rows of a call."""
        if not len(rows):
            return Account()
        return count_pending("", self._counted(table).take(pa.array(rows)), change, outcome)

    def _of_roles(
        self, records: CallRecords, wanted: Wanted, carry: Carry, repeated: NDArray[np.int32]
    ) -> tuple[NDArray[np.int8], Account]:
        """By layer and record what became of it, and the changes of the ledger.

        repeated: the rows that `new by` does not count
        """
        assert wanted.layers is not None, "only then it is asked"
        rows, released = carry.rows.rows, carry.admitted.released
        first, adjusted = rows.first_new, carry.rows.clocks.verdicts.adjusted
        of_rows = np.full(first + len(wanted.records), Outcome.USED, np.int8)
        of_rows[repeated] = Outcome.NOT_NEW
        of_rows[released.pending] = Outcome.PENDING
        event = carry.rows.table.column(EVENT.name).to_numpy()
        done = np.flatnonzero((rows.origin[:first] == RowOrigin.PENDING) & (of_rows[:first] != Outcome.PENDING))
        account = self.state.roles.resolve(event[done], rows.input[done], of_rows[done])
        outcomes = wanted.layers.copy()
        is_event = (wanted.input >= 0) & (rows.input[first : first + len(wanted.records)] >= 0)
        own = np.where(released.verdict > 0, released.verdict, of_rows[first:])
        own = np.where(own == Outcome.USED, _ADMITTED.take(adjusted), own)
        fill_layers(layer_of_inputs(self.parts.query), wanted.input, wanted.records, is_event, own, outcomes)
        of_records = np.zeros(outcomes.shape[1], np.int8)
        of_records[wanted.records] = adjusted
        inputs = np.array([each.input_of(records.kinds) for each in self.parts.selector.layers])
        sources = one_chunk(records.table.column("_source"))
        account.update(self.state.roles.add(outcomes, inputs, sources, of_records))
        return outcomes, account


def unopened_tables(admissions: Sequence[SharedAdmission]) -> tuple[pa.Table, pa.Table]:
    """Events and bounds that nobody has asked for yet, of queries that are alike, in their order;
    ValueError for what cannot be."""
    state = QueryState(admissions[0].parts)
    saved = [admission.unopened.tables for admission in admissions if admission.unopened is not None]
    kept = _joined_saved([tables["kept"] for tables in saved], state.keys.events.schema, "kept")
    bounds = _joined_saved([tables["bounds"] for tables in saved], state.keys.bounds.schema, "bounds")
    return state.fitting(kept, bounds)


def _joined_saved(tables: Sequence[pa.Table], schema: pa.Schema, name: str) -> pa.Table:
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        tables = [fitted(table, schema, name) for table in tables]
    return joined(tables)


@borrowing
def fill_layers(
    layer_of: Integers,
    input_of: NDArray[np.int16],
    records: Integers,
    is_event: NDArray[np.bool_],
    own: NDArray[np.int8],
    outcomes: NDArray[np.int8],
) -> None:
    """Sets the outcomes of events by layer and record.

    layer_of: by input; the others but `outcomes` by row: its input, its record, its outcome
    """
    for row in range(len(records)):
        if is_event[row]:
            outcomes[layer_of[input_of[row]], records[row]] = own[row]


_ADMITTED = np.array(ADMITTED, np.int8)
"""By the reason for which a time was adjusted, 0 = none."""


def counted(admitted: Admitted, old: NDArray[np.bool_]) -> Admitted:
    """The same without events that are not new; `old`: as in `Carry`."""
    return admitted._replace(released=without_old(admitted.released, old)) if len(old) else admitted


def of_one_record(admitted: Admitted, wanted: Wanted, first: int) -> Admitted:
    """The same where a row that another row of its record has released has not waited.

    first: the first row that is new
    """
    if wanted.layers is None:
        return admitted
    released = admitted.released
    fresh = np.flatnonzero((released.record >= 0) & (released.order >= first) & (released.waited == Waited.WAIT))
    own, by = released.order[fresh] - first, released.record[fresh]
    is_record = by < len(wanted.records)
    fresh, own, by = fresh[is_record], own[is_record], by[is_record]
    waited = released.waited.copy()
    waited[fresh[wanted.records[own] == wanted.records[by]]] = Waited.NONE
    return admitted._replace(released=released._replace(waited=waited))


def _has_null(outcome: NDArray[np.int8], outcomes: NDArray[np.int8] | None) -> bool:
    outcome = outcome if outcomes is None else outcomes
    return bool(((outcome == _NULL_KEY) | (outcome == _NULL_TIME)).any())


def renamed(account: Account, query: str) -> Account:
    """An account of a query without a name as that of a query."""
    return Account({(query, source, word): count for (_, source, word), count in account.items()})


def _wide_enough(windows: Sequence[WindowColumns]) -> WindowColumns:
    """Windows of the same inputs, so wide that they keep what any of the queries looks back on."""
    return windows[0]._replace(
        reach=np.maximum.reduce([item.reach for item in windows]),
        is_used_later=np.logical_or.reduce([item.is_used_later for item in windows]),
        is_looked_for=np.logical_or.reduce([item.is_looked_for for item in windows]),
    )
