"""One query over the records of a call: selects, numbers keys, admits, matches, forgets.

Holds what the query must remember between calls: released events that may still match, pending ones, and how far each timeline has
come. All of it columns; nothing is done per key, record or event in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan import Plan, QueryPlan
from runtime.admission import Admitted, Punctuation, Released, Rows, Standing, admit
from runtime.batch import ARROW_TYPES, NO_TIME, SYSTEM_FIELDS, field_columns
from runtime.block import run_block
from runtime.controls import NEVER
from runtime.arrow import one_chunk
from runtime.keys import group_rows, key_columns, key_fields, number_keys
from runtime.ledger import Account, count_pending, count_records
from runtime.match_table import Matched, match_table
from runtime.matcher import Ordered, choose_matcher
from runtime.refused import refused
from runtime.results import OUTPUT_SCHEMA
from runtime.selection import Selection, Selector, Use
from runtime.time_policy import NO_WAIT, definitive_times, policy_columns
from runtime.windows import remembered_rows, window_columns

Integers = NDArray[np.int64]

_REASONS = pa.array([None, "late", "out_of_order", "null_key", "null_time"], pa.string())
_OWN_FIELDS = [pa.field("_time", pa.int64()), pa.field("_ripe", pa.int64()), pa.field("_pending", pa.bool_())]


@dataclass(frozen=True, slots=True)
class Leeway:
    """delayLeeway and reorderBuffer in microseconds."""

    leeway: int
    reorder: int


@dataclass(frozen=True, slots=True)
class Clocked:
    """The records of a call in order of arrival, `arrival` never before the clock; `leeways` from which record on;
    timers run up to `limit`."""

    table: pa.Table
    kinds: Integers
    arrival: Integers
    leeways: Sequence[tuple[int, Leeway]]
    limit: int


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """What came of one call for one query."""

    matches: pa.Table | None
    outputs: pa.Table
    discarded: pa.Table
    account: Account
    last_due: int


@dataclass(frozen=True, slots=True)
class _Work:
    """A call's rows, kept ones first; what `forget` needs after the clock has settled."""

    table: pa.Table
    keys: list[pa.Array]
    numbers: Integers
    input: NDArray[np.int16]
    time: Integers
    ripe: Integers
    bounds: Integers
    admitted: Admitted


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
        self.next_due = NEVER
        self._plan = plan
        self._selector = Selector(plan, query)
        self._matcher = choose_matcher(plan, query, matcher)
        self._policies = policy_columns(query)
        self._windows = window_columns(query)
        self._everywhere = np.full(len(query.inputs), NO_TIME, np.int64)
        used = {item.event for item in query.inputs}
        used |= {item.heartbeat.event for item in query.inputs if item.heartbeat is not None}
        columns = field_columns(event for event in plan.events if event.name in used)
        system = [field for field in SYSTEM_FIELDS if field.name != "_text"]
        self._schema = pa.schema([*system, *((name, ARROW_TYPES[type_]) for name, type_ in columns.items())])
        self._kept = pa.schema([*self._schema, *_OWN_FIELDS]).empty_table()
        keys = key_columns(self._kept, np.empty(0, np.int64), plan, query)
        self._bounds = pa.table(
            {f"key{place}": key for place, key in enumerate(keys)}
            | {"input": pa.array([], pa.int32()), "bound": pa.array([], pa.int64())}
        )
        self._work: _Work | None = None

    def run(self, clocked: Clocked) -> QueryOutcome:
        """Judges the records, releases what is definitive and matches it."""
        selection = self._selector.select(clocked.table, clocked.kinds)
        rows = np.flatnonzero((selection.use == Use.EVENT) | (selection.use == Use.HEARTBEAT))
        was_pending = self._pending_sources()
        work = self._admit(clocked, selection, rows)
        matches = self._match(work, rows)
        account = self._account(clocked, selection, rows, work, was_pending)
        return QueryOutcome(
            matches=matches,
            outputs=OUTPUT_SCHEMA.empty_table() if matches is None else run_block(self._plan, self.query, matches),
            discarded=self._discarded(clocked, selection, rows, work.admitted.released),
            account=account,
            last_due=work.admitted.last_due,
        )

    def _admit(self, clocked: Clocked, selection: Selection, rows: Integers) -> _Work:
        new = self._new_rows(clocked, selection, rows)
        kept, first_new = self._kept, self._kept.num_rows
        table = pa.concat_tables([kept.select(self._schema.names), new]).unify_dictionaries().combine_chunks()
        kinds = table.column("_kind").to_numpy()
        keys = [
            pa.concat_arrays([column, one_chunk(self._bounds.column(f"key{place}"))])
            for place, column in enumerate(key_columns(table, kinds, self._plan, self.query))
        ]
        numbers, count = number_keys(keys, len(table) + len(self._bounds))
        start, key_rows = group_rows(numbers[: len(table)], count)
        bounds = np.full((count, len(self.query.inputs)), NO_TIME, np.int64)
        bounds[numbers[len(table) :], self._bounds.column("input").to_numpy()] = self._bounds.column("bound").to_numpy()
        fresh = len(rows)
        pending = kept.column("_pending").to_numpy(zero_copy_only=False)
        work_input = np.concatenate([self._selector.input_of(kinds[:first_new]), selection.input[rows]])
        everything = Rows(
            start=start,
            key_rows=key_rows,
            standing=np.concatenate([pending.astype(np.int8), np.full(fresh, Standing.NEW, np.int8)]),
            input=work_input,
            beats=np.concatenate([np.zeros(first_new, np.int64), selection.beats[rows]]),
            time=np.concatenate([kept.column("_time").to_numpy(), selection.time[rows]]),
            arrival=table.column("_arrival").to_numpy(),
            ripe=np.concatenate([kept.column("_ripe").to_numpy(), np.full(fresh, NO_TIME, np.int64)]),
            first_new=first_new,
        )
        punctuation = self._punctuation(clocked, everything, numbers, rows)
        admitted = admit(
            everything, punctuation, self._policies.delay, self._policies.moves, bounds, self._everywhere, clocked.limit
        )
        self.next_due = admitted.next_due
        self._work = _Work(table, keys, numbers, work_input, everything.time, everything.ripe, bounds, admitted)
        return self._work

    def _new_rows(self, clocked: Clocked, selection: Selection, rows: Integers) -> pa.Table:
        """The records that the query wants, with the clock's arrival and their resolved source time."""
        source = clocked.table
        columns = []
        for field in self._schema:
            if field.name == "_arrival":
                columns.append(pa.array(clocked.arrival))
            elif field.name == "_source_time":
                columns.append(pa.array(selection.time))
            elif field.name in source.column_names:
                columns.append(source.column(field.name))
            else:
                columns.append(pa.nulls(len(source), field.type))
        table = pa.table(columns, schema=self._schema)
        return table if len(rows) == len(table) else table.take(pa.array(rows))

    def _punctuation(self, clocked: Clocked, everything: Rows, numbers: Integers, rows: Integers) -> Punctuation:
        new = np.arange(everything.first_new, len(everything.time))
        everywhere = new[(everything.beats[new] != 0) & (numbers[new] < 0)]
        changes = [everything.first_new + int(np.searchsorted(rows, row)) for row, _ in clocked.leeways]
        return Punctuation(
            beat_row=everywhere,
            beat_mask=everything.beats[everywhere],
            beat_time=everything.time[everywhere],
            beat_arrival=everything.arrival[everywhere],
            leeway_row=np.array(changes, np.int64),
            leeway=np.array([leeway.leeway for _, leeway in clocked.leeways], np.int64),
            reorder=np.array([leeway.reorder for _, leeway in clocked.leeways], np.int64),
        )

    def _match(self, work: _Work, rows: Integers) -> pa.Table | None:
        admitted = work.admitted.released
        ordered = Ordered(admitted.start, admitted.fresh, admitted.order, work.input, work.time, work.table)
        found = self._matcher.match(ordered)
        if not len(found.latest):
            return None
        latest = found.latest
        step = admitted.step[latest]
        matched = Matched(
            members=admitted.order[found.members].astype(np.int64),
            time=work.time[admitted.order[latest]],
            definitive=admitted.definitive[latest],
            emitted=admitted.emitted[latest],
            waited=admitted.waited[latest],
            step=np.where(step < 0, -1, rows[step]) if len(rows) else step,
            rank=latest,
        )
        return match_table(self._plan, self.query, work.table, work.time, matched)

    def _discarded(self, clocked: Clocked, selection: Selection, rows: Integers, admitted: Released) -> pa.Table:
        reason = np.zeros(len(clocked.table), np.int8)
        bound = np.full(len(clocked.table), NO_TIME, np.int64)
        reason[rows] = admitted.verdict
        bound[rows] = admitted.verdict_bound
        reason[selection.use == Use.NULL_KEY] = 3
        reason[selection.use == Use.NULL_TIME] = 4
        bad = np.flatnonzero(reason)
        reasons = _REASONS.take(pa.array(reason[bad]))
        return refused(
            self._plan,
            self.query.name,
            clocked.table,
            bad,
            reasons,
            clocked.arrival[bad],
            selection.time[bad],
            bound[bad],
        )

    def _account(
        self, clocked: Clocked, selection: Selection, rows: Integers, work: _Work, was_pending: pa.Array
    ) -> Account:
        verdict = np.zeros(len(clocked.table), np.int8)
        verdict[rows] = work.admitted.released.verdict
        name = self.query.name
        account = count_records(name, one_chunk(clocked.table.column("_source")), selection.use, verdict)
        pending = one_chunk(work.table.column("_source")).take(pa.array(work.admitted.released.pending))
        for sources, change in ((was_pending, -1), (pending, 1)):
            account.update(count_pending(name, sources, change))
        return account

    def _pending_sources(self) -> pa.Array:
        return one_chunk(self._kept.column("_source")).filter(one_chunk(self._kept.column("_pending")))

    def forget(self, clock: int) -> None:
        """Keeps of the last call's rows what may still matter once the clock has reached `clock`."""
        work = self._work
        if work is None or clock == NO_TIME:
            return
        admitted, delay = work.admitted.released, self._policies.delay
        definitive = definitive_times(work.bounds, self._everywhere, delay, clock)
        kept = remembered_rows(
            admitted.start, admitted.order, work.input, work.time, definitive, self._windows, self.query.within
        )
        rows = np.concatenate([kept, admitted.pending])
        own = [work.time[rows], work.ripe[rows], np.arange(len(rows)) >= len(kept)]
        table = work.table.take(pa.array(rows))
        for field, values in zip(_OWN_FIELDS, own, strict=True):
            table = table.append_column(field, pa.array(values))
        self._kept = table.combine_chunks()
        self._bounds = self._remembered_bounds(work, clock)
        self._work = None

    def _remembered_bounds(self, work: _Work, clock: int) -> pa.Table:
        """Timelines that are further than the clock and the heartbeats for every key bring them anyway."""
        delay = self._policies.delay
        anyway = np.maximum(np.where(delay == NO_WAIT, NEVER, clock - delay), self._everywhere)
        number, item = np.nonzero(work.bounds > anyway)
        index = pa.array(_rows_of(number, work.numbers, len(work.bounds)))
        columns = {f"key{place}": column.take(index) for place, column in enumerate(work.keys)}
        columns |= {"input": pa.array(item.astype(np.int32)), "bound": pa.array(work.bounds[number, item])}
        return pa.table(columns)

    def definitive(self, key: tuple[object, ...], clock: int) -> int:
        """The query's definitive time for a key at `clock`."""
        bounds = np.full((1, len(self.query.inputs)), NO_TIME, np.int64)
        own = self._bounds
        for place, value in enumerate(key):
            column = own.column(f"key{place}")
            own = own.filter(pc.equal(column, pa.scalar(value, column.type)))
        bounds[0, own.column("input").to_numpy()] = own.column("bound").to_numpy()
        return int(definitive_times(bounds, self._everywhere, self._policies.delay, clock)[0])

    @property
    def retained(self) -> int:
        """How many events are remembered."""
        return int(self._kept.num_rows)

    def header(self) -> dict[str, Any]:
        """The part of the state that is plain data."""
        return {
            "keys": sorted([event, list(fields)] for event, fields in key_fields(self.query).items()),
            "inputs": [item.event for item in self.query.inputs],
            "everywhere": self._everywhere.tolist(),
            "next_due": self.next_due,
        }

    def tables(self) -> dict[str, pa.Table]:
        """The part of the state that is columns."""
        return {"kept": self._kept, "bounds": self._bounds}

    def restore(self, header: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        """Goes on from `header` and `tables`; raises ValueError where they were made with other inputs or keys."""
        own = self.header()
        for part in ("keys", "inputs"):
            if header[part] != own[part]:
                raise ValueError(f"query {self.query.name!r} had the {part} {header[part]}, now {own[part]}")
        self._kept = tables["kept"].cast(self._kept.schema)
        self._bounds = tables["bounds"].cast(self._bounds.schema)
        self._everywhere = np.array(header["everywhere"], np.int64)
        self.next_due = int(header["next_due"])
