"""Run one query over the records of a call: select, admit, match, report, and evict what has
expired.

Between calls everything is in the query's state; a call hands on its `Carry` from `run` to `evict`.
All of it is columns: Python does nothing per key, record or event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan
from runtime.admission.arrays import Ready, Released, Timers, Waited
from runtime.admission.outcomes import Outcome, after_admission, reason_words
from runtime.admission.per_key import Admitted, admit
from runtime.admission.query_clocks import ClocksRun
from runtime.arrow_types import one_chunk
from runtime.columns.keys import unique_numbers
from runtime.engine.call_rows import (
    CallRecords,
    CallRows,
    Wanted,
    assemble,
    cut_off_blocks,
    wanted_records,
    with_ends,
)
from runtime.engine.eviction import Carry, evict
from runtime.engine.match_columns import call_numbers, matches_in_order
from runtime.engine.moved_records import moved_records
from runtime.engine.query_parts import ROW_FIELD, query_parts
from runtime.engine.query_state import QueryState
from runtime.instants import NO_TIME
from runtime.matching.find_every import selected
from runtime.matching.interface import Found, Ordered
from runtime.matching.trailing_waits import timers_of
from runtime.matching.windows import superseded_by
from runtime.results.block_outputs import run_block
from runtime.results.discards import refused
from runtime.results.ledger import Account, count_pending, count_records
from runtime.results.match_table import match_table
from runtime.results.matched import Matched, taken
from runtime.results.schemas import ADJUSTED_SCHEMA, OUTPUT_SCHEMA, discard_schema

Integers = NDArray[np.int64]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The results of one call for one query.

    matches: None = there are none, or they are in `found`
    found: matches as the numbers of records, with their columns gathered later; None = none
    account: changes of the ledger
    last_release: the latest moment at which a timer released something, µs; NO_TIME = none
    """

    matches: pa.Table | None
    found: Matched | None
    outputs: pa.Table
    discarded: pa.Table
    account: Account
    last_release: int
    adjusted: pa.Table


