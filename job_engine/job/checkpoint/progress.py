"""A job's progress after each micro-batch: its clock, definitive times of queries, sizes.

Nothing here comes from the wall clock, so a repeated micro-batch has the same progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

import pyarrow as pa

from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.sources.listing.batch_log import JobNotes
from job_engine.wire.reports import Report, added_up, reports_to_plain
from job_engine.wire.tagged_rows import Tag
from querylang.dataclass import asdict, dataclass, field, fields, replace
from runtime.instants import NO_TIME
from runtime.json_reader import shaped
from runtime.json_shapes import ROW, Count

PROGRESS_VERSION = 2
RECENT = 60_000
"""ms: the last minute, which rates are computed over."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline that keys of a query share; times in µs, None = none yet.

    bound: its watermark
    newest: its newest source time
    arrival: its last arrival time
    """

    name: str
    bound: int | None
    newest: int | None
    arrival: int | None


@dataclass(frozen=True, slots=True)
class QueryTime:
    """The time that a query has reached.

    definitive: the least definitive time of all keys, µs; None = none yet
    clock: its clock, µs; None = it has not begun
    waits_for: the source partitions that its clock waits for
    is_behind: whether others have been read further than its clock
    timelines: those that its keys share
    """

    definitive: int | None = None
    clock: int | None = None
    waits_for: tuple[str, ...] = ()
    is_behind: bool = False
    timelines: tuple[Timeline, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketSize:
    """The size of a bucket.

    kept: events in windows or pending
    held: records that slower sources hold back
    waiting: matches that wait
    next_due: when the next of them is due, µs; None = none waits
    keys: those that have state, summed over the queries; None = written by an older release
    epoch: the least number of an epoch that some of its engines is in
    newest: the furthest source time of the records of its last step, µs; None = none has one
    """

    state_bytes: int
    kept: int
    held: int
    waiting: int = 0
    next_due: int | None = None
    keys: int | None = None
    epoch: int = 0
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class Recent:
    """Micro-batches of one second: timestamp of the first in ms, numbers of records and matches."""

    timestamp: int
    records: int
    matches: int


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job.

    timestamp: of the last micro-batch that called a bucket, ms
    clock: watermarks of the source partitions
    queries: by title
    buckets: by number
    recent: those of the last minute, oldest first
    reports: sums since the checkpoint's beginning, by cause and source
    newest: the furthest source time of all records, µs; None = none has one
    """

    timestamp: int = 0
    clock: JobClock = field(default_factory=JobClock)
    queries: Mapping[str, QueryTime] = field(default_factory=dict)
    buckets: Mapping[int, BucketSize] = field(default_factory=dict)
    recent: tuple[Recent, ...] = ()
    reports: tuple[Report, ...] = ()
    newest: int | None = None

    @property
    def held(self) -> int:
        """Number of records that slower sources hold back."""
        return sum(size.held for size in self.buckets.values())

    @property
    def waiting(self) -> int:
        """Number of matches that wait."""
        return sum(size.waiting for size in self.buckets.values())

    @property
    def keys(self) -> int | None:
        """The number of keys that have state; None = not known yet."""
        found = [size.keys for size in self.buckets.values() if size.keys is not None]
        return sum(found) if len(found) == len(self.buckets) > 0 else None

    @property
    def epoch(self) -> int:
        """The number of the earliest epoch that is not over."""
        return min((size.epoch for size in self.buckets.values()), default=0)

    @property
    def furthest(self) -> int | None:
        """The furthest arrival that was read, or that time has advanced to, µs; None = none yet."""
        clocks = [query.clock for query in self.queries.values() if query.clock is not None]
        arrivals = [item.arrival for item in self.clock.sources if item.arrival != NO_TIME]
        return max([*clocks, *arrivals], default=None)

    @property
    def next_due(self) -> int | None:
        """When the next of them is due, µs; None = none waits."""
        return min((size.next_due for size in self.buckets.values() if size.next_due is not None), default=None)

    @property
    def notes(self) -> JobNotes:
        """What the lister has to know of it."""
        brought = frozenset(item.source for item in self.clock.sources if item.arrival != NO_TIME)
        return JobNotes(brought, len(self.clock.sources) > 1 or self.held > 0)

    def of_buckets(self, count: int) -> JobProgress:
        """The same without sizes of buckets that there are not any more."""
        return replace(self, buckets={number: size for number, size in self.buckets.items() if number < count})

    def after(
        self,
        tables: Iterable[tuple[Tag, pa.Table]],
        *,
        records: int,
        matches: int,
        reports: Sequence[Report] = (),
    ) -> JobProgress:
        """The progress after one more micro-batch.

        tables: sizes, clocks and timelines of its buckets
        reports: of this micro-batch
        """
        next_ = replace(self, reports=added_up((*self.reports, *reports)))
        for tag, table in tables:
            rows = table.to_pylist()
            match tag:
                case Tag.METRIC:
                    next_ = _with_sizes(next_, rows)
                case Tag.SOURCE:
                    next_ = replace(next_, clock=JobClock.from_plain([list(row.values()) for row in rows]))
                case Tag.TIMELINE:
                    next_ = replace(next_, queries={**next_.queries, **_query_times(rows)})
                case _:
                    pass
        if next_.timestamp == self.timestamp:
            return next_  # no bucket was called: with timers there are often such micro-batches
        return replace(next_, recent=_recent(self.recent, Recent(next_.timestamp, records, matches)))

    def to_plain(self) -> dict[str, Any]:
        """The progress as JSON can hold it; the keys are those of the files and never change."""
        return {
            "version": PROGRESS_VERSION,
            "timestamp": self.timestamp,
            "clocks": self.clock.to_plain(),
            "notes": {"brought": sorted(self.notes.brought), "needs_catch_up": self.notes.needs_catch_up},
            "queries": {title: _query_to_plain(query) for title, query in self.queries.items()},
            "buckets": [[number, *asdict(size).values()] for number, size in sorted(self.buckets.items())],
            "recent": [list(asdict(item).values()) for item in self.recent],
            "reports": reports_to_plain(self.reports),
            "newest": self.newest,
        }

    @staticmethod
    def from_plain(data: Mapping[str, Any] | None) -> JobProgress:
        """The inverse of `to_plain`; None or another version = a new job. Raises DamagedJson."""
        if data is None or data.get("version") != PROGRESS_VERSION:
            return JobProgress()
        found = shaped(data, _Plain)
        return JobProgress(
            timestamp=found["timestamp"],
            clock=JobClock(found["clocks"]),
            queries={title: _query_from_plain(query) for title, query in found["queries"].items()},
            buckets=dict(map(_bucket, found["buckets"])),
            recent=found["recent"],
            reports=found["reports"],
            newest=found.get("newest"),
        )


