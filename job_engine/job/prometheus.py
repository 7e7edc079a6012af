"""Metrics of a job for Prometheus, and the memory of its processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job_engine.clock import monotonic, wall_seconds
from job_engine.job.reports import CONTROL, Figures
from job_engine.local_path import LocalPath
from job_engine.sources.source import SourceBacklog
from job_engine.wire.reports import partition_text
from querylang.dataclass import dataclass
from querylang.errors import InputError
from runtime.instants import NEVER, NO_TIME
from runtime.results.ledger import DISCARDS, RECEIVED

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


# How much memory a job's processes have here: the driver, workers, and Java if it is Spark's.

PROC = LocalPath("/proc")


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of a process and of all below it.

    bytes: what several of them share is counted once
    """

    bytes: int
    processes: int


def memory_of(process: int, proc: Path = PROC) -> ProcessMemory | None:
    """The memory of a tree of processes; None = the system does not tell."""
    children: dict[int, list[int]] = {}
    for number, parent in _parents(proc):
        children.setdefault(parent, []).append(number)
    found, waiting = [], [process]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, [])
        size = _bytes(proc / str(number))
        if size is not None:
            found.append(size)
    return ProcessMemory(sum(found), len(found)) if found else None


def _parents(proc: Path) -> list[tuple[int, int]]:
    """All processes with the ones that started them."""
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text("utf-8", "replace")
            found.append((int(folder.name), int(text.rpartition(")")[2].split()[1])))
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    return found