class QueryRunner:
    """One query of a plan at work; see `runtime.engine.engine.Engine` for `matcher`."""

    def __init__(self, plan: Plan, query: QueryPlan, matcher: str, *, gathers_later: bool = False) -> None:
        self.query = query
        self.parts = query_parts(plan, query, matcher, gathers_later=gathers_later)
        self.state = QueryState(self.parts)

    def run(self, records: CallRecords, *, everything: bool = False) -> tuple[QueryOutcome, Carry]:
        """Admits the records, and matches what is released. `evict` has to follow, with the carry.

        everything: loads cold keys too
        """
        parts, state = self.parts, self.state
        wanted = wanted_records(parts, records)
        state.keys.load(wanted.new, records.limit, everything=everything)
        was_pending = _pending_sources(state.keys.events)
        rows = assemble(parts, state, records, wanted)
        admitted = self._admit(rows, records.limit)
        superseded = self._superseded(rows, admitted.released)
        carry = Carry(self._with_ends(rows, admitted), admitted, superseded, cut_off_blocks(state, rows))
        events = self._ordered(carry)
        found = parts.matcher.match(events)
        if self.query.trailing is None:
            matched = self._matched(carry, found, wanted.records)
        else:
            carry, expired = self._expired_waits(records, carry, events, found, wanted.records)
            matched = expired.by_step(carry.rows.keys)
            if parts.gathers_later:
                matched = matched.with_rows(self._numbers_of(carry.rows.table))
        matches, later, outputs = None, None, OUTPUT_SCHEMA.empty_table()
        if len(matched) and parts.gathers_later:
            later = matched
        elif len(matched):
            keys = carry.rows.keys
            matches = match_table(parts.plan, self.query, carry.rows.table, keys, matched)
            if self.query.block:
                outputs = run_block(parts.plan, self.query, matches, rows.numbers[matched.latest], carry.cut_off)
        outcome = QueryOutcome(
            matches=matches,
            found=later,
            outputs=outputs,
            discarded=self._discarded(records, wanted, carry.admitted.released),
            account=self._account(records, wanted, carry, was_pending),
            last_release=carry.admitted.last_release,
            adjusted=self._adjusted(carry.rows.clocks, wanted.records),
        )
        return outcome, carry

    def evict(self, carry: Carry, clock: int) -> int:
        """Evicts what cannot matter any more at `clock`; returns how many keys were forgotten."""
        return evict(self.parts, self.state, carry, clock)

    def load_cold(self, nothing: CallRecords) -> None:
        """Loads all cold keys, and evicts what has expired; `nothing`: no records, at the clock."""
        if self.state.keys.has_cold:
            outcome, carry = self.run(nothing, everything=True)
            assert outcome.matches is outcome.found is None, "timers up to the clock have been run"
            forgotten = self.evict(carry, nothing.now)
            assert not forgotten, "keys are forgotten when the clock gets there"

    def _admit(self, rows: CallRows, limit: int, timers: Timers | None = None) -> Admitted:
        judged = rows.clocks.verdicts.refused, rows.clocks.verdicts.bound
        policies = self.parts.policies
        return admit(rows.rows, rows.punctuation, policies, rows.timelines, limit, judged, timers, rows.ready)

    def _with_ends(self, rows: CallRows, admitted: Admitted) -> CallRows:
        return rows.with_table(with_ends(rows.table, self.parts.plan, rows.rows, admitted.released))

    def _superseded(self, rows: CallRows, released: Released) -> Integers:
        if not self.parts.windows.is_unique.any():
            return np.empty(0, np.int64)
        value, count = unique_numbers(self.parts.plan, self.query, rows.table, rows.rows.input)
        return superseded_by(released.start, released.order, value, count)

    def _ordered(self, carry: Carry) -> Ordered:
        """The matcher's input: released events, then members of pending matches."""
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
            table=table.append_column("_time", pa.array(times)),
        )

    def _matched(self, carry: Carry, found: Found, records: Integers) -> Matched:
        """The matches of the call, at the release of their latest events, in order.

        records: by new record, its number in the call
        """
        rows, released, latest = carry.rows, carry.admitted.released, found.latest
        chosen: tuple[pa.Array, ...] = ()
        if self.query.every is not None:
            latest_rows = released.order[latest].astype(np.int64)
            passed, chosen = selected(self.parts.plan, self.query, found.aggregates, rows.table, latest_rows)
            latest = latest[passed]
        definitive = released.definitive.take(latest)
        if rows.clocks.runs:
            numbers = rows.numbers[released.order[latest]]
            definitive = rows.clocks.lowered(numbers, released.emitted[latest], released.record[latest], definitive)
        matched, order = matches_in_order(
            released,
            latest,
            found.members[: len(latest)],
            definitive,
            records,
            carry.admitted.times,
            rows.table.column("_source_time").to_numpy(),
            rows.table.column("_arrival").to_numpy(),
            rows.keys,
            self._numbers_of(rows.table),
        )
        if "_adjusted" in rows.table.column_names:
            members = found.members[order]
            of_rows = np.where(members < 0, -1, released.order[members])
            matched = replace(matched, reasons=_reasons(rows.table, of_rows))
        return replace(matched, selected=tuple(taken(chosen, order))) if chosen else matched

    def _numbers_of(self, table: pa.Table) -> Integers:
        """By row, the number of the record among all, if matches are known by these; else none."""
        numbers: Integers = table.column(ROW_FIELD.name).to_numpy() if self.parts.gathers_later else _NONE
        return numbers

    def _expired_waits(
        self, records: CallRecords, carry: Carry, events: Ordered, found: Found, wanted: Integers
    ) -> tuple[Carry, Matched]:
        """The matches whose trailing wait has ended.

        wanted: by new record, its number in the call

        Which waits begin is known only after matching. So the call is admitted a second time, with
        their timers: these change no release, as they only ask when their times become definitive.
        """
        rows, waits = carry.rows, self.state.waits
        waiting = waits.all_of(events, found, rows.numbers)
        waiting = waiting.only(self.parts.matcher.outlives(events, waiting))
        clock = timers_of(waiting, rows.key_count, len(carry.admitted.times))
        keys = np.repeat(np.arange(rows.key_count), np.diff(clock.timers.start))
        timed = Ready(*rows.ready[:2], *rows.clocks.ready(keys, clock.timers.time))
        admitted = self._admit(rows.with_ready(timed), records.limit, clock.timers)
        clock = clock.with_timers(admitted.timers)
        over, timers = clock.expired, clock.timers
        emitted, record = timers.emitted[over], timers.record[over]
        definitive = rows.clocks.lowered(keys[over], emitted, record, timers.definitive[over])
        done = waiting.only(clock.wait[over])
        waits.keep(events, waiting.only(clock.pending))
        members = np.where(done.members < 0, -1, events.row[done.members]).astype(np.int64)
        matched = Matched(
            latest=events.row[done.latest].astype(np.int64),
            members=members,
            time=done.due,
            definitive=definitive,
            emitted=emitted,
            waited=np.full(len(over), Waited.WAIT, np.int8),
            step=call_numbers(record, wanted),
            rank=events.start[-1] + np.arange(len(over)),
            times=admitted.times[members],
            source_times=rows.table.column("_source_time").to_numpy()[members],
            arrivals=rows.table.column("_arrival").to_numpy()[members],
            reasons=_reasons(rows.table, members),
        )
        return Carry(rows, admitted, carry.superseded, carry.cut_off), matched

    def _adjusted(self, clocks: ClocksRun, records: Integers) -> pa.Table:
        """The records that were admitted with another time than their own (ADJUSTED_SCHEMA)."""
        new = np.flatnonzero(clocks.verdicts.adjusted)
        reasons = reason_words(clocks.verdicts.adjusted[new])
        query = pa.repeat(pa.scalar(self.query.title), len(new))
        columns = [query, reasons, pa.array(clocks.verdicts.time[new]), pa.array(records[new])]
        return pa.table(columns, schema=ADJUSTED_SCHEMA)

    def _discarded(self, records: CallRecords, wanted: Wanted, released: Released) -> pa.Table:
        """The records that admission or selection refused, with the reason."""
        count, selection = len(records.table), wanted.selection
        if not released.verdict.any() and not _has_refused(selection.outcome):  # the usual case
            return discard_schema(self.parts.plan).empty_table()
        reason, bound = np.zeros(count, np.int8), np.full(count, NO_TIME, np.int64)
        reason[wanted.records] = released.verdict
        bound[wanted.records] = released.verdict_bound
        has_null = (selection.outcome == Outcome.NULL_KEY) | (selection.outcome == Outcome.NULL_TIME)
        reason[has_null] = selection.outcome[has_null]
        bad = np.flatnonzero(reason)
        return refused(
            self.parts.plan,
            self.query.title,
            records.table,
            bad,
            reason_words(reason[bad]),
            records.arrival[bad],
            selection.time[bad],
            bound[bad],
        )

    def _account(self, records: CallRecords, wanted: Wanted, carry: Carry, was_pending: pa.Table) -> Account:
        """The changes of the ledger; `was_pending`: sources of events that were pending before."""
        verdict, adjusted = carry.admitted.released.verdict, carry.rows.clocks.verdicts.adjusted
        outcome = after_admission(wanted.selection.outcome, wanted.records, verdict, adjusted)
        name, sources = self.query.title, one_chunk(records.table.column("_source"))
        account = count_records(name, sources, outcome)
        is_pending = _counted(carry.rows.table).take(pa.array(carry.admitted.released.pending))
        account.update(moved_records(self.query, records, wanted, verdict, adjusted))
        account.update(count_pending(name, was_pending, -1))
        account.update(count_pending(name, is_pending, 1))
        return account


def _has_refused(outcome: NDArray[np.int8]) -> bool:
    """Whether selection refused any record."""
    counts = np.bincount(outcome, minlength=len(Outcome) + 1)
    return bool(counts[Outcome.NULL_KEY] or counts[Outcome.NULL_TIME])


def _reasons(table: pa.Table, members: Integers) -> NDArray[np.int8]:
    """Why members were adjusted, by match and term."""
    if "_adjusted" not in table.column_names:
        return np.empty((len(members), 0), np.int8)
    reasons: NDArray[np.int8] = table.column("_adjusted").to_numpy()[members]
    return reasons


def _counted(table: pa.Table) -> pa.Table:
    """The columns that pending events are counted by."""
    return table.select([name for name in ("_source", "_adjusted") if name in table.column_names])


def _pending_sources(events: pa.Table) -> pa.Table:
    return _counted(events.filter(events.column("_pending")))
