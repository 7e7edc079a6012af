"""A job on both engines, `local` beside `spark`, in turn: its start, rates from files and topics, delays, idling, memory.

Rates are those of one process that runs both. All else is of the command, as users start it, watched from outside: a match is there
when its file is visible, or when a consumer that reads what is committed has its message. A delay begins when a message is produced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from benchmarks import events
from benchmarks.latency import KEYS, QUERY, percentiles, wait_until, write_file
from benchmarks.memory import PeakMemory, tree
from job_engine.job.job import run
from tools.local_broker import LocalBroker, local_broker

ENGINES = ("spark", "local")
FILES_A_BATCH = 2
FIRST = 1_600_000_000_000
"""Timestamp of the first message that is there before a run, ms; ten messages have the same."""
TICK = 0.01
"""Seconds from one burst of messages to the next."""
SETTLING = 5.0
"""Seconds after which a job that has nothing to do counts as idle."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    events_a_batch: of files, each of these is one figure
    messages_a_batch: 0 = nothing of topics, which need a broker
    rates: messages a second, each of these is two figures
    seconds: how long messages come, and how long a job is idle
    """

    events_a_batch: tuple[int, ...]
    keys: int
    batches: int
    rounds: int
    messages_a_batch: int
    rates: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both engines: medians over all rounds. `ratio`: local divided by Spark."""

    name: str
    unit: str
    spark: float
    local: float
    ratio: float


class _Figures:
    """What has been measured, by name and unit, then by engine."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, list[float]]] = {}

    def add(self, name: str, unit: str, engine: str, values: Sequence[float]) -> None:
        self._found.setdefault((name, unit), {}).setdefault(engine, []).extend(values)

    def compared(self) -> list[Compared]:
        return [
            Compared(
                name, unit, *(by_engine := [median(own[engine]) for engine in ENGINES]), by_engine[1] / by_engine[0]
            )
            for (name, unit), own in self._found.items()
        ]


def measure(folder: Path, size: Size) -> list[Compared]:
    """Both engines in turn, `rounds` times."""
    figures, places = _Figures(), (folder / str(number) for number in count())
    for rows in size.events_a_batch:
        data = folder / f"events-{rows}"
        events.write_files(data, size.batches * FILES_A_BATCH, rows // FILES_A_BATCH, size.keys)
        for engine in ENGINES * size.rounds:
            times = _batch_times(_from_files(next(places), engine, data))
            figures.add(
                f"files, {rows:,} a micro-batch", "million events/s", engine, [rows / item / 1e6 for item in times]
            )
    for engine in ENGINES * size.rounds:
        seconds, memory = _start(next(places), engine)
        figures.add("first matches after the command", "s", engine, [seconds])
        figures.add("memory of all processes of that job", "MB", engine, [memory])
    if size.messages_a_batch:
        with local_broker(folder / "broker") as broker:
            _measure_topics(figures, broker, places, size)
    return figures.compared()


def _measure_topics(figures: _Figures, broker: LocalBroker, places: Iterator[Path], size: Size) -> None:
    topic, most = _topic(broker, "there"), size.messages_a_batch
    with _producer(broker) as producer:
        for number in range(most * size.batches):
            _produce(producer, topic, number, FIRST + number // 10)
    for engine in ENGINES * size.rounds:
        file = _deployed(next(places), engine, _messages(broker, topic, maxOffsetsPerTrigger=most), _MATCHES)
        figures.add("JSON messages to files", "messages/s", engine, [most / item for item in _batch_times(file)])
    for number, (rate, engine) in enumerate((rate, engine) for rate in size.rates for engine in ENGINES * size.rounds):
        delays, idle = _delays(next(places), engine, broker, rate, size.seconds, str(number))
        p50, p99 = percentiles(delays)
        figures.add(f"topic to topic, {rate:,} messages/s, p50", "ms", engine, [p50])
        figures.add(f"topic to topic, {rate:,} messages/s, p99", "ms", engine, [p99])
        figures.add("idle behind a topic", "% of a core", engine, [idle])


_MATCHES = {"format": "parquet", "path": "matches"}


def _from_files(folder: Path, engine: str, data: Path) -> Path:
    source = {"format": "parquet", "path": str(data), "options": {"maxFilesPerTrigger": FILES_A_BATCH}}
    return _deployed(folder, engine, source, _MATCHES, events.QUERY)


def _messages(broker: LocalBroker, topic: str, **options: int) -> dict[str, Any]:
    place = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic}
    return {"format": "kafka", "type_field": "event", "options": place | options}


def _deployed(
    folder: Path, engine: str, source: Mapping[str, Any], sink: Mapping[str, Any], query: str = QUERY
) -> Path:
    """The deployment file of a new job; Spark begins its micro-batches as soon as it can, too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.query").write_text(query, encoding="utf-8")
    deployment = {
        "name": "bench",
        "engine": engine,
        "queries": ["bench.query"],
        "sources": {"table": source},
        "sinks": {"matches": sink},
        "checkpoint": "state",
        "trigger": "0 seconds",
    }
    file = folder / "bench.yaml"
    file.write_text(json.dumps(deployment), encoding="utf-8")
    return file


