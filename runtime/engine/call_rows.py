"""The rows of a call, put together: what is remembered, what is new, what pending waits hold; keyed, timed and judged by shared clocks.

Takes a call's records and what a query makes of each; gives all that admission goes by. Row numbers are the same in all of its
columns: kept events, then new records in order of arrival, then the members of waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan
from runtime.admission.arrays import KeyedRows, Punctuation, Ready, Released, RowOrigin
from runtime.admission.interval_edges import ends
from runtime.admission.query_clocks import ClocksRun, QueryClocks
from runtime.admission.selection import Selection, Selector
from runtime.admission.timeline_kinds import NewRecords
from runtime.arrow_types import one_chunk
from runtime.columns.arrivals import Shape
from runtime.columns.keys import group_rows, key_columns, number_keys
from runtime.engine.key_state import Remembered
from runtime.instants import NEVER, NO_TIME
from runtime.matching.trailing_waits import PendingWaits
from runtime.policies.per_input import NO_WAIT, PolicyColumns

Integers = NDArray[np.int64]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Leeway:
    """delayLeeway and reorderBuffer in microseconds."""

    leeway: int
    reorder: int


@dataclass(frozen=True, slots=True)
class Clocked:
    """The records of a call in order of arrival, `arrival` never before the clock. `leeways`: from which record on, None: what
    the query's inputs start with; `beats`: the heartbeats among control events, by record: event type and time.

    The clock comes to `now` by records and ticks; timers run up to `limit`; `is_over`: no more records will come.
    """

    table: pa.Table
    kinds: Integers
    arrival: Integers
    leeways: Sequence[tuple[int, Leeway | None]]
    beats: Mapping[int, tuple[str, int]]
    now: int
    limit: int
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call's rows: kept ones, new ones, then the members of pending waits; and all that admission goes by.

    `rows` and `bounds` are what `admit` takes and changes.
    """

    table: pa.Table
    keys: list[pa.Array]
    numbers: Integers
    rows: KeyedRows
    bounds: Integers
    punctuation: Punctuation
    clocks: ClocksRun
    ready: Ready


def _chosen(values: NDArray[Any], rows: Integers) -> NDArray[Any]:
    """Those rows; all of them as they are."""
    return values if len(rows) == len(values) else values[rows]


