"""The status of a deployment as of its last micro-batch, whether its job runs or not.

It says how far time has advanced, which source holds it back, and how many records, events and
matches there are. Read from files beside the checkpoint, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.columns.timestamps import format_time
from runtime.instants import NEVER, NO_TIME
from runtime.results.ledger import DISCARDS
from spark_backend.errors import in_plain_words
from spark_backend.job.job_folder import JobFolder, Ledger
from spark_backend.job.progress import JobProgress, QueryTime, Timeline
from spark_backend.job.settings import Deployment, load_deployment
from spark_backend.operator.job_clock import SourceWatermark, place_name
from spark_backend.wire.reports import Report


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of a source partition.

    partition: its number; None = the whole source is one
    arrival: last arrival time, µs; None = no record yet
    behind: µs behind the furthest source partition; None = no record yet
    holds_back: whether the clock of some query waits for this source partition
    """

    source: str
    partition: int | None
    arrival: int | None
    behind: int | None
    holds_back: bool


@dataclass(frozen=True, slots=True)
class TimelineStatus:
    """The status of a timeline that keys of a query share; times in µs, None = none yet.

    bound: its watermark
    newest: its newest source time
    arrival: its last arrival time
    behind: µs behind the furthest timeline
    holds_back: whether definitive time waits for this timeline
    """

    timeline: str
    bound: int | None
    newest: int | None
    arrival: int | None
    behind: int | None
    holds_back: bool


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """The status of a query.

    order: what forces it into one task; None = it runs as a task per bucket
    definitive: the least definitive time of all keys, µs; None = no record yet
    delay: µs that it is behind the query's clock; None = unknown
    clock: the query's clock, µs; None = it has not begun
    waits_for: the source partitions that have to bring something before time advances
    is_behind: whether others have been read further than its clock
    """

    query: str
    order: str | None
    definitive: int | None
    delay: int | None
    received: int
    pending: int
    discarded: int
    timelines: tuple[TimelineStatus, ...]
    clock: int | None
    waits_for: tuple[str, ...]
    is_behind: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """Records and matches per second, over the last `batches` micro-batches."""

    batches: int
    records: float
    matches: float


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a deployment.

    is_active: whether its job runs
    batch: the last micro-batch that was written; None = none yet
    moment: its timestamp, µs; None = none yet
    clock: the least clock of all queries at that time, µs; None = of some it has not begun
    held: number of records that slower sources hold back
    kept: number of events in windows or pending
    ledger: counts since the checkpoint's beginning
    reports: of what was lost, moved or is suspicious since then, by cause and source
    message: what Spark says that the job is doing; "" = asked from another process
    damaged: what is wrong with files that could not be read; the rest is of the ones before them
    """

    name: str
    is_active: bool
    batch: int | None
    moment: int | None
    clock: int | None
    buckets: int
    queries: tuple[QueryStatus, ...]
    sources: tuple[SourceStatus, ...]
    held: int
    kept: int
    state_bytes: int
    rates: Rates | None
    ledger: Ledger
    reports: tuple[Report, ...] = ()
    message: str = ""
    damaged: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The status as JSON can hold it: times as ISO text, durations in seconds."""
        plain = asdict(self)
        plain["ledger"] = [
            {"query": query, "source": source, "what": what, "count": count}
            for (query, source, what), count in sorted(self.ledger.items())
        ]
        return _readable(plain)


