"""Small micro-batches and the way from a file to its matches, beside two jobs that do nothing.

One has what any job in Python has: Spark reads Parquet, groups by as many buckets, calls `applyInPandasWithState`, whose function
returns one row per bucket, and writes Parquet. The other one reads with our source, which decodes, selects and packs records; the
rest is the same. All jobs run in one session, in turn. They are watched from outside: a match is there when its file is visible, and
for Spark's own sink when its log names the file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import median, quantiles
from threading import Event, Thread
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from job_engine.deployment_file import load_deployment
from job_engine.job.compilation import run_options
from job_engine.job.job import deploy
from job_engine.job.job import run as run_job
from job_engine.job.preflight import checked
from job_engine.sources.listing.lister import RunSettings
from spark_backend.session import get_session, own_session
from spark_backend.source_stream import packed_stream, spark_options

QUERY = """
event A { integer k; float v; }
event B { integer k; float v; }
query Rising {
    inputs {
        A() key k within 30 seconds;
        B() key k within 30 seconds;
    }
    find A as a -> B as b where b.v > a.v
}
"""
"""Nothing waits: a match is there as soon as its last event is read."""

KEYS = 1_000
SPACING = 100
"""Microseconds from one event to the next: 10,000 events a second."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    batches, rounds: of small micro-batches, `events_a_file` each
    warm_up: the first micro-batches of each run do not count
    seconds: how long events come, one file every `events_a_file` * SPACING
    """

    events_a_file: int
    batches: int
    rounds: int
    warm_up: int
    seconds: float
    buckets: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds; ratios are ours divided by those of the job that does nothing.

    `packed` is the job that does nothing behind our own source.
    """

    events_a_file: int
    buckets: int
    batch_ms: float
    nothing_batch_ms: float
    batch_ratio: float
    packed_batch_ms: float
    packed_batch_ratio: float
    p50_ms: float
    nothing_p50_ms: float
    p50_ratio: float
    p99_ms: float
    nothing_p99_ms: float
    p99_ratio: float
    all_batch_ms: dict[str, list[float]]
    all_latencies_ms: dict[str, list[float]]


def measure(folder: Path, size: Size) -> Delays:
    """The jobs in turn: `rounds` times over files that are there, then over files that come."""
    session = get_session()
    jobs = [_Ours(session, folder / "ours", size.buckets), _Nothing(session, folder / "nothing", size.buckets)]
    all_jobs = [*jobs, _NothingPacked(session, folder / "packed", size.buckets)]
    batches: dict[str, list[float]] = {job.name: [] for job in all_jobs}
    latencies: dict[str, list[float]] = {job.name: [] for job in jobs}
    for _ in range(size.rounds):
        for job in all_jobs:
            job.reset()
            for number in range(size.batches):
                write_file(job.inputs, number, size.events_a_file)
            batches[job.name] += job.batch_times()[size.warm_up :]
    for job in jobs:
        job.reset()
        latencies[job.name] = _latencies(job, size)
    own, nothing, packed = (median(batches[job.name]) for job in all_jobs)
    (p50, p99), (idle_p50, idle_p99) = (percentiles(latencies[job.name]) for job in jobs)
    return Delays(
        size.events_a_file,
        size.buckets,
        own,
        nothing,
        round(own / nothing, 2),
        packed,
        round(own / packed, 2),
        p50,
        idle_p50,
        round(p50 / idle_p50, 2),
        p99,
        idle_p99,
        round(p99 / idle_p99, 2),
        batches,
        latencies,
    )


def percentiles(values: list[float]) -> tuple[float, float]:
    """The median, and what one in a hundred exceeds."""
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def write_file(folder: Path, number: int, rows: int) -> None:
    """The events of file `number`, visible at once and completely."""
    first = np.arange(number * rows, (number + 1) * rows)
    kinds = first % 2
    times = pa.array(first * SPACING).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "at": times,
            "event": pa.array(["A", "B"]).take(pa.array(kinds)),
            "t": pa.array(kinds, pa.int8()),
            "ts": times,
            "k": (first // 2) % KEYS,
            "v": first.astype(np.float64),
        }
    )
    draft = folder / f".{number:06}.draft"
    pq.write_table(table, draft)
    draft.rename(folder / f"{number:06}.parquet")


