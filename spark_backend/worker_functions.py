"""The functions that Spark calls on workers: decode its rows, run a step, encode the result.

They are found by name through `on_worker`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from job_engine.operator.bucket_state import first_state
from job_engine.operator.step import StepResult, run_step
from job_engine.sinks.bucket_results import COUNTS, Attempt, counts, sinks_to_text, write_results
from job_engine.sinks.kinds import MicroBatch, Sink
from job_engine.wire.packed_rows import Signal, fetched
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import TAGGED_SCHEMA, Tag, TaggedRow
from querylang.printable import warn
from runtime.json_reader import json_of_text
from runtime.reading import RemarkKind
from spark_backend.spark_operator import bucket_stream, on_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_bucket(program: str, key: tuple[int], chunks: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """For `applyInPandasWithState`: one call per bucket and micro-batch."""
    bucket, step = step_of_bucket(load_program(program), key, chunks, state)
    yield tagged_batch(bucket, step.rows).to_pandas()


def run_bucket_of_user(
    program: str, key: tuple[int], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """As `run_bucket`; the first discarded record and remark of a kind are logged."""
    bucket, step = step_of_bucket(load_program(program), key, chunks, state)
    warn_of_first_ones(program, step.rows)
    yield tagged_batch(bucket, step.rows).to_pandas()


_LOGGED: set[str | tuple[int, str, str, str]] = set()
"""What this process has logged: reasons for discards, and what remarks are about."""


def warn_of_first_ones(program: str, rows: Iterable[TaggedRow]) -> None:
    """Log one discarded record per reason and process, and one remark per program and field."""
    for tagged in rows:
        match tagged.tag:
            case Tag.DISCARDED:
                _warn_of_discards(tagged.table)
            case Tag.REPORT:
                _warn_of_remarks(hash(program), tagged.table)


def _warn_of_remarks(program: int, reports: pa.Table) -> None:
    for row in reports.to_pylist():
        name = program, row["cause"], row["source"], row["field"]
        if row["cause"] in set(RemarkKind) and name not in _LOGGED:
            _LOGGED.add(name)
            warn(row["example"])


def _warn_of_discards(discarded: pa.Table) -> None:
    for row in discarded.select(["reason", "query", "event", "source", "offset", "text"]).to_pylist():
        if row["reason"] not in _LOGGED:
            _LOGGED.add(row["reason"])
            what = row["text"] or f"{row['event']} of {row['source']}, offset {row['offset']}"
            query = f" by {row['query']}" if row["query"] else ""
            warn(f"discarded as {row['reason']}{query}: {what}; others like it are only counted")


def step_of_bucket(
    program: Program, key: tuple[int], chunks: Iterator[pd.DataFrame], state: Any
) -> tuple[int, StepResult]:
    """Run the step that Spark calls for, and keep its state; gives the bucket too."""
    bucket = program.bucket(int(key[0]))
    rows = [fetched(data) for chunk in chunks for data in chunk["data"]]
    saved = bytes(state.get[0]) if state.exists else first_state(program, bucket)
    step = run_step(program, bucket, saved, rows, state.getCurrentProcessingTimeMs())
    state.update((step.state,))
    if step.wake is not None:
        state.setTimeoutDuration(step.wake)
    return bucket, step


def run_bounded(program: str, flush: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over packed rows sorted by bucket: one step per bucket, without state.

    The first remark of a kind is logged.
    """
    for bucket, step in _bounded_steps(program, flush, batches):
        warn_of_first_ones(program, (row for row in step.rows if row.tag is Tag.REPORT))
        yield tagged_batch(bucket, step.rows)


def run_bounded_of_user(program: str, flush: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `run_bounded`; the first discarded record and remark of a kind are logged."""
    for bucket, step in _bounded_steps(program, flush, batches):
        warn_of_first_ones(program, step.rows)
        yield tagged_batch(bucket, step.rows)


def _bounded_steps(program: str, flush: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, StepResult]]:
    loaded = load_program(program)
    signal = Signal.FLUSH if flush else Signal.CATCH_UP
    for bucket, rows in groupby(_pairs(batches), key=itemgetter(0)):
        yield bucket, run_step(loaded, bucket, None, [data for _, data in rows], 0, signal=signal)


_FIRST = (
    "job_engine.sources.task_reading",
    "job_engine.sources.all_kinds",
    "job_engine.sinks.bucket_results",
    "pyspark.sql.streaming",
)
"""What the first micro-batch of a job needs."""


def import_packages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: load that."""
    for module in _FIRST:
        importlib.import_module(module)
    yield from batches


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def tagged_batch(bucket: int, rows: Sequence[TaggedRow]) -> pa.RecordBatch:
    """Tagged rows as an Arrow batch."""
    columns = [
        pa.array([bucket] * len(rows), pa.int32()),
        pa.array([str(row.tag) for row in rows], pa.string()),
        pa.array([row.query for row in rows], pa.string()),
        pa.array([row.table.num_rows for row in rows], pa.int64()),
        pa.array([row.data() for row in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TAGGED_SCHEMA)


# A streaming DataFrame whose tasks write to sinks; its rows are what the driver needs.

RESULTS_DDL = ", ".join(("data binary", *(f"{name} long" for name in COUNTS)))


def results_stream(packed: DataFrame, program: Program, sinks: Mapping[str, Sink], identity: str) -> DataFrame:
    """A streaming DataFrame that writes to sinks; its rows are for `publish_batch`.

    Spark's progress events have the sums of COUNTS, as `observedMetrics["ensue"]`.

    identity: names the checkpoint
    """
    from pyspark.sql import functions

    text = sinks_to_text(sinks)
    run = on_worker("spark_backend.worker_functions", "run_and_write", program.to_text(), text, identity)
    sums = [functions.coalesce(functions.sum(name), functions.lit(0)).alias(name) for name in COUNTS]
    return bucket_stream(packed, run, RESULTS_DDL).observe("ensue", *sums)


def run_and_write(
    program: str, sinks: str, identity: str, key: tuple[int], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """For `applyInPandasWithState`: one call per bucket and micro-batch; gives RESULTS_DDL."""
    import pandas as pd

    loaded = load_program(program)
    bucket, step = step_of_bucket(loaded, key, chunks, state)
    places = {word: Sink.from_plain(plain) for word, plain in json_of_text(sinks, dict[str, dict[str, Any]]).items()}
    results = write_results(
        loaded, bucket, step.rows, places, _attempt(identity, loaded.before), is_alone=not step.is_one_of_all
    )
    yield pd.DataFrame([{"data": results.to_bytes(), **counts(loaded.running(), step.rows)}])


def _attempt(identity: str, before: int) -> Attempt:
    """`before`: as in `Program`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        raise RuntimeError("Spark does not tell a task which micro-batch it belongs to")
    return Attempt(
        MicroBatch(identity, before + int(batch)),
        context.partitionId(),
        context.taskAttemptId(),
        context.attemptNumber() > 0,
    )
