"""From messages in JSON to matches in a Delta table, with the broker on the same machine, beside a job that does nothing.

The job that does nothing has our source, decoding, packing, and a shuffle into as many buckets; its Python function returns one
row per bucket, and tasks write these into a Delta table, which the driver commits. Both jobs run in one session, in turn, over the
same topics. Decoding is measured by itself, too: chunks of messages from memory to columns, and to packed rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from statistics import median
from threading import Event, Thread
from typing import Any
from unittest import mock
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupStateTimeout

import querylang
from benchmarks.latency import KEYS, QUERY, percentiles, row_with_length, wait_until
from job_engine.deployment_file import load_deployment
from job_engine.job.compilation import run_options
from job_engine.job.job import deploy, run
from job_engine.job.preflight import checked
from job_engine.kafka_broker import TopicChoice
from job_engine.sources.listing.lister import RunSettings
from job_engine.sources.reading import Reading
from job_engine.sources.topics.consuming import Chunk
from job_engine.sources.topics.pieces import OffsetRange
from job_engine.sources.topics.reading import RangeReader
from job_engine.sources.topics.settings import KafkaSource
from job_engine.wire.program import Program
from runtime.reading.formats.messages import ARRIVAL_COLUMN, Messages
from spark_backend.batch_drafts import write_delta
from spark_backend.session import own_session
from spark_backend.source_stream import packed_stream, spark_options
from tools.local_broker import LocalBroker, local_broker

PARTITIONS = 2
FIRST = 1_600_000_000_000
"""Timestamp of the first message, ms; ten messages have the same."""
BURST = 100
"""Messages that are produced together: every hundredth of a second."""
WARM_UP = 2
"""Micro-batches of each run that do not count."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    seconds: how long messages come, 10,000 a second
    """

    messages_a_batch: int
    batches: int
    rounds: int
    seconds: float
    buckets: int


@dataclass(frozen=True, slots=True)
class FromTopics:
    """Times are milliseconds; rates are messages a second.

    ratio: rate of our job over that of the job that does nothing
    columns, packed, by_row: messages a second of processor time to columns, to packed rows, and by `json.loads`
    """

    messages_a_batch: int
    buckets: int
    rate: float
    nothing_rate: float
    ratio: float
    columns: float
    packed: float
    by_row: float
    p50_ms: float
    nothing_p50_ms: float
    p50_ratio: float
    p99_ms: float
    nothing_p99_ms: float
    p99_ratio: float
    all_batch_ms: dict[str, list[float]]


def measure(folder: Path, size: Size) -> FromTopics:
    """Decoding; then the jobs in turn over a topic that is there, then over messages that come."""
    columns, packed, by_row = _decoding()
    with local_broker(folder / "broker") as broker:
        jobs: list[_Job] = [
            _Ours(folder / "ours", broker, size.buckets),
            _Nothing(folder / "nothing", broker, size.buckets),
        ]
        times: dict[str, list[float]] = {job.name: [] for job in jobs}
        topic = _topic(broker)
        with _producer(broker) as producer:
            for number in range(size.messages_a_batch * size.batches):
                _produce(producer, topic, number, FIRST + number // 10)
        for _ in range(size.rounds):
            for job in jobs:
                times[job.name] += job.batch_times(topic, size.messages_a_batch)[WARM_UP:]
        delays = [percentiles(_delays(job, size.seconds)) for job in jobs]
    own, nothing = (size.messages_a_batch / median(times[job.name]) * 1000 for job in jobs)
    (p50, p99), (idle_p50, idle_p99) = delays
    return FromTopics(
        size.messages_a_batch,
        size.buckets,
        own,
        nothing,
        round(own / nothing, 2),
        columns,
        packed,
        by_row,
        p50,
        idle_p50,
        round(p50 / idle_p50, 2),
        p99,
        idle_p99,
        round(p99 / idle_p99, 2),
        times,
    )


def _topic(broker: LocalBroker) -> str:
    name = f"events-{uuid4().hex[:8]}"
    broker.make_topic(name, PARTITIONS)
    return name


@contextmanager
def _producer(broker: LocalBroker) -> Iterator[Any]:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": broker.servers, "linger.ms": 2, "queue.buffering.max.messages": 10_000_000}
    )
    yield producer
    if producer.flush(120):
        raise TimeoutError("the broker does not take the messages")


def _message(number: int) -> bytes:
    return json.dumps({"event": "AB"[number % 2], "k": number // 2 % KEYS, "v": float(number)}).encode()


def _produce(producer: Any, topic: str, number: int, timestamp: int) -> None:
    """Message `number`; timestamp 0 = now."""
    producer.produce(topic, _message(number), partition=number // 2 % PARTITIONS, timestamp=timestamp)
    producer.poll(0)


class _Job:
    """A job in a folder of its own; `commits` is the log of its Delta table."""

    name: str
    commits: Path

    def __init__(self, folder: Path, broker: LocalBroker, buckets: int) -> None:
        self._folder = folder
        self._broker = broker
        self._buckets = buckets

    def batch_times(self, topic: str, most: int) -> list[float]:
        """Milliseconds from the end of each micro-batch to the next one's, over all messages of a topic."""
        raise NotImplementedError

    @contextmanager
    def running(self, topic: str) -> Iterator[None]:
        """While it runs, as fast as it can."""
        raise NotImplementedError(topic)
        yield

    def seen(self, commit: Path) -> Iterator[int]:
        """The numbers of the messages of type B whose result a commit has made visible."""
        raise NotImplementedError

    def _deployment(self, topic: str, **options: int) -> Path:
        rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        (self._folder / "bench.query").write_text(QUERY, encoding="utf-8")
        place = {"kafka.bootstrap.servers": self._broker.servers, "subscribe": topic}
        deployment = {
            "name": "bench",
            "queries": ["bench.query"],
            "sources": {"topic": {"format": "kafka", "type_field": "event", "options": place | options}},
            "sinks": {"matches": {"format": "delta", "path": "matches"}},
            "buckets": self._buckets,
            "checkpoint": "state",
            "trigger": "1 millisecond",
        }
        file = self._folder / "bench.yaml"
        file.write_text(json.dumps(deployment), encoding="utf-8")
        return file