def _batch_times(file: Path) -> list[float]:
    """Seconds from the end of each micro-batch to the next one's; the first of them does not count."""
    ends: list[float] = []
    run(file, once=True, progress=lambda batch: ends.append(time.monotonic()) if batch.records else None)
    return [end - start for start, end in pairwise(ends)][1:]


@contextmanager
def _running(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command, as users start it."""
    command = [sys.executable, "-m", "ensue", "run", str(file)]
    with (file.parent / "log.txt").open("wb") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield job
        finally:
            job.terminate()
            job.wait()


def _start(folder: Path, engine: str) -> tuple[float, float]:
    """Seconds from the command to the first visible matches of a thousand events, and MB of all processes."""
    (folder / "inputs").mkdir(parents=True)
    write_file(folder / "inputs", 0, 1_000)
    file = _deployed(folder, engine, {"format": "parquet", "path": "inputs"}, _MATCHES)
    began = time.monotonic()
    with _running(file) as job:
        _wait_for(job, lambda: any((folder / "matches").rglob("[!._]*.parquet")))
        seconds = time.monotonic() - began
        with PeakMemory(job.pid) as memory:
            time.sleep(1)
    return seconds, memory.peak_bytes / 1e6


def _wait_for(job: subprocess.Popen[bytes], is_there: Callable[[], bool]) -> None:
    def found() -> bool:
        if job.poll() is not None:
            raise RuntimeError(f"the job has ended with exit code {job.returncode}")
        return is_there()

    wait_until(found)


def _topic(broker: LocalBroker, name: str) -> str:
    broker.make_topic(name, 1)
    return name


@contextmanager
def _producer(broker: LocalBroker, **settings: int) -> Iterator[Any]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers, "queue.buffering.max.messages": 10_000_000, **settings})
    yield producer
    if producer.flush(120):
        raise TimeoutError("the broker does not take the messages")


def _produce(producer: Any, topic: str, number: int, timestamp: int = 0) -> None:
    """Message `number`, each second of which completes a match; timestamp 0 = now."""
    value = json.dumps({"event": "AB"[number % 2], "k": number // 2 % KEYS, "v": float(number)})
    producer.produce(topic, value, timestamp=timestamp)
    producer.poll(0)


def _delays(
    folder: Path, engine: str, broker: LocalBroker, rate: int, seconds: float, name: str
) -> tuple[list[float], float]:
    """Milliseconds from each message to its match in the other topic, and the share of a core, in %, of the idle job.

    The first quarter does not count.
    """
    source, target = _topic(broker, f"in-{name}"), _topic(broker, f"out-{name}")
    sink = {"format": "kafka", "topic": target, "options": {"kafka.bootstrap.servers": broker.servers}}
    file = _deployed(folder, engine, _messages(broker, source), sink)
    produced: dict[int, float] = {}
    burst = max(2, round(rate * TICK))
    with _running(file) as job, _consumed(broker, target) as seen, _producer(broker, **{"linger.ms": 0}) as producer:
        for number in range(2):  # the job has begun once their match is there
            _produce(producer, source, number)
        _wait_for(job, lambda: 1 in seen)
        begin, last = time.monotonic(), 2 + round(rate * seconds)
        for first in range(2, last, burst):
            time.sleep(max(0.0, begin + (first - 2) / rate - time.monotonic()))
            for number in range(first, first + burst):
                produced[number] = time.monotonic()
                _produce(producer, source, number)
        final = max(number for number in produced if number % 2)
        _wait_for(job, lambda: final in seen)
        time.sleep(SETTLING)
        before = _processor_seconds(job.pid)
        time.sleep(seconds)
        idle = (_processor_seconds(job.pid) - before) / seconds * 100
    counted = [number for number in produced if number % 2 and number > len(produced) // 4]
    return [(seen[number] - produced[number]) * 1000 for number in counted], idle


@contextmanager
def _consumed(broker: LocalBroker, topic: str) -> Iterator[dict[int, float]]:
    """When the match of each message could be read first, by the number of the message."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": broker.servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5})
    consumer.subscribe([topic])
    seen: dict[int, float] = {}
    stop = Event()

    def read() -> None:
        while not stop.is_set():
            message = consumer.poll(0.02)  # `consume` would wait for more messages, so long as it may
            if message is not None and message.error() is None:
                seen.setdefault(int(json.loads(message.value())["b"]["fields"]["v"]), time.monotonic())

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        stop.set()
        reader.join()
        consumer.close()


def _processor_seconds(root: int) -> float:
    """Of a process and all below it that are there."""
    ticks = 0
    for process in tree(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