class _Job:
    """A job whose runs have a folder each: Spark may still write state of a run that has ended."""

    def __init__(self, session: SparkSession, folder: Path, buckets: int) -> None:
        self._session = session
        self._folders = (folder / str(run) for run in count())
        self._folder = folder
        self._buckets = buckets
        self.inputs = folder / "inputs"

    def reset(self) -> None:
        self._folder = next(self._folders)
        self.inputs = self._folder / "inputs"
        self.inputs.mkdir(parents=True)
        (self._folder / "bench.query").write_text(QUERY, encoding="utf-8")

    def _deployment(self, **options: int) -> Path:
        source = {"format": "parquet", "path": "inputs", "options": options}
        deployment = {
            "name": "bench",
            "queries": ["bench.query"],
            "sources": {"table": source},
            "sinks": {"matches": {"format": "parquet", "path": "matches"}},
            "buckets": self._buckets,
            "checkpoint": "state",
            "idle": "none",
            "trigger": "1 millisecond",
        }
        file = self._folder / "bench.yaml"
        file.write_text(json.dumps(deployment), encoding="utf-8")
        return file


class _Ours(_Job):
    """`ensue run`, with the trigger as fast as possible."""

    name = "ours"

    def batch_times(self) -> list[float]:
        ends: list[float] = []
        run_job(self._deployment(maxFilesPerTrigger=1), once=True, progress=lambda _: ends.append(time.monotonic()))
        return [(end - start) * 1000 for start, end in pairwise(ends)]

    @contextmanager
    def running(self) -> Iterator[None]:
        handle = deploy(self._deployment())
        try:
            yield
        finally:
            handle.stop()

    def visible(self, seen: set[Path]) -> Iterator[int]:
        """The largest number of an event in each new file of results."""
        for file in (self._folder / "matches").rglob("*.parquet"):
            if file not in seen and not any(part.startswith((".", "_")) for part in file.parts):
                seen.add(file)
                times = pq.read_table(file, columns=["time"]).column(0).cast(pa.int64())
                yield (pc.max(times).as_py() or 0) // SPACING


class _Nothing(_Job):
    """The job that does nothing."""

    name = "nothing"

    def _frame(self, **options: int) -> DataFrame:
        schema = "k long, t byte, ts timestamp, at timestamp, v double"
        rows = self._session.readStream.schema(schema).options(**options).parquet(str(self.inputs))
        columns = ["k", "t", "unix_micros(ts) ts", "unix_micros(at) at", "v"]
        keyed = rows.selectExpr(f"cast(pmod(hash(k), {self._buckets}) as int) bucket", *columns)
        timeout = GroupStateTimeout.NoTimeout
        return keyed.groupBy("bucket").applyInPandasWithState(_last, "v double", "data binary", "append", timeout)

    def _writer(self, frame: DataFrame) -> Any:
        self._session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        writer = frame.writeStream.format("parquet").option("path", str(self._folder / "results"))
        return writer.option("checkpointLocation", str(self._folder / "checkpoint"))

    def batch_times(self) -> list[float]:
        kept = self._session.conf.get("spark.sql.streaming.numRecentProgressUpdates")
        self._session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        try:
            query = self._writer(self._frame(maxFilesPerTrigger=1)).trigger(availableNow=True).start()
            query.awaitTermination()
        finally:
            self._session.conf.set("spark.sql.streaming.numRecentProgressUpdates", kept or "20")
        found = [batch for batch in query.recentProgress if batch["numInputRows"]]
        return [float(batch["durationMs"]["triggerExecution"]) for batch in found[1:]]

    @contextmanager
    def running(self) -> Iterator[None]:
        query = self._writer(self._frame()).trigger(processingTime="0 seconds").start()
        try:
            yield
        finally:
            query.stop()

    def visible(self, seen: set[Path]) -> Iterator[int]:
        """The largest number of an event in each new file that the sink's log names."""
        for log in (self._folder / "results" / "_spark_metadata").glob("[0-9]*"):
            if log in seen or log.name.endswith(".compact"):
                continue
            seen.add(log)
            for line in log.read_text(encoding="utf-8").splitlines()[1:]:
                path = json.loads(line)["path"].removeprefix("file://")
                yield int(pc.max(pq.read_table(path).column("v")).as_py() or 0)


