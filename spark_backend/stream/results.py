"""A streaming DataFrame whose tasks write to sinks; its rows are what the driver needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from job_engine.sinks.bucket_results import COUNTS, Attempt, counts, sinks_to_text, write_results
from job_engine.sinks.kinds import MicroBatch, Sink
from job_engine.wire.program import Program, load_program
from runtime.json_reader import json_of_text
from spark_backend.stream.spark_operator import bucket_stream
from spark_backend.stream.worker_calls import on_worker
from spark_backend.stream.worker_functions import step_of_bucket

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

RESULTS_DDL = ", ".join(("data binary", *(f"{name} long" for name in COUNTS)))


def results_stream(packed: DataFrame, program: Program, sinks: Mapping[str, Sink], identity: str) -> DataFrame:
    """A streaming DataFrame that writes to sinks; its rows are for `publish_batch`.

    Spark's progress events have the sums of COUNTS, as `observedMetrics["ensue"]`.

    identity: names the checkpoint
    """
    from pyspark.sql import functions

    text = sinks_to_text(sinks)
    run = on_worker("spark_backend.stream.results", "run_and_write", program.to_text(), text, identity)
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
