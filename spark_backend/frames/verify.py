"""The same records through Spark's batch and through its stream, cut and restarted at given places.

Takes records and plans, many cases at once; gives results that can be compared with the embedded engine's row by row.
All cases run in one Spark job: bucket numbers count through them, so that a hundred small cases cost little more than
one. With a restart, every micro-batch is a Spark query of its own, in a session of its own, on the same checkpoint.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from querylang.plan.model import Plan
from runtime.columns.arrivals import AT_THE_END, Arrivals
from runtime.replay.replay import in_order
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema, match_schema
from spark_backend.errors import plain_error
from spark_backend.frames.bounded import tagged_bounded
from spark_backend.frames.streaming import tagged_stream
from spark_backend.session import own_session
from spark_backend.wire.packed_rows import PACKED_DDL, PACKED_SCHEMA, Call, pack_arrivals, pack_signal
from spark_backend.wire.partition_groups import EVERY_BUCKET
from spark_backend.wire.program import Program
from spark_backend.wire.tagged_rows import Tag, read_table

DEFAULT_BUCKETS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """Records in order of arrival, cut before the rows `splits`; `flush` lets time run out after the last."""

    plan: Plan
    arrivals: Arrivals
    splits: tuple[int, ...] = ()
    flush: bool = True

    def pieces(self) -> list[tuple[int, Arrivals]]:
        """The first row and the records of each micro-batch."""
        edges = [0, *self.splits, len(self.arrivals)]
        return [(start, Arrivals(self.arrivals.table.slice(start, end - start))) for start, end in pairwise(edges)]


def stream_in_batches(
    plan: Plan, arrivals: Arrivals, splits: Sequence[int], *, flush: bool = True, sources: Sequence[str] = ()
) -> Results:
    """One case as a stream, restarted in a new session at every split."""
    return run_streams([Case(plan, arrivals, tuple(splits), flush)], sources=sources)[0]


def match_in_batch(plan: Plan, arrivals: Arrivals, *, flush: bool = True, sources: Sequence[str] = ()) -> Results:
    """One case as a bounded Spark DataFrame."""
    return run_bounded([Case(plan, arrivals, (), flush)], sources=sources)[0]


def run_streams(
    cases: Sequence[Case], *, buckets: int = DEFAULT_BUCKETS, restart: bool = True, sources: Sequence[str] = ()
) -> list[Results]:
    """All cases as one stream: micro-batch i holds piece i of each; a restart before every one, or none."""
    job = _Cases(cases, buckets, sources)
    with tempfile.TemporaryDirectory(prefix="ensue-verify-") as place:
        folder = Path(place)
        (folder / "packed").mkdir()
        steps = max(len(case.splits) + 1 for case in cases)
        for step in range(steps):
            job.write_step(step, folder / "packed" / f"{step:06d}.parquet")
            if restart or step == steps - 1:
                _run_available(own_session(), job, folder)
    return job.results()


def run_bounded(cases: Sequence[Case], *, buckets: int = DEFAULT_BUCKETS, sources: Sequence[str] = ()) -> list[Results]:
    """All cases as one bounded DataFrame; splits are ignored."""
    whole = [replace(case, splits=()) for case in cases]
    job = _Cases(whole, buckets, sources)
    session = own_session()
    with tempfile.TemporaryDirectory(prefix="ensue-verify-") as place:
        file = Path(place) / "packed.parquet"
        job.write_step(0, file)
        packed = session.read.schema(PACKED_DDL).parquet(str(file))
        job.take(tagged_bounded(packed, job.program, flush=False), 0)
    return job.results()


def _run_available(session: SparkSession, job: _Cases, folder: Path) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    reader = session.readStream.schema(PACKED_DDL).option("maxFilesPerTrigger", 1).option("maxFileAge", "100000d")
    tagged = tagged_stream(reader.parquet(str(folder / "packed")), job.program)
    writer = tagged.writeStream.outputMode("append").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).foreachBatch(job.take).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise plain_error(error) from error
    finally:
        query.stop()


@dataclass(frozen=True, slots=True)
class _Found:
    """A table that came out: of which case, bucket and micro-batch."""

    case: int
    bucket: int
    step: int
    tag: Tag
    query: str
    table: pa.Table


@dataclass(slots=True)
class _Cases:
    """Cases on their way through one Spark job."""

    cases: Sequence[Case]
    buckets: int
    sources: Sequence[str]
    program: Program = field(init=False)
    found: list[_Found] = field(default_factory=list)
    rows: dict[tuple[int, int, int], NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plans = [case.plan for case in self.cases]
        self.program = Program.of(*plans, buckets=self.buckets, sources=self.sources)

    def write_step(self, step: int, file: Path) -> None:
        """Piece `step` of every case, packed; the time of the file orders it among the others."""
        batches = [batch for index in range(len(self.cases)) for batch in self._packed(index, step)]
        pa.parquet.write_table(pa.Table.from_batches(batches, PACKED_SCHEMA), file)
        os.utime(file, (1e9 + step, 1e9 + step))

    def _packed(self, index: int, step: int) -> list[pa.RecordBatch]:
        case = self.cases[index]
        pieces = case.pieces()
        if step >= len(pieces):
            return []
        start, arrivals = pieces[step]
        batches = []
        if len(arrivals):
            batches.append(pack_arrivals(arrivals, self.program.groups(index), self.buckets, by_partition=False))
            self._note_rows(index, step, start, arrivals)
        if case.flush and step == len(pieces) - 1:
            batches.append(pack_signal(self.buckets, Call.FLUSH))
        return [self._numbered(batch, index) for batch in batches]

    def _numbered(self, batch: pa.RecordBatch, index: int) -> pa.RecordBatch:
        bucket = pc.add(batch.column(0), pa.scalar(index * self.buckets, pa.int32()))
        return pa.RecordBatch.from_arrays([bucket, batch.column(1)], schema=PACKED_SCHEMA)

    def _note_rows(self, index: int, step: int, start: int, arrivals: Arrivals) -> None:
        """Which records each engine gets: its own numbers of records are turned into the case's with it."""
        for group in self.program.groups(index):
            route = group.route(arrivals, self.buckets)
            place = np.where(route.is_wanted, route.bucket, self.buckets)
            for bucket in range(self.buckets):
                mine = (place == bucket) | (place == EVERY_BUCKET)
                self.rows[index * self.buckets + bucket, step, group.number] = start + np.flatnonzero(mine)

    def take(self, tagged: DataFrame, step: int) -> None:
        """For `foreachBatch`: what came out of a micro-batch."""
        for row in tagged.collect():
            case, tag = self.program.plan_index(row["bucket"]), Tag(row["kind"])
            self.found.append(_Found(case, row["bucket"], step, tag, row["query"], read_table(bytes(row["data"]))))

    def results(self) -> list[Results]:
        """The results of each case, in their promised order."""
        return [self._result(index, case.plan) for index, case in enumerate(self.cases)]

    def _result(self, index: int, plan: Plan) -> Results:
        mine = [item for item in self.found if item.case == index]
        matches = {}
        for query in plan.queries:
            tables = [self._in_case(item) for item in mine if item.tag is Tag.MATCH and item.query == query.title]
            if tables:
                matches[query.title] = pa.concat_tables([match_schema(plan, query).empty_table(), *tables])
        outputs = [self._in_case(item) for item in mine if item.tag in {Tag.OUTPUT, Tag.ERROR}]
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

    def _in_case(self, item: _Found) -> pa.Table:
        """The table with `_step` as a row of the case: the engine counts the records of a call, from 0."""
        place = item.table.schema.get_field_index("_step")
        steps = item.table.column(place).to_numpy()
        if not (steps >= 0).any():
            return item.table
        moved = [
            self._row(item, query, step) if 0 <= step < AT_THE_END else step
            for step, query in zip(steps.tolist(), self._queries(item), strict=True)
        ]
        return item.table.set_column(place, item.table.schema.field(place), pa.array(moved, pa.int64()))

    def _queries(self, item: _Found) -> list[str]:
        names = item.table.column("query").to_pylist()
        return [name or "" for name in names]

    def _row(self, item: _Found, query: str, step: int) -> int:
        """`query`: its name or title; the instances of one are in one group."""
        groups = self.program.groups(item.case)
        number = next((g.number for g in groups if any(query in (q.name, q.title) for q in g.plan.queries)), 0)
        return int(self.rows[item.bucket, item.step, number][step])
