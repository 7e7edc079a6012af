"""A job as users run it, matches to Parquet, against a job that does nothing, alternating in one run.

The job that does nothing sends rows through the JVM (Parquet, hash, shuffle, Arrow, pandas) to as many buckets, counts them and
writes a small state: what any operator in Python costs at least in that form; its results are discarded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from benchmarks import events
from benchmarks.memory import PeakMemory
from job_engine.job.job import run
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.lister import RunSettings
from job_engine.sources.listing.manifests import ToldSource, reading_options
from job_engine.sources.reading import Reading
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from spark_backend.session import get_session
from spark_backend.source_stream import packed_stream, spark_options
from spark_backend.spark_operator import tagged_stream

FILES_A_BATCH = 2
"""As many as there are cores: both jobs read in parallel."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    events_a_batch: int
    batches: int
    rounds: int
    buckets: int


@dataclass(frozen=True, slots=True)
class Streamed:
    """Medians over all batches but the first of each run, milliseconds; rates are million events a second."""

    name: str
    keys: int
    events_a_batch: int
    ours_ms: float
    nothing_ms: float
    ours: float
    nothing: float
    ratio: float
    state_bytes: int
    operator_seconds: float
    peak_memory_bytes: int
    ours_all_ms: tuple[float, ...]
    nothing_all_ms: tuple[float, ...]


def measure(folder: Path, keys: int, size: Size, name: str = "A -> B where", query: str = events.QUERY) -> Streamed:
    """Writes its files to `folder`, if they are not there, runs both jobs over them, `rounds` times in turn."""
    data = folder / f"events-{keys}-{size.events_a_batch}-{size.batches}"
    program = Program.of(events.plan(query), buckets=size.buckets)
    if not data.exists():
        events.write_files(data, size.batches * FILES_A_BATCH, size.events_a_batch // FILES_A_BATCH, keys)
    session = get_session()
    jobs: dict[str, Callable[[], list[float]]] = {
        "nothing": lambda: _run(_do_nothing(session, data, size.buckets), folder / "checkpoint"),
        "ours": lambda: _run_job(folder / "job", data, query, size.buckets),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    with PeakMemory() as memory:
        for _ in range(size.rounds):
            for which, job in jobs.items():
                times[which].extend(job()[1:])
    state_bytes, seconds = _metrics(session, data, program, folder / "checkpoint")
    ours, nothing = median(times["ours"]), median(times["nothing"])
    return Streamed(
        name=name,
        keys=keys,
        events_a_batch=size.events_a_batch,
        ours_ms=ours,
        nothing_ms=nothing,
        ours=round(size.events_a_batch / ours / 1e3, 3),
        nothing=round(size.events_a_batch / nothing / 1e3, 3),
        ratio=round(nothing / ours, 2),
        state_bytes=state_bytes,
        operator_seconds=round(seconds, 3),
        peak_memory_bytes=memory.peak_bytes,
        ours_all_ms=tuple(times["ours"]),
        nothing_all_ms=tuple(times["nothing"]),
    )


def _ours(session: SparkSession, data: Path, program: Program) -> DataFrame:
    source = ListedSource("table", str(data), (".parquet",), max_files=FILES_A_BATCH)
    settings = RunSettings(str(data.parent / "checkpoint"))
    options = reading_options({"table": ToldSource("parquet", source)}, {"table": Reading(name="table")}, program)
    packed = packed_stream(session, spark_options(session, {**options, "run": settings.to_text()}))
    return tagged_stream(packed, program)


def _do_nothing(session: SparkSession, data: Path, buckets: int) -> DataFrame:
    schema = "k long, t byte, ts timestamp, at timestamp, v double"
    rows = session.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH).parquet(str(data))
    columns = ["k", "t", "unix_micros(ts) ts", "unix_micros(at) at", "v"]
    keyed = rows.selectExpr(f"cast(pmod(hash(k), {buckets}) as int) bucket", *columns)
    timeout = GroupStateTimeout.NoTimeout
    return keyed.groupBy("bucket").applyInPandasWithState(_count, "n long", "data binary", "append", timeout)


def _count(_: tuple[int], chunks: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    count = sum(len(chunk) for chunk in chunks)
    state.update((bytes(state.get[0]) if state.exists else b"x" * 1000,))
    yield pd.DataFrame({"n": [count]})


def _run(frame: DataFrame, checkpoint: Path) -> list[float]:
    """The milliseconds of each micro-batch that had records."""
    rmtree(checkpoint, ignore_errors=True)
    frame.sparkSession.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [float(batch["durationMs"]["triggerExecution"]) for batch in query.recentProgress if batch["numInputRows"]]


def _run_job(folder: Path, data: Path, query: str, buckets: int) -> list[float]:
    """The milliseconds from the end of each micro-batch to the next one's; of the first, from the start."""
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "bench.query").write_text(query, encoding="utf-8")
    deployment = {
        "name": "bench",
        "queries": ["bench.query"],
        "sources": {
            "table": {"format": "parquet", "path": str(data), "options": {"maxFilesPerTrigger": FILES_A_BATCH}}
        },
        "sinks": {"matches": {"format": "parquet", "path": "matches"}},
        "buckets": buckets,
        "checkpoint": "state",
    }
    (folder / "bench.yaml").write_text(json.dumps(deployment), encoding="utf-8")
    ends = [time.monotonic()]
    run(folder / "bench.yaml", once=True, progress=lambda _: ends.append(time.monotonic()))
    return [(end - start) * 1000 for start, end in pairwise(ends)]


def _metrics(session: SparkSession, data: Path, program: Program, checkpoint: Path) -> tuple[int, float]:
    """Bytes of state after the last batch, and the median over batches of the seconds spent inside the operator."""
    rmtree(checkpoint, ignore_errors=True)
    seen: list[tuple[int, float]] = []

    def keep(tagged: DataFrame, _: int) -> None:
        rows = tagged.where(f"kind = '{Tag.METRIC}'").select("data").collect()
        tables = [pa.ipc.open_stream(row.data).read_all() for row in rows]
        totals = pa.concat_tables(tables).to_pydict()
        seen.append((sum(totals["state_bytes"]), sum(totals["seconds"])))

    writer = _ours(session, data, program).writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return seen[-1][0], median(seconds for _, seconds in seen[1:] or seen)