def status_of(path: Path | str) -> Status:
    """The status of a deployment file's job; raises InputError for mistakes in the file."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        return read_status(deployment)


def read_status(deployment: Deployment, message: str = "", *, is_active: bool | None = None) -> Status:
    """The status of a deployment.

    message: what Spark says that its job is doing
    is_active: whether its job runs; None = ask the checkpoint's lock
    """
    folder = JobFolder(deployment.checkpoint)
    ledger, damaged = folder.ledger.readable()
    found, damaged_progress = folder.progress.readable()
    progress = JobProgress.from_plain(None if found is None else found[1]["progress"])
    orders: Mapping[str, str | None] = {} if found is None else found[1]["queries"]
    return Status(
        name=deployment.name,
        is_active=folder.lock().is_held() if is_active is None else is_active,
        batch=None if found is None else found[0],
        moment=None if found is None else progress.timestamp * 1000,
        clock=_clock(progress),
        buckets=deployment.buckets,
        queries=tuple(
            _query(title, order, progress.queries.get(title, QueryTime()), ledger) for title, order in orders.items()
        ),
        sources=_sources(deployment, progress),
        held=progress.held,
        kept=sum(size.kept for size in progress.buckets.values()),
        state_bytes=sum(size.state_bytes for size in progress.buckets.values()),
        rates=_rates(progress),
        ledger=ledger,
        reports=progress.reports,
        message=message,
        damaged=(*damaged, *damaged_progress),
    )


def _clock(progress: JobProgress) -> int | None:
    clocks = [query.clock for query in progress.queries.values()]
    known = [clock for clock in clocks if clock is not None]
    return min(known) if known and len(known) == len(clocks) else None


def _sources(deployment: Deployment, progress: JobProgress) -> tuple[SourceStatus, ...]:
    furthest = max((item.arrival for item in progress.clock.sources), default=NO_TIME)
    holding = {name for query in progress.queries.values() if query.is_behind for name in query.waits_for}

    def status(item: SourceWatermark) -> SourceStatus:
        arrival = None if item.arrival == NO_TIME else item.arrival
        behind = None if arrival is None else furthest - arrival
        return SourceStatus(
            item.source, item.partition, arrival, behind, place_name(item.source, item.partition) in holding
        )

    known = {item.source for item in progress.clock.sources}
    without_records = (
        SourceStatus(it.name, None, None, None, holds_back=False) for it in deployment.sources if it.name not in known
    )
    return (*map(status, progress.clock.sources), *without_records)


def _query(title: str, order: str | None, time: QueryTime, ledger: Ledger) -> QueryStatus:
    counts: dict[str, int] = {}
    for (query, _, what), count in ledger.items():
        if query == title:
            counts[what] = counts.get(what, 0) + count
    return QueryStatus(
        query=title,
        order=order,
        definitive=time.definitive,
        delay=_delay(time),
        received=counts.get("received", 0),
        pending=counts.get("pending", 0),
        discarded=sum(counts.get(word, 0) for word in DISCARDS),
        timelines=_timelines(time.timelines),
        clock=time.clock,
        waits_for=time.waits_for,
        is_behind=time.is_behind,
    )


def _delay(time: QueryTime) -> int | None:
    if time.clock is None or time.definitive is None or time.definitive >= NEVER:
        return None
    return time.clock - time.definitive


def _timelines(lines: tuple[Timeline, ...]) -> tuple[TimelineStatus, ...]:
    bounds = [line.bound for line in lines if line.bound is not None]
    furthest, least = max(bounds, default=0), min(bounds, default=0)

    def status(line: Timeline) -> TimelineStatus:
        behind = None if line.bound is None else furthest - line.bound
        holds_back = len(lines) > 1 and (line.bound is None or line.bound == least < furthest)
        return TimelineStatus(line.name, line.bound, line.newest, line.arrival, behind, holds_back)

    return tuple(map(status, lines))


def _rates(progress: JobProgress) -> Rates | None:
    """Rates between the starts of the first and the last of the recent micro-batches."""
    recent = progress.recent
    if len(recent) < 2 or recent[-1].timestamp <= recent[0].timestamp:
        return None
    seconds = (recent[-1].timestamp - recent[0].timestamp) / 1000
    records, matches = (sum(getattr(item, name) for item in recent[:-1]) for name in ("records", "matches"))
    return Rates(len(recent) - 1, records / seconds, matches / seconds)


_TIMES = frozenset({"moment", "clock", "arrival", "definitive", "bound", "newest"})
_DURATIONS = frozenset({"behind", "delay"})


def _readable(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _readable(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    if name in _TIMES and value is not None:
        return format_time(value)
    return value / 1_000_000 if name in _DURATIONS and value is not None else value