class _Ours(_Job):
    name = "ours"

    def batch_times(self, topic: str, most: int) -> list[float]:
        ends: list[float] = []
        file = self._deployment(topic, maxOffsetsPerTrigger=most)
        run(file, once=True, progress=lambda batch: ends.append(time.monotonic()) if batch.records else None)
        return [(end - start) * 1000 for start, end in pairwise(ends)]

    @contextmanager
    def running(self, topic: str) -> Iterator[None]:
        file = self._deployment(topic)
        self.commits = self._folder / "matches" / "Rising" / "_delta_log"
        handle = deploy(file)
        try:
            yield
        finally:
            handle.stop()

    def seen(self, commit: Path) -> Iterator[int]:
        for line in commit.read_text(encoding="utf-8").splitlines():
            if added := json.loads(line).get("add"):
                members = (
                    pq.read_table(commit.parent.parent / added["path"], columns=["b"]).column("b").combine_chunks()
                )
                yield from members.field("fields").field("v").cast(pa.int64()).to_pylist()


class _Nothing(_Job):
    """The job that does nothing behind our own source."""

    name = "nothing"

    def __init__(self, folder: Path, broker: LocalBroker, buckets: int) -> None:
        _Job.__init__(self, folder, broker, buckets)
        self._ends: list[float] = []
        self._read: dict[int, dict[int, int]] = {}

    def _query(self, topic: str, trigger: Mapping[str, Any], **options: int) -> Any:
        deployment = load_deployment(self._deployment(topic, **options))
        self.commits = self._folder / "table" / "_delta_log"
        self._ends, self._read = [], {}
        state, session = self._folder / "state", own_session("bench")
        options = run_options(deployment, checked(deployment).program, RunSettings(str(state)))
        packed = packed_stream(session, spark_options(session, options))
        timeout = GroupStateTimeout.NoTimeout
        grouped = packed.groupBy("bucket")
        rows = grouped.applyInPandasWithState(row_with_length, "v double", "data binary", "append", timeout)

        def write(frame: DataFrame, batch: int) -> None:
            planned = json.loads((state / "offsets" / str(batch)).read_text().splitlines()[-1])["manifest"]
            manifest = state / "ensue" / "inputs" / "manifests" / f"{planned:010d}.json"
            position = json.loads(manifest.read_text())["sources"]["topic"]["piece"]["position"][topic]["next"]
            self._read[len(self._read)] = {int(number): until for number, until in position.items()}
            write_delta(frame, self._folder / "table", (), batch)
            self._ends.append(time.monotonic())

        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        return rows.writeStream.foreachBatch(write).option("checkpointLocation", str(state)).trigger(**trigger).start()

    def batch_times(self, topic: str, most: int) -> list[float]:
        self._query(topic, {"availableNow": True}, maxOffsetsPerTrigger=most).awaitTermination()
        return [(end - start) * 1000 for start, end in pairwise(self._ends)]

    @contextmanager
    def running(self, topic: str) -> Iterator[None]:
        query = self._query(topic, {"processingTime": "0 seconds"})
        try:
            yield
        finally:
            query.stop()

    def seen(self, commit: Path) -> Iterator[int]:
        """All messages that the micro-batch of this commit has read; partitions have messages by pairs."""
        version = int(commit.stem)
        before = self._read[version - 1] if version else {}
        for partition, until in self._read[version].items():
            for place in range(before.get(partition, 0) // 2, until // 2):
                yield 2 * (place * PARTITIONS + partition) + 1


@dataclass
class _Seen:
    """When the result of each message was visible, by its number."""

    moments: dict[int, float] = field(default_factory=dict)
    commits: set[Path] = field(default_factory=set)

    def look(self, job: _Job) -> None:
        with suppress(OSError, pa.ArrowException, AttributeError):
            for commit in sorted(job.commits.glob("*.json")):
                if commit not in self.commits:
                    now = time.monotonic()
                    for number in job.seen(commit):
                        self.moments.setdefault(number, now)
                    self.commits.add(commit)


def _delays(job: _Job, seconds: float) -> list[float]:
    """Milliseconds from when a message is produced to when its match is visible; the first quarter does not count."""
    topic, stop, seen = _topic(job._broker), Event(), _Seen()  # noqa: SLF001  of this module
    bursts = max(8, round(seconds * 10_000 / BURST))
    produced: list[float] = []

    def watch() -> None:
        while not stop.wait(0.005):
            seen.look(job)

    def burst(number: int) -> None:
        produced.append(time.monotonic())
        for message in range(number * BURST, (number + 1) * BURST):
            _produce(producer, topic, message, 0)

    watcher = Thread(target=watch, daemon=True)
    with _producer(job._broker) as producer, job.running(topic):  # noqa: SLF001  of this module
        burst(0)
        watcher.start()
        wait_until(lambda: bool(seen.moments))
        begin = time.monotonic()
        for number in range(1, bursts):
            time.sleep(max(0.0, begin + number * BURST / 10_000 - time.monotonic()))
            burst(number)
        # The last messages wait for a later one of the other partition.
        wait_until(lambda: (bursts - 1) * BURST + 1 in seen.moments or (bursts - 2) * BURST + 1 in seen.moments)
        stop.set()
        watcher.join()
    counted = range(bursts // 4 * BURST + 1, bursts * BURST, 2)
    return [(seen.moments[number] - produced[number // BURST]) * 1000 for number in counted if number in seen.moments]


def _decoding(messages: int = 200_000, rounds: int = 5) -> tuple[float, float, float]:
    """Messages a second of processor time: to columns, to packed rows, and with `json.loads` row by row."""
    plan = querylang.compile_text(QUERY).plan
    values: list[bytes | None] = [_message(number) for number in range(messages)]
    offsets = np.arange(messages)
    stamps = (FIRST + offsets // 10) * 1000
    names = ("event", "ts", "k", "v")
    batch = 10_000
    chunks = [
        Chunk(offsets[at : at + batch], stamps[at : at + batch], values[at : at + batch])
        for at in range(0, messages, batch)
    ]
    reading = Reading(name="topic", type_field="event")
    reader = RangeReader(Program.of(plan, buckets=4), KafkaSource("topic", TopicChoice(("t",)), {}), reading, False)

    def to_columns() -> None:
        for chunk in chunks:
            given = Messages(0, chunk.offsets, chunk.values, chunk.timestamps, names)
            list(replace(reading, arrival=ARRIVAL_COLUMN).arrivals(given, plan))

    def to_packed_rows() -> None:
        with mock.patch.object(reading, "consumed", return_value=iter(chunks)):
            for _ in reader.packed(OffsetRange("topic", "t", 0, 0, 0, messages)):
                pass

    def by_row() -> None:
        for value in values:
            json.loads(value or b"")

    ways = (to_columns, to_packed_rows, by_row)
    used: Sequence[list[float]] = [[] for _ in ways]
    for _ in range(rounds + 1):
        for way, times in zip(ways, used, strict=True):
            start = time.process_time()
            way()
            times.append(time.process_time() - start)
    columns, packed, rows = (messages / median(times[1:]) for times in used)
    return columns, packed, rows