class Calls:
    """Puts the rows of one query's calls together."""

    def __init__(
        self,
        plan: Plan,
        query: QueryPlan,
        selector: Selector,
        policies: PolicyColumns,
        clocks: QueryClocks,
        memory: Remembered,
        waits: PendingWaits,
    ) -> None:
        self._plan, self._query, self._selector = plan, query, selector
        self._policies, self._clocks, self._memory, self._waits = policies, clocks, memory, waits

    def new_rows(self, clocked: Clocked, selection: Selection, rows: Integers) -> pa.Table:
        """The records that the query wants, with the clock's arrival and their resolved source time."""
        source = clocked.table
        columns = []
        for field in self._waits.schema:
            if field.name == "_arrival":
                columns.append(pa.array(clocked.arrival))
            elif field.name == "_source_time":
                columns.append(pa.array(selection.time))
            elif field.name in source.column_names:
                columns.append(source.column(field.name))
            else:
                columns.append(pa.nulls(len(source), field.type))
        table = pa.table(columns, schema=self._waits.schema)
        return table if len(rows) == len(table) else table.take(pa.array(rows))

    def prepare(self, clocked: Clocked, selection: Selection, rows: Integers, new: pa.Table) -> Call:
        """The call's rows; `rows`: the numbers of the records that `new` holds."""
        kept, first_new = self._memory.kept, self._memory.kept.num_rows
        parts = [kept.select(self._waits.schema.names), new, self._waits.members.select(self._waits.schema.names)]
        table = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
        kinds = table.column("_kind").to_numpy()
        keys = [
            pa.concat_arrays([column, one_chunk(self._memory.bounds.column(f"key{place}"))])
            for place, column in enumerate(key_columns(table, kinds, self._plan, self._query))
        ]
        numbers, count = number_keys(keys, len(table) + len(self._memory.bounds))
        judged = first_new + len(rows)
        start, key_rows = group_rows(numbers[:judged], count)
        bounds = np.full((count, len(self._query.inputs)), NO_TIME, np.int64)
        bounds[numbers[len(table) :], self._memory.bounds.column("input").to_numpy()] = self._memory.bounds.column(
            "bound"
        ).to_numpy()
        fresh, waiting = len(rows), len(table) - judged
        pending = kept.column("_pending").to_numpy(zero_copy_only=False)
        inputs = [self._selector.input_of(kinds[:first_new]), _chosen(selection.input, rows)]
        times = [kept.column("_time").to_numpy(), _chosen(selection.time, rows)]
        beats = _chosen(selection.beats, rows) if len(selection.beats) else selection.beats
        everything = KeyedRows(
            start=start,
            key_rows=key_rows,
            key=numbers[:judged],
            origin=np.concatenate([pending.astype(np.int8), np.full(fresh, RowOrigin.NEW, np.int8)]),
            input=np.concatenate([*inputs, self._selector.input_of(kinds[judged:])]),
            heartbeats=np.concatenate([np.zeros(first_new, np.int64), beats]) if len(beats) else beats,
            time=np.concatenate([*times, self._waits.members.column("_time").to_numpy()]),
            arrival=table.column("_arrival").to_numpy(),
            buffer_end=np.concatenate([kept.column("_ripe").to_numpy(), np.full(fresh + waiting, NO_TIME, np.int64)]),
            first_new=first_new,
        )
        punctuation = self._punctuation(clocked, everything, numbers, rows)
        clocks = self._run_clocks(clocked, everything, new, kinds, keys, numbers, rows)
        table = self._with_adjusted(table, clocks)
        ready = Ready(*clocks.ready(numbers[:judged], everything.time[:judged]), _NONE, _NONE)
        return Call(table, keys, numbers, everything, bounds, punctuation, clocks, ready)

    def _run_clocks(
        self,
        clocked: Clocked,
        everything: KeyedRows,
        new: pa.Table,
        kinds: Integers,
        keys: list[pa.Array],
        numbers: Integers,
        rows: Integers,
    ) -> ClocksRun:
        """What the clocks that keys share say of the new records, whose times it adjusts; end edges are no events."""
        first = everything.first_new
        mine = slice(first, first + len(rows))
        run = self._clocks.run(
            NewRecords(
                table=new,
                kinds=kinds[mine],
                input=everything.input[mine],
                time=everything.time[mine],
                arrival=everything.arrival[mine],
                heartbeats={int(np.searchsorted(rows, row)): event for row, (event, _) in clocked.beats.items()},
                keys=keys,
                numbers=numbers,
                key_count=len(everything.start) - 1,
                first=first,
                now=clocked.now,
                limit=clocked.limit,
                is_over=clocked.is_over,
            )
        )
        everything.time[mine] = run.verdicts.time
        at_arrival = np.flatnonzero(self._policies.delay == NO_WAIT)
        if run.runs and len(at_arrival):
            rows_of = np.isin(everything.input[mine], at_arrival)
            everything.time[mine][rows_of] = everything.arrival[mine][rows_of]
        if "_shape" in new.column_names:
            is_end = pc.equal(new.column("_shape"), int(Shape.END_EDGE)).fill_null(False).to_numpy()
            everything.input[mine][is_end] = -1
        return run

    def _with_adjusted(self, table: pa.Table, clocks: ClocksRun) -> pa.Table:
        """The rows with why their time is not their own."""
        if "_adjusted" not in table.column_names:
            return table
        kept, waiting = self._memory.kept.column("_adjusted"), self._waits.members.column("_adjusted")
        adjusted = pa.chunked_array([*kept.chunks, pa.array(clocks.verdicts.adjusted), *waiting.chunks], pa.int8())
        place = table.schema.get_field_index("_adjusted")
        return table.set_column(place, "_adjusted", adjusted.combine_chunks())

    def _punctuation(self, clocked: Clocked, everything: KeyedRows, numbers: Integers, rows: Integers) -> Punctuation:
        everywhere = np.empty(0, np.int64)
        if len(everything.heartbeats):
            is_new = slice(everything.first_new, everything.first_new + len(rows))
            keyless = (everything.heartbeats[is_new] != 0) & (numbers[is_new] < 0)
            everywhere = everything.first_new + np.flatnonzero(keyless)
        changes = [everything.first_new + int(np.searchsorted(rows, row)) for row, _ in clocked.leeways]
        return Punctuation(
            heartbeat_row=everywhere,
            heartbeat_mask=everything.heartbeats[everywhere],
            heartbeat_time=everything.time[everywhere],
            heartbeat_arrival=everything.arrival[everywhere],
            leeway_row=np.array(changes, np.int64),
            leeway=self._by_input(
                [None if era is None else era.leeway for _, era in clocked.leeways], self._policies.leeway
            ),
            reorder=self._by_input(
                [None if era is None else era.reorder for _, era in clocked.leeways], self._policies.reorder
            ),
        )

    @staticmethod
    def _by_input(lengths: Sequence[int | None], standard: Integers) -> Integers:
        """A row of lengths for each era, one entry an input; None: what the inputs start with."""
        return np.array([standard if length is None else np.full_like(standard, length) for length in lengths])


def with_ends(table: pa.Table, plan: Plan, rows: KeyedRows, released: Released) -> pa.Table:
    """The rows with the ends that end edges have brought to events that were still waiting."""
    if "_end" not in table.column_names:
        return table
    first = rows.first_new
    is_admitted = np.zeros(len(table), np.bool_)
    is_admitted[first : first + len(released.verdict)] = released.verdict == 0
    gone = np.full((2, len(table)), NEVER, np.int64)
    gone[0][:first] = np.where(rows.origin[:first] == RowOrigin.WINDOW, NO_TIME, NEVER)
    window = np.repeat(released.fresh, np.diff(released.start))
    fresh = np.flatnonzero(np.arange(len(window)) >= window)
    gone[:, released.order[fresh]] = released.emitted[fresh], released.record[fresh]
    place = table.schema.get_field_index("_end")
    return table.set_column(place, "_end", ends(table, plan, is_admitted, gone, first))
