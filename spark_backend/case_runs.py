"""Run many cases on Spark, in batch or as a stream with restarts, to compare with embedded runs.

All cases run in one Spark job. With restarts, every micro-batch is a Spark query of its own, in a
new session, on the same checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from job_engine.operator.cases import DEFAULT_BUCKETS, Case, Cases
from job_engine.wire.packed_rows import PACKED_DDL
from job_engine.wire.tagged_rows import Tag, read_table
from runtime.results.schemas import Results
from runtime.temporary import temporary_folder
from spark_backend.plain_errors import plain_error
from spark_backend.session import own_session
from spark_backend.spark_operator import tagged_bounded, tagged_stream


def run_streams(cases: Sequence[Case], *, buckets: int = DEFAULT_BUCKETS, restart: bool = True) -> list[Results]:
    """All cases as one stream: micro-batch i has piece i of each case.

    restart: whether every micro-batch runs in a new session
    """
    return _by_jobs(cases, lambda some: _streamed(some, buckets, restart=restart))


def _by_jobs(cases: Sequence[Case], run: Callable[[Sequence[Case]], list[Results]]) -> list[Results]:
    """All cases in one job of Spark, but those whose queries change: each of them has its own."""
    same = [number for number, case in enumerate(cases) if case.script is None]
    found = dict(zip(same, run([cases[number] for number in same]) if same else [], strict=True))
    for number, case in enumerate(cases):
        if case.script is not None:
            (found[number],) = run([case])
    return [found[number] for number in range(len(cases))]


def _streamed(cases: Sequence[Case], buckets: int, *, restart: bool) -> list[Results]:
    job = Cases(cases, buckets)
    # Spark tidies up its state in the background, and may write a file while the folder is removed.
    with temporary_folder() as folder:
        (folder / "packed").mkdir()
        steps = max(len(case.splits) + 1 for case in cases)
        for step in range(steps):
            _write(job, step, folder / "packed" / f"{step:06d}.parquet")
            if restart or step == steps - 1:
                _run_available(own_session(), job, folder)
    return job.results()


def run_bounded(cases: Sequence[Case], *, buckets: int = DEFAULT_BUCKETS) -> list[Results]:
    """All cases as one bounded DataFrame; `splits` are ignored."""
    return _by_jobs(cases, lambda some: _bounded(some, buckets))


def _bounded(cases: Sequence[Case], buckets: int) -> list[Results]:
    whole = [replace(case, splits=()) for case in cases]
    job = Cases(whole, buckets)
    session = own_session()
    with temporary_folder() as folder:
        file = folder / "packed.parquet"
        _write(job, 0, file)
        packed = session.read.schema(PACKED_DDL).parquet(str(file))
        _collected(job)(tagged_bounded(packed, job.program, flush=False), 0)
    return job.results()


def _run_available(session: SparkSession, job: Cases, folder: Path) -> None:
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    reader = session.readStream.schema(PACKED_DDL).option("maxFilesPerTrigger", 1).option("maxFileAge", "100000d")
    tagged = tagged_stream(reader.parquet(str(folder / "packed")), job.program)
    writer = tagged.writeStream.outputMode("append").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).foreachBatch(_collected(job)).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise plain_error(error) from error
    finally:
        query.stop()


def _write(job: Cases, step: int, file: Path) -> None:
    """Write a micro-batch, packed; Spark reads files in order of their times."""
    pq.write_table(job.packed(step), file)
    os.utime(file, (1e9 + step, 1e9 + step))


def _collected(job: Cases) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: notes the results of a micro-batch."""

    def collect(tagged: DataFrame, step: int) -> None:
        for row in tagged.collect():
            job.note(row["bucket"], step, Tag(row["kind"]), row["query"], read_table(bytes(row["data"])))

    return collect