def _bytes(folder: Path) -> int | None:
    """The share of a process in memory: a page that several have is divided among them."""
    try:
        lines = (folder / "smaps_rollup").read_text("utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return _resident(folder)


def _resident(folder: Path) -> int | None:
    """For processes of another user, whose shares are secret."""
    try:
        lines = (folder / "status").read_text("utf-8", "replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


# Metrics of a job in Prometheus' text format, by the package prometheus-client.

PARTITIONS = 50
"""So many partitions of a source have a metric each; of the others there is the source's."""

BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
"""Upper bounds of the histogram of micro-batches, in seconds."""

FRESH = 10.0
"""Seconds for which a backlog and the memory are not found anew."""

OTHER = "other"
"""The label of sources that the deployment does not name."""


def client() -> Any:
    """The package; raises InputError if it is not installed."""
    try:
        import prometheus_client
    except ImportError as error:
        raise InputError("`metrics` needs the package prometheus-client: pip install 'ensue[metrics]'") from error
    return prometheus_client


class Metrics:
    """The metrics of one run.

    name: of the job
    figures: as of its beginning
    backlog: finds what is not processed
    tries: finds how many tries of the open micro-batch have failed
    """

    def __init__(
        self,
        name: str,
        figures: Figures,
        backlog: Callable[[], Sequence[SourceBacklog]],
        tries: Callable[[], int] = lambda: 0,
    ) -> None:
        package = client()
        self.figures = figures
        self._name = name
        self._backlog = Kept(backlog)
        self._tries = Kept(tries)
        self._memory = Kept(lambda: memory_of(os.getpid()))
        self.registry: CollectorRegistry = package.CollectorRegistry()
        self.registry.register(_Collector(self))
        self.durations = package.Histogram(
            "ensue_micro_batch_duration_seconds",
            "Time from the call for a micro-batch's results until they were written.",
            registry=self.registry,
            buckets=BUCKETS,
        )

    def text(self) -> bytes:
        """All metrics now."""
        return bytes(client().generate_latest(self.registry))

    def families(self, now: float) -> Iterator[Any]:
        """Metrics of prometheus-client; `now`: seconds since 1970."""
        figures = self.figures
        yield _gauge("job_info", "The job.", ["name", "version"], {(self._name, metadata.version("ensue")): 1})
        yield from _records(figures)
        yield from _delays(figures, now)
        yield from _sizes(figures)
        yield from _backlogs(self._backlog())
        memory = self._memory()
        if memory is not None:
            yield _gauge("memory_bytes", "Memory of the job's processes on the driver's machine.", [], memory.bytes)
        yield _counter("micro_batches", "Micro-batches of this run.", [], figures.batches)
        help_ = "Tries of the micro-batch that is open in which a worker died."
        yield _gauge("micro_batch_failed_tries", help_, [], self._tries())
        yield _counter("kernel_seconds", "Time in steps of buckets, added up, of this run.", [], figures.kernel_seconds)
        if figures.moment is not None:
            help_ = "When the results of the last micro-batch were written, in Unix time."
            yield _gauge("last_commit_timestamp_seconds", help_, [], figures.moment)


class Kept:
    """A value that is found anew now and then only: scrapes may be frequent, looking is slow."""

    def __init__(self, find: Callable[[], Any], now: Callable[[], float] = monotonic) -> None:
        self._find, self._now = find, now
        self._value: Any = None
        self._until = -1.0
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        """The value, as it was at most FRESH seconds ago."""
        with self._lock:
            if self._now() >= self._until:
                self._value = self._find()
                self._until = self._now() + FRESH
            return self._value


class _Collector:
    """What the package asks at each scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Any]:
        """Nothing: the package would otherwise collect at once."""
        return []

    def collect(self) -> Iterator[Any]:
        """All metrics but the package's own."""
        return self._metrics.families(wall_seconds())


def _records(figures: Figures) -> Iterator[Any]:
    """Counts since the checkpoint's beginning, and those of matches and outputs since the run's."""
    events = dict.fromkeys(figures.sources, 0)
    by_word: dict[tuple[str, str], int] = {(title, RECEIVED): 0 for title in figures.queries}
    for (query, source, what), count in figures.ledger.items():
        if query not in figures.matches:
            continue
        by_word[query, what] = by_word.get((query, what), 0) + count
        if what == RECEIVED and query in figures.queries[:1]:  # every query receives every record
            name = source if source in events or source == CONTROL else OTHER
            events[name] = events.get(name, 0) + count
    discards = {key: count for key, count in by_word.items() if key[1] in DISCARDS}
    reports = {(item.cause, item.source): 0 for item in figures.progress.reports}
    for item in figures.progress.reports:
        reports[item.cause, item.source] += item.count
    yield _counter("events", "Records read.", ["source"], events)
    yield _counter("matches", "Matches of this run.", ["query"], figures.matches)
    yield _counter("outputs", "Outputs of this run.", [], figures.outputs)
    yield _counter("output_errors", "Errors among the outputs of this run.", [], figures.errors)
    yield _counter("discarded", "Records discarded.", ["query", "reason"], discards)
    yield _gauge("ledger_records", "Records by the ledger's word.", ["query", "what"], by_word)
    yield _counter("reports", "What was lost, moved or is suspicious.", ["cause", "source"], reports)


def _delays(figures: Figures, now: float) -> Iterator[Any]:
    """How far times are behind the present."""
    by_source: dict[str, float] = {}
    by_partition: dict[tuple[str, str], float] = {}
    counted: dict[str, int] = {}
    for item in figures.progress.clock.sources:
        if item.arrival == NO_TIME:
            continue
        delay = _behind(item.arrival, now)
        by_source[item.source] = max(delay, by_source.get(item.source, 0.0))
        counted[item.source] = counted.get(item.source, 0) + 1
        if counted[item.source] <= PARTITIONS:
            by_partition[item.source, "0" if item.partition is None else partition_text(item.partition)] = delay
    queries = {
        title: _behind(reached.definitive, now)
        for title, reached in figures.progress.queries.items()
        if reached.definitive is not None and reached.definitive < NEVER
    }
    help_ = "How far the last arrival of a source is behind the present; of its slowest partition."
    yield _gauge("watermark_delay_seconds", help_, ["source"], by_source)
    help_ = f"The same of each partition, at most {PARTITIONS} of a source."
    yield _gauge("partition_watermark_delay_seconds", help_, ["source", "partition"], by_partition)
    yield _gauge(
        "query_delay_seconds", "How far the definitive time of a query is behind the present.", ["query"], queries
    )
    held_back = {title: int(reached.is_behind) for title, reached in figures.progress.queries.items()}
    yield _gauge("query_held_back", "Whether a slower source holds a query's time back.", ["query"], held_back)


def _behind(micros: int, now: float) -> float:
    return max(0.0, now - micros / 1e6)


def _sizes(figures: Figures) -> Iterator[Any]:
    progress = figures.progress
    sizes = progress.buckets.values()
    yield _gauge("kept_events", "Events in windows or pending.", [], sum(size.kept for size in sizes))
    yield _gauge("held_records", "Records that wait for slower sources.", [], progress.held)
    yield _gauge("pending_waits", "Matches that wait.", [], progress.waiting)
    yield _gauge("state_bytes", "Size of the saved state.", [], sum(size.state_bytes for size in sizes))
    if progress.keys is not None:
        yield _gauge(
            "keys", "Keys that have state, summed over the queries; large numbers are estimated.", [], progress.keys
        )


def _backlogs(backlog: Sequence[SourceBacklog]) -> Iterator[Any]:
    files = {item.source: item.files for item in backlog if item.files is not None}
    sizes = {item.source: item.bytes for item in backlog if item.bytes is not None}
    messages = {item.source: item.messages for item in backlog if item.messages is not None}
    unknown = {item.source: int(bool(item.problem)) for item in backlog}
    yield _gauge("backlog_files", "Files that are not processed yet.", ["source"], files)
    yield _gauge("backlog_bytes", "Bytes of these files.", ["source"], sizes)
    yield _gauge("backlog_messages", "Messages of topics that are not processed yet.", ["source"], messages)
    yield _gauge("backlog_unknown", "Whether a source does not answer.", ["source"], unknown)


Values = float | Mapping[str, float] | Mapping[tuple[str, ...], float] | Mapping[tuple[str, str], float]


def _gauge(name: str, text: str, labels: Sequence[str], values: Values) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(f"ensue_{name}", text, labels=labels), values)


def _counter(name: str, text: str, labels: Sequence[str], values: Values) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(f"ensue_{name}", text, labels=labels), values)


def _filled(family: Any, values: Values) -> Any:
    entries: Any = values.items() if isinstance(values, Mapping) else [((), values)]
    for labels, value in entries:
        family.add_metric((labels,) if isinstance(labels, str) else labels, value)
    return family
