"""One query over the records of a call: selects, numbers keys, admits, matches, forgets.

Holds what the query must remember between calls: released events that may still match, pending ones, and how far each timeline has
come. All of it columns; nothing is done per key, record or event in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan
from runtime.admission.arrays import Ready, Released, Timers, Waited
from runtime.admission.outcomes import Outcome, after_admission, reason_words
from runtime.admission.per_key import Admitted, admit
from runtime.admission.query_clocks import ClocksRun, QueryClocks
from runtime.admission.selection import Selection, Selector
from runtime.admission.workspace import Timelines
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.arrivals import AT_THE_END, SYSTEM_FIELDS, field_columns
from runtime.columns.keys import key_columns, key_identity, plain_columns, unique_numbers
from runtime.engine.call_rows import Call, Calls, Clocked, with_ends
from runtime.engine.key_state import Remembered
from runtime.instants import NEVER, NO_TIME
from runtime.matching.choose import choose_matcher
from runtime.matching.find_every import selected
from runtime.matching.interface import Found, Ordered
from runtime.matching.trailing_waits import PendingWaits, timers_of
from runtime.matching.windows import rows_to_keep, superseded_by, window_columns
from runtime.policies.per_input import (
    BY_CLOCK,
    NO_WAIT,
    adjusts,
    definitive_times,
    has_ends,
    policy_columns,
    shares_clock,
)
from runtime.results.block_outputs import run_block
from runtime.results.discards import refused
from runtime.results.ledger import Account, count_pending, count_records
from runtime.results.match_table import Matched, match_table
from runtime.results.schemas import ADJUSTED_SCHEMA, OUTPUT_SCHEMA

Integers = NDArray[np.int64]

_OWN_FIELDS = [pa.field("_time", pa.int64()), pa.field("_ripe", pa.int64()), pa.field("_pending", pa.bool_())]


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """What came of one call for one query."""

    matches: pa.Table | None
    outputs: pa.Table
    discarded: pa.Table
    account: Account
    last_due: int
    adjusted: pa.Table


@dataclass(frozen=True, slots=True)
class _Work:
    """What came of a call, until the clock has settled; `superseded` is by position of `admitted`."""

    call: Call
    admitted: Admitted
    superseded: Integers


_NONE = np.empty(0, np.int64)


def _counted(table: pa.Table) -> list[str]:
    """The columns that events are counted by."""
    return [name for name in ("_source", "_adjusted") if name in table.column_names]


def _rows_of(wanted: Integers, numbers: Integers, count: int) -> Integers:
    """For each wanted key number a row that has it."""
    if not len(wanted):
        return wanted
    some_row = np.zeros(count, np.int64)
    known = np.flatnonzero(numbers >= 0)
    some_row[numbers[known]] = known
    return some_row[wanted]


class QueryRunner:
    """Runs one query of a plan; see `Engine` for what `matcher` may be."""

    def __init__(self, plan: Plan, query: QueryPlan, matcher: str) -> None:
        self.query = query
        self._own_due = NEVER  # of the keys at hand
        self._plan = plan
        self._selector = Selector(plan, query)
        self._matcher = choose_matcher(plan, query, matcher)
        self._policies = policy_columns(query)
        self._clocks = QueryClocks(plan, query)
        self._windows = window_columns(query)
        self._everywhere = np.full(len(query.inputs), NO_TIME, np.int64)
        used = {item.event for item in query.inputs}
        used |= {item.heartbeat.event for item in query.inputs if item.heartbeat is not None}
        columns = field_columns(event for event in plan.events if event.name in used)
        system = [field for field in SYSTEM_FIELDS if field.name != "_text"]
        system += [pa.field("_adjusted", pa.int8())] if adjusts(query) else []
        system += [pa.field("_shape", pa.int8()), pa.field("_end", pa.int64())] if has_ends(query) else []
        self._schema = pa.schema([*system, *((name, arrow_type(type_, plan)) for name, type_ in columns.items())])
        kept = pa.schema([*self._schema, *_OWN_FIELDS]).empty_table()
        keys = self._keys_of(kept)
        bounds = pa.table(
            {f"key{place}": key for place, key in enumerate(keys)}
            | {"input": pa.array([], pa.int32()), "bound": pa.array([], pa.int64())}
        )
        may_rest = bool(query.keys) and query.trailing is None and not shares_clock(query)
        self._memory = Remembered(kept, bounds, self._keys_of, may_rest=may_rest)
        self._waits = PendingWaits(query, self._schema)
        self._calls = Calls(plan, query, self._selector, self._policies, self._clocks, self._memory, self._waits)
        self._work: _Work | None = None

    def run(self, clocked: Clocked, *, everything: bool = False) -> QueryOutcome:
        """Judges the records, releases what is definitive and matches it; `everything`: of all keys, not only those concerned."""
        selection = self._selector.select(clocked.table, clocked.kinds, clocked.beats)
        is_concerned = (selection.outcome == Outcome.USED) | (selection.outcome == Outcome.HEARTBEAT)
        is_concerned[list(clocked.beats)] = True
        rows = np.flatnonzero(is_concerned)
        new = self._calls.new_rows(clocked, selection, rows)
        self._memory.recall(new, clocked.limit, everything=everything)
        was_pending = self._pending_sources()
        work = self._admit(self._calls.prepare(clocked, selection, rows, new), clocked.limit)
        matches = self._match(clocked, work, rows)
        work = self._work or work
        self._own_due = work.admitted.next_timer
        account = self._account(clocked, selection, rows, work, was_pending)
        return QueryOutcome(
            matches=matches,
            outputs=OUTPUT_SCHEMA.empty_table() if matches is None else run_block(self._plan, self.query, matches),
            discarded=self._discarded(clocked, selection, rows, work.admitted.released),
            account=account,
            last_due=work.admitted.last_release,
            adjusted=self._adjusted(work.call.clocks, rows),
        )

    def _admit(self, call: Call, limit: int) -> _Work:
        """What is released by the records and by time; of a query with a trailing wait `_match` says the last word."""
        admitted = self._judge(call, limit)
        superseded = self._superseded(call.table, call.rows.input, admitted.released)
        table = with_ends(call.table, self._plan, call.rows, admitted.released)
        self._work = _Work(replace(call, table=table), admitted, superseded)
        return self._work

    def _adjusted(self, clocks: ClocksRun, rows: Integers) -> pa.Table:
        places = np.flatnonzero(clocks.verdicts.adjusted)
        reasons = reason_words(clocks.verdicts.adjusted[places])
        query = pa.repeat(pa.scalar(self.query.title), len(places))
        columns = [query, reasons, pa.array(clocks.verdicts.time[places]), pa.array(rows[places])]
        return pa.table(columns, schema=ADJUSTED_SCHEMA)

    def _judge(self, call: Call, limit: int, timers: Timers | None = None) -> Admitted:
        judged = call.clocks.verdicts.refused, call.clocks.verdicts.bound
        return admit(
            call.rows,
            call.punctuation,
            self._policies,
            Timelines(call.bounds, self._everywhere),
            limit,
            judged,
            timers,
            call.ready,
        )

    def _superseded(self, table: pa.Table, input_of: NDArray[np.int16], released: Released) -> Integers:
        if not self._windows.is_unique.any():
            return np.empty(0, np.int64)
        value, count = unique_numbers(self._plan, self.query, table, input_of)
        return superseded_by(released.start, released.order, value, count)

    def _match(self, clocked: Clocked, work: _Work, rows: Integers) -> pa.Table | None:
        released, members = work.admitted.released, len(self._waits)
        extra = np.arange(len(work.call.table) - members, len(work.call.table), dtype=np.int32)
        ordered = Ordered(
            start=released.start,
            fresh=released.fresh,
            row=np.concatenate([released.order, extra]) if members else released.order,
            input=np.concatenate([released.input, work.call.rows.input[extra]]) if members else released.input,
            time=np.concatenate([released.time, work.admitted.times[extra]]) if members else released.time,
            superseded=work.superseded,
            table=work.call.table.append_column("_time", pa.array(work.admitted.times)),
        )
        found = self._matcher.match(ordered)
        if self.query.trailing is None:
            matched = self._matched(work, found, rows)
        else:
            matched = self._waited(clocked, work, ordered, found, rows)
        if not len(matched):
            return None
        return match_table(self._plan, self.query, work.call.table, work.admitted.times, matched)

    def _matched(self, work: _Work, found: Found, rows: Integers) -> Matched:
        """The matches of the call, as their latest events were released."""
        released, latest = work.admitted.released, found.latest
        chosen: tuple[pa.Array, ...] = ()
        if self.query.every is not None:
            latest_rows = released.order[latest].astype(np.int64)
            passed, chosen = selected(self._plan, self.query, found.aggregates, work.call.table, latest_rows)
            latest = latest[passed]
        members = found.members
        return Matched(
            latest=released.order[latest].astype(np.int64),
            members=np.where(members < 0, -1, released.order[members]).astype(np.int64),
            time=released.time[latest],
            definitive=self._definitive(work, released.order[latest], released, latest),
            emitted=released.emitted[latest],
            waited=released.waited[latest],
            step=self._steps(released.record[latest], rows),
            rank=latest,
            selected=chosen,
        )

    def _waited(self, clocked: Clocked, work: _Work, ordered: Ordered, found: Found, rows: Integers) -> Matched:
        """The matches whose trailing wait is over. Judges the call a second time, now that the moments are known."""
        waiting = self._waits.all_of(ordered, found, work.call.numbers)
        waiting = waiting.only(self._matcher.outlives(ordered, waiting))
        clock = timers_of(waiting, len(work.call.bounds), len(work.admitted.times))
        keys = np.repeat(np.arange(len(work.call.bounds)), np.diff(clock.timers.start))
        timed = Ready(*work.call.ready[:2], *work.call.clocks.ready(keys, clock.timers.time))
        admitted = self._judge(replace(work.call, ready=timed), clocked.limit, clock.timers)
        clock = replace(clock, timers=admitted.timers)
        self._work = replace(work, admitted=admitted)
        over, timers = clock.expired, clock.timers
        definitive = work.call.clocks.lowered(
            keys[over], timers.emitted[over], timers.record[over], timers.definitive[over]
        )
        done = waiting.only(clock.wait[over])
        self._waits.keep(ordered, waiting.only(clock.pending))
        return Matched(
            latest=ordered.row[done.latest].astype(np.int64),
            members=np.where(done.members < 0, -1, ordered.row[done.members]).astype(np.int64),
            time=done.due,
            definitive=definitive,
            emitted=timers.emitted[over],
            waited=np.full(len(over), Waited.WAIT, np.int8),
            step=self._steps(timers.record[over], rows),
            rank=ordered.start[-1] + np.arange(len(over)),
        )

    @staticmethod
    def _definitive(work: _Work, rows: NDArray[np.int32], released: Released, positions: Integers) -> Integers:
        """The query's definitive time when the events at these positions were released."""
        reached = released.definitive[positions]
        if not work.call.clocks.runs:
            return reached
        emitted, step = released.emitted[positions], released.record[positions]
        return work.call.clocks.lowered(work.call.numbers[rows], emitted, step, reached)

    @staticmethod
    def _steps(step: Integers, rows: Integers) -> Integers:
        """The numbers of new rows as numbers of the call's records."""
        if not len(rows):
            return step
        is_record = (step >= 0) & (step < AT_THE_END)
        return np.where(is_record, rows[np.where(is_record, step, 0)], step)

    def _discarded(self, clocked: Clocked, selection: Selection, rows: Integers, admitted: Released) -> pa.Table:
        reason = np.zeros(len(clocked.table), np.int8)
        bound = np.full(len(clocked.table), NO_TIME, np.int64)
        reason[rows] = admitted.verdict
        bound[rows] = admitted.verdict_bound
        has_null = (selection.outcome == Outcome.NULL_KEY) | (selection.outcome == Outcome.NULL_TIME)
        reason[has_null] = selection.outcome[has_null]
        bad = np.flatnonzero(reason)
        return refused(
            self._plan,
            self.query.title,
            clocked.table,
            bad,
            reason_words(reason[bad]),
            clocked.arrival[bad],
            selection.time[bad],
            bound[bad],
        )

    def _account(
        self, clocked: Clocked, selection: Selection, rows: Integers, work: _Work, was_pending: pa.Table
    ) -> Account:
        refused, adjusted = work.admitted.released.verdict, work.call.clocks.verdicts.adjusted
        outcome = after_admission(selection.outcome, rows, refused, adjusted)
        name, sources = self.query.title, one_chunk(clocked.table.column("_source"))
        account = count_records(name, sources, outcome)
        pending = work.call.table.select(_counted(work.call.table)).take(pa.array(work.admitted.released.pending))
        account.update(count_pending(name, was_pending, -1))
        account.update(count_pending(name, pending, 1))
        return account

    def _pending_sources(self) -> pa.Table:
        return self._memory.kept.filter(self._memory.kept.column("_pending")).select(_counted(self._memory.kept))

    def forget(self, clock: int) -> None:
        """Keeps of the last call's rows what may still matter once the clock has reached `clock`."""
        work = self._work
        if work is None or clock == NO_TIME:
            return
        admitted, delay = work.admitted.released, self._policies.delay
        self._everywhere = work.admitted.timelines.everywhere
        definitive = definitive_times(work.admitted.timelines.bounds, self._everywhere, delay, clock)
        definitive = np.minimum(definitive, self._clocks.definitive(work.call.clocks, clock, len(definitive)))
        kept = rows_to_keep(admitted, work.superseded, definitive, self._windows)
        rows = np.concatenate([kept, admitted.pending])
        own = [work.admitted.times[rows], work.admitted.buffer_end[rows], np.arange(len(rows)) >= len(kept)]
        table = work.call.table.take(pa.array(rows))
        for field, values in zip(_OWN_FIELDS, own, strict=True):
            table = table.append_column(field, pa.array(values))
        due = admitted.next_timer[work.call.numbers[rows]]
        self._memory.remember(table.combine_chunks(), self._remembered_bounds(work, clock), due)
        self._clocks.evict(clock)
        self._work = None

    def _remembered_bounds(self, work: _Work, clock: int) -> pa.Table:
        """Timelines that are further than the clock and the heartbeats for every key bring them anyway."""
        delay = self._policies.delay
        has_none = (delay == NO_WAIT) | (delay == BY_CLOCK)
        anyway = np.maximum(np.where(has_none, NEVER, clock - delay), self._everywhere)
        bounds = work.admitted.timelines.bounds
        number, item = np.nonzero(bounds > anyway)
        index = pa.array(_rows_of(number, work.call.numbers, len(work.call.bounds)))
        columns = {f"key{place}": column.take(index) for place, column in enumerate(work.call.keys)}
        columns |= {"input": pa.array(item.astype(np.int32)), "bound": pa.array(bounds[number, item])}
        return pa.table(columns)

    def _keys_of(self, table: pa.Table) -> list[pa.Array]:
        return key_columns(table, table.column("_kind").to_numpy(), self._plan, self.query)

    def gather(self, nothing: Clocked) -> None:
        """Brings to hand all that is remembered, and forgets what has had its time meanwhile; `nothing`: no records, at the clock."""
        if self._memory.is_resting:
            outcome = self.run(nothing, everything=True)
            assert outcome.matches is None, "what is due has been run"
            self.forget(nothing.now)

    def definitive(self, key: tuple[object, ...], clock: int) -> int:
        """The query's definitive time for a key at `clock`."""
        bounds = np.full((1, len(self.query.inputs)), NO_TIME, np.int64)
        own = self._memory.bounds_of(key)
        for place, value in enumerate(key):
            column = one_chunk(own.column(f"key{place}"))
            sides = plain_columns([column]), plain_columns([pa.repeat(pa.scalar(value, column.type), len(column))])
            own = own.filter(reduce(pc.and_, map(pc.equal, *sides)))
        bounds[0, own.column("input").to_numpy()] = own.column("bound").to_numpy()
        own = int(definitive_times(bounds, self._everywhere, self._policies.delay, clock)[0])
        return min(own, self._clocks.definitive_of(key, clock))

    def clocks(self) -> pa.Table:
        """The timelines that keys share (`runtime.admission.query_clocks.CLOCK_SCHEMA`)."""
        return self._clocks.timelines()

    @property
    def next_due(self) -> int:
        """When time alone does something, NEVER: not at all."""
        return min(self._own_due, self._memory.next_due)

    @property
    def retained(self) -> int:
        """How many events are remembered: in windows, not definitive yet, in match sets that wait."""
        return len(self._memory) + len(self._waits)

    def header(self) -> dict[str, Any]:
        """The part of the state that is plain data."""
        return {
            "keys": key_identity(self.query),
            "inputs": [item.event for item in self.query.inputs],
            "everywhere": self._everywhere.tolist(),
            "next_due": self.next_due,
            "clocks": self._clocks.header(),
        }

    def tables(self) -> dict[str, pa.Table]:
        """The part of the state that is columns."""
        waits = {} if self.query.trailing is None else {"waits": self._waits.members}
        return {"kept": self._memory.kept, "bounds": self._memory.bounds} | waits | self._clocks.tables()

    def restore(self, header: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        """Goes on from `header` and `tables`; raises ValueError where they were made with other inputs or keys."""
        own = self.header()
        for part in ("keys", "inputs"):
            if header[part] != own[part]:
                raise ValueError(f"query {self.query.title!r} had the {part} {header[part]}, now {own[part]}")
        memory = self._memory
        memory.restore(tables["kept"].cast(memory.kept.schema), tables["bounds"].cast(memory.bounds.schema))
        if "waits" in tables:
            self._waits.restore(tables["waits"])
        self._clocks.restore(header.get("clocks", []), tables)  # states from before there were any
        self._everywhere = np.array(header["everywhere"], np.int64)
        self._own_due = int(header["next_due"])