def _recent(before: tuple[Recent, ...], next_: Recent) -> tuple[Recent, ...]:
    """Those of the last minute; micro-batches that start in one second are added up."""
    if before and before[-1].timestamp // 1000 == next_.timestamp // 1000:
        last = before[-1]
        next_ = Recent(last.timestamp, last.records + next_.records, last.matches + next_.matches)
        before = before[:-1]
    return (*(item for item in before if item.timestamp >= next_.timestamp - RECENT), next_)


def _query_to_plain(query: QueryTime) -> dict[str, Any]:
    timelines = [
        {"name": line.name, "bound": line.bound, "newest": line.newest, "heard": line.arrival}
        for line in query.timelines
    ]
    return {
        "definitive": query.definitive,
        "clock": query.clock,
        "waits_for": query.waits_for,
        "is_behind": query.is_behind,
        "timelines": timelines,
    }


class _PlainTimeline(TypedDict):
    name: str
    bound: int | None
    newest: int | None
    heard: int | None


class _PlainQuery(TypedDict):
    definitive: int | None
    clock: int | None
    waits_for: tuple[str, ...]
    is_behind: bool
    timelines: list[_PlainTimeline]


class _Plain(TypedDict):
    """The progress as `to_plain` gives it."""

    timestamp: int
    clocks: tuple[Annotated[SourceWatermark, ROW], ...]
    queries: dict[str, _PlainQuery]
    buckets: list[list[int | None]]
    recent: tuple[Annotated[Recent, ROW], ...]
    reports: tuple[Annotated[Report, ROW], ...]
    newest: NotRequired[int | None]


class _Bucket(TypedDict):
    number: tuple[Count]
    size: Annotated[BucketSize, ROW]


def _bucket(row: list[int | None]) -> tuple[int, BucketSize]:
    """The number of a bucket and its size, which `to_plain` writes as one list."""
    found = shaped({"number": row[:1], "size": row[1:]}, _Bucket)
    return found["number"][0], found["size"]


def _query_from_plain(data: _PlainQuery) -> QueryTime:
    lines = (Timeline(line["name"], line["bound"], line["newest"], line["heard"]) for line in data["timelines"])
    return QueryTime(data["definitive"], data["clock"], data["waits_for"], data["is_behind"], tuple(lines))


def _with_sizes(progress: JobProgress, rows: Sequence[Mapping[str, Any]]) -> JobProgress:
    names = [field.name for field in fields(BucketSize)]
    sizes = {row["bucket"]: BucketSize(*(row[name] for name in names)) for row in rows}
    timestamp = max([progress.timestamp, *(row["timestamp"] for row in rows)])
    times = [time for time in (progress.newest, *(size.newest for size in sizes.values())) if time is not None]
    newest = max(times, default=None)
    return replace(progress, timestamp=timestamp, buckets={**progress.buckets, **sizes}, newest=newest)


def _query_times(rows: Sequence[Mapping[str, Any]]) -> dict[str, QueryTime]:
    found: dict[str, QueryTime] = {}
    for row in rows:
        if row["timeline"] is None:
            waits_for = tuple(row["waits_for"])
            found[row["query"]] = QueryTime(row["bound"], row["arrival"], waits_for, row["is_behind"])
    for row in rows:
        if row["timeline"] is not None:
            line = Timeline(row["timeline"], row["bound"], row["newest"], row["arrival"])
            query = found[row["query"]]
            found[row["query"]] = replace(query, timelines=(*query.timelines, line))
    return found
