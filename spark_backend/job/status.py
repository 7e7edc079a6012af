"""What a deployment does and has done: from the files that its job leaves beside the checkpoint, whether it runs or not.

Takes a deployment; gives a frozen `Status` with a plain form. How far time has come, who holds it back, the accounts,
sizes and rates: as of the last micro-batch that was written out. Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.columns.timestamps import format_time
from runtime.instants import NEVER
from runtime.results.ledger import DISCARDS
from spark_backend.job.atomic_files import Accounts, AtWork, BatchFiles, Ledger
from spark_backend.job.progress import JobProgress, QueryTime, Timeline
from spark_backend.job.settings import Clock, Deployment, load_deployment
from spark_backend.operator.job_clock import SourceClock

OWN = "ensue"
"""The folder inside a checkpoint in which Ensue keeps things."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source partition. Times µs; `behind`: the furthest one. `holds_back`: the job's clock stands where this one has come to.

    `arrival`, `behind` None: a source that has brought nothing yet.
    """

    source: str
    partition: int | None
    arrival: int | None
    behind: int | None
    holds_back: bool


@dataclass(frozen=True, slots=True)
class TimelineStatus:
    """A timeline that keys of a query share. `behind`: the one that has come furthest. `holds_back`: definitive time is its."""

    timeline: str
    bound: int | None
    newest: int | None
    arrival: int | None
    behind: int | None
    holds_back: bool


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """`order`: by what records are put in order, where that leaves one task. `definitive`: of the keys that are furthest
    behind; `delay`: how far that is behind the clock (µs), the largest over timelines. None: nothing has arrived."""

    query: str
    order: str | None
    definitive: int | None
    delay: int | None
    received: int
    pending: int
    discarded: int
    timelines: tuple[TimelineStatus, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """A second, over the last `batches` micro-batches."""

    batches: int
    records: float
    matches: float


@dataclass(frozen=True, slots=True)
class Status:
    """`batch`: the last one written out, at `moment`; `clock`: how far time has come then (µs; None: nowhere yet).

    `held`: records that wait for slower sources; `kept`: events in windows or pending; `message`: Spark's own words for
    what the job is doing, where it is asked in the same process.
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
    message: str = ""

    def to_plain(self) -> dict[str, Any]:
        """What JSON can hold: moments as ISO text, lengths as seconds."""
        plain = asdict(self)
        plain["ledger"] = [
            {"query": query, "source": source, "what": what, "count": count}
            for (query, source, what), count in sorted(self.ledger.items())
        ]
        return _readable(plain)


def status_of(path: Path | str) -> Status:
    """The status of a deployment file's job; raises InputError for a file that cannot be one."""
    return read_status(load_deployment(path))


def read_status(deployment: Deployment, message: str = "", *, is_active: bool | None = None) -> Status:
    """`is_active` None: whoever is at work on the checkpoint tells."""
    folder = deployment.checkpoint / OWN
    ledger = accounts(folder).total()
    found = progress_files(folder).latest()
    progress = JobProgress.from_plain(None if found is None else found[1]["progress"])
    orders: Mapping[str, str | None] = {} if found is None else found[1]["queries"]
    clock = _clock(deployment, progress)
    return Status(
        name=deployment.name,
        is_active=AtWork(folder).is_held() if is_active is None else is_active,
        batch=None if found is None else found[0],
        moment=None if found is None else progress.timestamp * 1000,
        clock=clock,
        buckets=deployment.buckets,
        queries=tuple(
            _query(title, order, progress.queries.get(title, QueryTime()), clock, ledger)
            for title, order in orders.items()
        ),
        sources=_sources(deployment, progress),
        held=progress.held,
        kept=sum(size.kept for size in progress.buckets.values()),
        state_bytes=sum(size.state_bytes for size in progress.buckets.values()),
        rates=_rates(progress),
        ledger=ledger,
        message=message,
    )


def accounts(folder: Path) -> Accounts:
    """The accounts in a checkpoint's own folder."""
    return Accounts(BatchFiles(folder / "ledger"))


def progress_files(folder: Path) -> BatchFiles:
    """`progress` (`JobProgress.to_plain`) and `queries`: by title, by what each is put in order."""
    return BatchFiles(folder / "progress")


def _clock(deployment: Deployment, progress: JobProgress) -> int | None:
    if deployment.clock is Clock.PROCESSING:
        return progress.timestamp * 1000 or None
    return progress.clocks.now(progress.timestamp, progress.idle)


def _sources(deployment: Deployment, progress: JobProgress) -> tuple[SourceStatus, ...]:
    reached = [item.at(progress.timestamp, progress.idle) for item in progress.clocks.sources]
    furthest, least = max(reached, default=0), min(reached, default=0)

    def status(item: SourceClock, moment: int) -> SourceStatus:
        holds_back = moment == least < furthest
        return SourceStatus(item.source, item.partition, item.arrival, furthest - moment, holds_back)

    heard = {item.source for item in progress.clocks.sources}
    silent = (SourceStatus(it.name, None, None, None, False) for it in deployment.sources if it.name not in heard)
    return (*map(status, progress.clocks.sources, reached), *silent)


def _query(title: str, order: str | None, time: QueryTime, clock: int | None, ledger: Ledger) -> QueryStatus:
    counts: dict[str, int] = {}
    for (query, _, what), count in ledger.items():
        if query == title:
            counts[what] = counts.get(what, 0) + count
    return QueryStatus(
        query=title,
        order=order,
        definitive=time.definitive,
        delay=None if clock is None or time.definitive is None or time.definitive >= NEVER else clock - time.definitive,
        received=counts.get("received", 0),
        pending=counts.get("pending", 0),
        discarded=sum(counts.get(word, 0) for word in DISCARDS),
        timelines=_timelines(time.timelines),
    )


def _timelines(lines: tuple[Timeline, ...]) -> tuple[TimelineStatus, ...]:
    bounds = [line.bound for line in lines if line.bound is not None]
    furthest, least = max(bounds, default=0), min(bounds, default=0)

    def status(line: Timeline) -> TimelineStatus:
        behind = None if line.bound is None else furthest - line.bound
        holds_back = len(lines) > 1 and (line.bound is None or line.bound == least < furthest)
        return TimelineStatus(line.name, line.bound, line.newest, line.heard, behind, holds_back)

    return tuple(map(status, lines))


def _rates(progress: JobProgress) -> Rates | None:
    """What came between the beginnings of the first and the last of the recent micro-batches."""
    recent = progress.recent
    if len(recent) < 2 or recent[-1].timestamp <= recent[0].timestamp:
        return None
    seconds = (recent[-1].timestamp - recent[0].timestamp) / 1000
    records, matches = (sum(getattr(item, name) for item in recent[:-1]) for name in ("records", "matches"))
    return Rates(len(recent) - 1, records / seconds, matches / seconds)


_MOMENTS = frozenset({"moment", "clock", "arrival", "definitive", "bound", "newest"})
_LENGTHS = frozenset({"behind", "delay"})


def _readable(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _readable(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    if name in _MOMENTS and value is not None:
        return format_time(value)
    return value / 1_000_000 if name in _LENGTHS and value is not None else value
