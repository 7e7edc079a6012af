"""Records as the micro-batches of a job, to compare what buckets give with embedded runs.

Several cases fit into one job: bucket numbers count through them, so that a hundred small cases
cost little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from job_engine.wire.packed_rows import PACKED_SCHEMA, Signal, pack_arrivals, pack_signal
from job_engine.wire.partition_groups import EVERY_BUCKET
from job_engine.wire.program import Program, with_script
from job_engine.wire.reports import ProgressBy
from job_engine.wire.tagged_rows import Tag
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.replay import Script
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema, in_order, match_schema

DEFAULT_BUCKETS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """Records to run.

    arrivals: in order of arrival
    splits: the rows before which a stream is cut into micro-batches
    flush: whether time advances at the end until no timer is left
    script: the plans that hold one after the other; None = the queries do not change
    """

    plan: Plan
    arrivals: Arrivals
    splits: tuple[int, ...] = ()
    flush: bool = True
    script: Script | None = None

    def pieces(self) -> list[tuple[int, Arrivals]]:
        """The first row and the records of each micro-batch."""
        edges = [0, *self.splits, len(self.arrivals)]
        return [(start, Arrivals(self.arrivals.table.slice(start, end - start))) for start, end in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of results, with its case, bucket and micro-batch (`step`)."""

    case: int
    bucket: int
    step: int
    tag: Tag
    query: str
    table: pa.Table


@dataclass(slots=True)
class Cases:
    """Cases in one job: its micro-batches as packed rows, and what buckets give for them.

    found: tables of results so far
    rows: by bucket, step and partition group, the rows of the case that its engine gets
    """

    cases: Sequence[Case]
    buckets: int
    program: Program = field(init=False)
    found: list[FoundTable] = field(default_factory=list)
    rows: dict[tuple[int, int, int], NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plans = [case.plan for case in self.cases]
        self.program = Program.of(*plans, buckets=self.buckets)
        for case in self.cases:
            if case.script is not None:
                assert len(self.cases) == 1, "a job has the changes of one case"
                # what became of changes is added below, in its place among the outputs
                program = with_script(self.program, case.script, case.arrivals.table)
                self.program = replace(program, notices=())

    def packed(self, step: int) -> pa.Table:
        """Piece `step` of every case as packed rows."""
        batches = [batch for index in range(len(self.cases)) for batch in self._packed(index, step)]
        return pa.Table.from_batches(batches, PACKED_SCHEMA)

    def _packed(self, index: int, step: int) -> list[pa.RecordBatch]:
        case = self.cases[index]
        pieces = case.pieces()
        if step >= len(pieces):
            return []
        start, arrivals = pieces[step]
        batches = []
        if len(arrivals):
            groups = self.program.groups(index)
            batches.append(pack_arrivals(arrivals, groups, self.buckets, counted=ProgressBy(by_partition=False)))
            self._note_rows(index, step, start, arrivals)
        if case.flush and step == len(pieces) - 1:
            batches.append(pack_signal(self.buckets, Signal.FLUSH))
        return [self._numbered(batch, index) for batch in batches]

    def _numbered(self, batch: pa.RecordBatch, index: int) -> pa.RecordBatch:
        bucket = pc.add(batch.column(0), pa.scalar(index * self.buckets, pa.int32()))
        return pa.RecordBatch.from_arrays([bucket, batch.column(1)], schema=PACKED_SCHEMA)

    def _note_rows(self, index: int, step: int, start: int, arrivals: Arrivals) -> None:
        """Note which records each engine gets, to translate its row numbers into the case's."""
        for group in self.program.groups(index):
            route = group.route(arrivals, self.buckets)
            place = np.where(route.is_wanted, route.bucket, self.buckets)
            for bucket in range(self.buckets):
                mine = (place == bucket) | (place == EVERY_BUCKET)
                self.rows[index * self.buckets + bucket, step, group.number] = start + np.flatnonzero(mine)

    def note(self, bucket: int, step: int, tag: Tag, query: str, table: pa.Table) -> None:
        """Note a table of results that a bucket gave in a micro-batch."""
        self.found.append(FoundTable(self.program.plan_index(bucket), bucket, step, tag, query, table))

    def results(self) -> list[Results]:
        """The results of each case, in the engine's order."""
        return [self._result(index, case) for index, case in enumerate(self.cases)]

    def _result(self, index: int, case: Case) -> Results:
        plan = case.plan
        mine = [item for item in self.found if item.case == index]
        matches = {}
        for query in plan.queries:
            tables = [self._in_case(item) for item in mine if item.tag is Tag.MATCH and item.query == query.title]
            if tables:
                matches[query.title] = pa.concat_tables([match_schema(plan, query).empty_table(), *tables])
        outputs = [self._in_case(item) for item in mine if item.tag in {Tag.OUTPUT, Tag.ERROR}]
        if case.script is not None:
            outputs += case.script.told(case.arrivals, flush=case.flush)
        discarded = [self._in_case(item) for item in mine if item.tag is Tag.DISCARDED]
        account = Account()
        for item in mine:
            if item.tag is Tag.LEDGER:
                for row in item.table.to_pylist():
                    account[row["query"], row["source"], row["what"]] += row["count"]
        return in_order(
            plan,
            Results(
                matches=matches,
                outputs=pa.concat_tables([OUTPUT_SCHEMA.empty_table(), *outputs]),
                discarded=pa.concat_tables([discard_schema(plan).empty_table(), *discarded]),
                ledger=ledger_table(account),
            ),
        )

    def _in_case(self, item: FoundTable) -> pa.Table:
        """The table with `_step` as a row of the case; the engine counts the records of a call."""
        position = item.table.schema.get_field_index("_step")
        steps = item.table.column(position).to_numpy()
        if not (steps >= 0).any():
            return item.table
        moved = [
            self._row(item, query, step) if 0 <= step < AT_THE_END else step
            for step, query in zip(steps.tolist(), self._queries(item), strict=True)
        ]
        return item.table.set_column(position, item.table.schema.field(position), pa.array(moved, pa.int64()))

    def _queries(self, item: FoundTable) -> list[str]:
        names = item.table.column("query").to_pylist()
        return [name or "" for name in names]

    def _row(self, item: FoundTable, query: str, step: int) -> int:
        """`query`: name or title; all instances of a query are in one group."""
        stages = [stage.groups for stage in self.program.stages] if self.program.epochs else []
        groups = [group for some in (*stages, self.program.groups(item.case)) for group in some]
        number = next((g.number for g in groups if any(query in (q.name, q.title) for q in g.plan.queries)), 0)
        return int(self.rows[item.bucket, item.step, number][step])