class _NothingPacked(_Nothing):
    """The job that does nothing, behind our own source."""

    name = "packed"

    def _frame(self, **options: int) -> DataFrame:
        deployment = load_deployment(self._deployment(**options))
        program = checked(deployment).program
        run = RunSettings(str(self._folder / "checkpoint"))
        session = own_session("bench")
        packed = packed_stream(session, spark_options(session, run_options(deployment, program, run)))
        timeout = GroupStateTimeout.NoTimeout
        return packed.groupBy("bucket").applyInPandasWithState(
            row_with_length, "v double", "data binary", "append", timeout
        )


def row_with_length(_: tuple[int], chunks: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """What any operator in Python does: read its rows and write a small state; one row per bucket."""
    total = sum(float(chunk["data"].map(len).sum()) for chunk in chunks)
    state.update((bytes(state.get[0]) if state.exists else b"x" * 1000,))
    yield pd.DataFrame({"v": [total]})


def _last(_: tuple[int], chunks: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    last = max((float(chunk["v"].max()) for chunk in chunks), default=0.0)
    state.update((bytes(state.get[0]) if state.exists else b"x" * 1000,))
    yield pd.DataFrame({"v": [last]})


def _latencies(job: _Ours | _Nothing, size: Size) -> list[float]:
    """Milliseconds from when each file is visible to when a result of its events, or of later ones, is."""
    period = size.events_a_file * SPACING / 1e6
    files = max(size.warm_up + 1, round(size.seconds / period))
    warm = max(1, files // 4)
    written: list[float] = []
    found: dict[int, float] = {}
    stop = Event()

    def watch() -> None:
        seen: set[Path] = set()
        while not stop.wait(0.005):
            with suppress(OSError, pa.ArrowException):
                for last in job.visible(seen):
                    now = time.monotonic()
                    for number in range(last // size.events_a_file, -1, -1):
                        if number in found:
                            break
                        found[number] = now

    watcher = Thread(target=watch, daemon=True)
    write_file(job.inputs, 0, size.events_a_file)
    written.append(time.monotonic())
    with job.running():
        watcher.start()
        wait_until(lambda: 0 in found)
        begin = time.monotonic()
        for number in range(1, files):
            time.sleep(max(0.0, begin + number * period - time.monotonic()))
            write_file(job.inputs, number, size.events_a_file)
            written.append(time.monotonic())
        wait_until(lambda: files - 1 in found)
        stop.set()
        watcher.join()
    return [(found[number] - written[number]) * 1000 for number in range(warm, files)]


def wait_until(is_done: Callable[[], bool], longest: float = 120.0) -> None:
    """Wait, at most so many seconds; raises TimeoutError."""
    until = time.monotonic() + longest
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError("the job gives no results")
        time.sleep(0.02)


def idle_share(folder: Path, seconds: float) -> float:
    """The share of a core that a job uses which has nothing to do."""
    job = _Ours(get_session(), folder / "idle", 4)
    job.reset()
    write_file(job.inputs, 0, 1000)
    with job.running():
        time.sleep(10)
        before, start = _processor_of_all(), time.monotonic()
        time.sleep(seconds)
        return (_processor_of_all() - before) / (time.monotonic() - start)


def _processor_of_all() -> float:
    """Seconds that this process and all that descend from it have used."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                parents[int(place.name)] = int(fields[1])
                used[int(place.name)] = int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used.get(process, 0) for process in ours) / os.sysconf("SC_CLK_TCK")
