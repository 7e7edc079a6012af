"""The status of a deployment as of its last micro-batch, whether its job runs or not.

It says how far time has advanced, which source holds it back, and how many records, events and
matches there are. Read from files beside the checkpoint, without the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from job_engine.clock import monotonic, wall_ns
from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.errors import SourceProblem, in_plain_words
from job_engine.job.checkpoint.job_folder import JobFolder, Ledger
from job_engine.job.checkpoint.progress import RECENT, JobProgress, QueryTime, Recent, Timeline
from job_engine.job.journal import Journal
from job_engine.job.lookup_files import KeptTable, read_tables
from job_engine.job.prometheus import ProcessMemory, memory_of
from job_engine.job.written_journal import read_journal
from job_engine.operator.clocks import SourceWatermark, place_name
from job_engine.sources.kinds import running_of
from job_engine.sources.listing.batch_log import DamagedManifest
from job_engine.sources.listing.manifests import what_was_read
from job_engine.sources.source import SourceBacklog
from job_engine.threads import in_background
from job_engine.wire.reports import Report
from querylang.dataclass import asdict, dataclass, replace
from querylang.running import FILE, RunningQuery
from runtime.instants import EARLIEST, NEVER, NO_TIME
from runtime.results.ledger import DISCARDS
from runtime.timestamps import format_time

# The backlog of a job: each source is asked in a thread of its own, and not for long.
#
# It is found beside the job, from the list of what was read and from the sources as they are now.
# So it is the same whether the job runs or not.

PATIENCE = 1.0
"""Seconds that brokers and folders may take to answer."""


def backlog_of(deployment: Deployment, patience: float = PATIENCE) -> tuple[SourceBacklog, ...]:
    """The backlog of each source, the control stream last; takes at most `patience` seconds."""
    sources = deployment.all_sources
    try:
        read = what_was_read(deployment.checkpoint)
    except (DamagedManifest, OSError) as error:
        return tuple(SourceBacklog(source.name, problem=str(error)) for source in sources)
    asked = [
        partial(running_of(source).backlog, source.own, read.of(source.name, source.format), deployment.checkpoint)
        for source in sources
    ]
    return _answers([source.name for source in sources], asked, patience)


def _answers(
    names: Sequence[str], asked: Sequence[Callable[[], SourceBacklog]], patience: float
) -> tuple[SourceBacklog, ...]:
    """All answers; what takes too long is left behind in its thread."""
    found: dict[str, SourceBacklog] = {}

    def ask(name: str, question: Callable[[], SourceBacklog]) -> None:
        try:
            found[name] = question()
        except (SourceProblem, DamagedManifest, OSError) as error:
            found[name] = SourceBacklog(name, problem=str(error))

    questions = [partial(ask, *pair) for pair in zip(names, asked, strict=True)]
    threads = [in_background(question, "ensue-backlog") for question in questions]
    deadline = monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    late = f"did not answer within {patience:g} s"
    return tuple(found.get(name) or SourceBacklog(name, problem=late) for name in names)


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of a source partition.

    partition: its number; None = the whole source is one
    arrival: last arrival time, µs; None = no record yet
    behind: µs behind the furthest source partition; None = no record yet
    holds_back: whether the clock of some query waits for this source partition
    lag: µs behind the time of the status; None = no record yet
    silent: µs from its last record to the last micro-batch; None = no record yet
    """

    source: str
    partition: int | None
    arrival: int | None
    behind: int | None
    holds_back: bool
    lag: int | None = None
    silent: int | None = None


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
    lag: µs that its definitive time is behind the time of the status; None = unknown
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
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class RunningInstance:
    """An instance of a query on a checkpoint whose queries were changed.

    origin: where its text comes from: `file` or `live`
    since: the place of the query's last change, µs; None = the beginning
    values: of its parameters, as JSON
    values_from: where these come from
    handover: time from which on a new text gives the matches, µs; None = none is in progress
    """

    query: str
    instance: str
    origin: str
    since: int | None
    values: str
    values_from: str
    handover: int | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What a table beside the stream holds.

    version: its number, from 1
    since: it holds for records that arrive later, µs; None = for all
    taken: when it was read, by the wall clock, µs
    age: µs since then
    problem: why a newer version was not taken; "" = there is none
    delta: the version of the table of Delta that it is; None = it is a file
    """

    name: str
    version: int
    rows: int
    since: int | None
    taken: int
    age: int
    problem: str = ""
    delta: int | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """Records and matches per second, over the last `seconds`, at most a minute."""

    seconds: float
    records: float
    matches: float


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a deployment.

    at: the time of the status itself, µs
    is_active: whether its job runs
    batch: the last micro-batch that was written; None = none yet
    moment: its timestamp, µs; None = none yet
    clock: the least clock of all queries at that time, µs; None = of some it has not begun
    held: number of records that slower sources hold back
    kept: number of events in windows or pending
    ledger: counts since the checkpoint's beginning
    reports: of what was lost, moved or is suspicious since then, by cause and source
    message: what the driver says that the job is doing; "" = asked from another process
    damaged: what is wrong with files that could not be read; the rest is of the ones before them
    waiting: number of matches that wait
    next_due: when the next of them is due, µs; None = none waits
    keys: those that have state, summed over the queries; None = not known yet
    backlog: what sources have that has not been processed
    memory: of the job's processes on this machine; None = it does not run here
    running: what runs since queries were changed; none = they never were
    tables: those beside the stream
    """

    name: str
    at: int
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
    waiting: int = 0
    next_due: int | None = None
    keys: int | None = None
    backlog: tuple[SourceBacklog, ...] = ()
    memory: ProcessMemory | None = None
    running: tuple[RunningInstance, ...] = ()
    tables: tuple[TableStatus, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the queries that run, and of those that did."""
        return tuple(dict.fromkeys([*(item.query for item in self.queries), *(name for name, _, _ in self.ledger)]))

    def only(self, names: Collection[str]) -> Status:
        """The same without the other queries; what is about the whole job stays."""
        return replace(
            self,
            queries=tuple(item for item in self.queries if item.query in names),
            ledger={key: count for key, count in self.ledger.items() if key[0] in names},
            running=tuple(item for item in self.running if {item.query, f"{item.query}/{item.instance}"} & set(names)),
        )

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


def read_status(
    deployment: Deployment, message: str = "", *, is_active: bool | None = None, now: int | None = None
) -> Status:
    """The status of a deployment.

    message: what the driver says that its job is doing
    is_active: whether its job runs; None = ask the checkpoint's lock
    now: the wall clock, µs; None = read it
    """
    folder = JobFolder(deployment.checkpoint)
    at = wall_ns() // 1000 if now is None else now
    runs = folder.lock().is_held() if is_active is None else is_active
    process = folder.lock().process() if runs else None
    ledger, damaged = folder.ledger.readable()
    counts: dict[str, dict[str, int]] = {}
    for (title, _, what), count in ledger.items():
        own = counts.setdefault(title, {})
        own[what] = own.get(what, 0) + count
    found, damaged_progress = folder.progress.readable()
    progress = JobProgress.from_plain(None if found is None else found[1]["progress"])
    orders: Mapping[str, str | None] = {} if found is None else found[1]["queries"]
    return Status(
        name=deployment.name,
        at=at,
        is_active=runs,
        batch=None if found is None else found[0],
        moment=None if found is None else progress.timestamp * 1000,
        clock=_clock(progress),
        buckets=deployment.buckets,
        queries=tuple(
            _query(title, order, progress.queries.get(title, QueryTime()), counts.get(title, {}), at)
            for title, order in orders.items()
        ),
        sources=_sources(deployment, progress, at),
        held=progress.held,
        kept=sum(size.kept for size in progress.buckets.values()),
        state_bytes=sum(size.state_bytes for size in progress.buckets.values()),
        rates=rates(progress.recent, at // 1000 if runs else None),
        ledger=ledger,
        reports=progress.reports,
        message=message,
        damaged=(*damaged, *damaged_progress),
        waiting=progress.waiting,
        next_due=progress.next_due,
        keys=progress.keys,
        backlog=backlog_of(deployment),
        memory=None if process is None else memory_of(process),
        running=tuple(_running(read_journal(deployment), progress.furthest)),
        tables=tuple(_table(kept, at) for kept in read_tables(deployment.checkpoint)),
    )


def _table(kept: KeptTable, at: int) -> TableStatus:
    last = kept.last
    age = max(0, at - last.taken)
    return TableStatus(kept.name, last.number, last.rows, last.place, last.taken, age, kept.problem, last.delta)


def _running(journal: Journal | None, furthest: int | None) -> Iterator[RunningInstance]:
    for query in () if journal is None else journal.running.queries.values():
        since = journal.since.get(query.name, EARLIEST) if journal is not None else EARLIEST
        for name in query.instances:
            origin = query.value_origins.get(name, FILE)
            handover = _handover(query, furthest)
            yield RunningInstance(
                query.name,
                name,
                query.origin,
                None if since == EARLIEST else since,  # before all records
                json.dumps(query.shown(name)),
                origin,
                handover,
            )


def _handover(query: RunningQuery, furthest: int | None) -> int | None:
    """When the newest text begins, as long as an older one may still find a match."""
    open_ = [old for old in query.versions[:-1] if old.done is None or furthest is None or furthest <= old.done]
    return query.current.starts if open_ else None


def _clock(progress: JobProgress) -> int | None:
    clocks = [query.clock for query in progress.queries.values()]
    known = [clock for clock in clocks if clock is not None]
    return min(known) if known and len(known) == len(clocks) else None


def _sources(deployment: Deployment, progress: JobProgress, at: int) -> tuple[SourceStatus, ...]:
    furthest = max((item.arrival for item in progress.clock.sources), default=NO_TIME)
    holding = {name for query in progress.queries.values() if query.is_behind for name in query.waits_for}

    def status(item: SourceWatermark) -> SourceStatus:
        arrival = None if item.arrival == NO_TIME else item.arrival
        behind = None if arrival is None else furthest - arrival
        return SourceStatus(
            item.source,
            item.partition,
            arrival,
            behind,
            place_name(item.source, item.partition) in holding,
            lag=None if arrival is None else max(0, at - arrival),
            silent=None if arrival is None else max(0, progress.timestamp - item.updated) * 1000,
        )

    known = {item.source for item in progress.clock.sources}
    without_records = (
        SourceStatus(it.name, None, None, None, holds_back=False) for it in deployment.sources if it.name not in known
    )
    return (*map(status, progress.clock.sources), *without_records)


def _query(title: str, order: str | None, reached: QueryTime, counts: Mapping[str, int], at: int) -> QueryStatus:
    return QueryStatus(
        query=title,
        order=order,
        definitive=reached.definitive,
        delay=_delay(reached),
        received=counts.get("received", 0),
        pending=counts.get("pending", 0),
        discarded=sum(counts.get(word, 0) for word in DISCARDS),
        timelines=_timelines(reached.timelines),
        clock=reached.clock,
        waits_for=reached.waits_for,
        is_behind=reached.is_behind,
        lag=None if reached.definitive is None else max(0, at - reached.definitive),
    )


def _delay(reached: QueryTime) -> int | None:
    if reached.clock is None or reached.definitive is None or reached.definitive >= NEVER:
        return None
    return reached.clock - reached.definitive


def _timelines(lines: tuple[Timeline, ...]) -> tuple[TimelineStatus, ...]:
    bounds = [line.bound for line in lines if line.bound is not None]
    furthest, least = max(bounds, default=0), min(bounds, default=0)

    def status(line: Timeline) -> TimelineStatus:
        behind = None if line.bound is None else furthest - line.bound
        holds_back = len(lines) > 1 and (line.bound is None or line.bound == least < furthest)
        return TimelineStatus(line.name, line.bound, line.newest, line.arrival, behind, holds_back)

    return tuple(map(status, lines))


def rates(recent: Sequence[Recent], now: int | None) -> Rates | None:
    """Rates of the last minute; None = there are too few micro-batches.

    now: the wall clock, ms, of a job that runs: the minute ends there; None = it ends with the last
        micro-batch, whose own records do not count, since nobody knows how long it took
    """
    end = now if now is not None else recent[-1].timestamp if recent else 0
    counted = [item for item in recent if item.timestamp >= end - RECENT]
    if now is None:
        counted = counted[:-1]
    first = min((item.timestamp for item in recent), default=end)
    seconds = min(RECENT, end - first) / 1000
    if seconds <= 0:
        return None
    records, matches = (sum(getattr(item, name) for item in counted) for name in ("records", "matches"))
    return Rates(seconds, records / seconds, matches / seconds)


_TIMES = frozenset(
    {"at", "moment", "clock", "arrival", "definitive", "bound", "newest", "next_due", "since", "handover", "taken"}
)
_DURATIONS = frozenset({"behind", "delay", "lag", "silent", "age"})


def _readable(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _readable(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    if name in _TIMES and value is not None:
        return format_time(value)
    return value / 1_000_000 if name in _DURATIONS and value is not None else value
