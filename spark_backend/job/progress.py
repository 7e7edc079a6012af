"""What a job leaves of itself after each micro-batch, beside its checkpoint: how far time and its sources have come, and sizes.

Takes what the buckets told in a micro-batch and what the one before left; gives plain data. A micro-batch that is repeated
after a crash leaves the same again: nothing here comes from the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from spark_backend.operator.job_clock import Clocks
from spark_backend.wire.tagged_rows import Tag

PROGRESS_VERSION = 1
RECENT = 10
"""So many micro-batches rates are taken over."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline that keys of a query share: its bound, newest time, last arrival (µs; None: none yet)."""

    name: str
    bound: int | None
    newest: int | None
    heard: int | None


@dataclass(frozen=True, slots=True)
class QueryTime:
    """How far a query's time has come: definitive time of the keys that are furthest behind, and the timelines they share."""

    definitive: int | None = None
    timelines: tuple[Timeline, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketSize:
    """`kept`: events in windows or pending; `held`: records that wait for slower sources."""

    state_bytes: int
    kept: int
    held: int


@dataclass(frozen=True, slots=True)
class Recent:
    """One of the last micro-batches: when it began (ms), records taken, matches found."""

    timestamp: int
    records: int
    matches: int


@dataclass(frozen=True, slots=True)
class JobProgress:
    """All of it. `timestamp`: the micro-batch's (ms); `idle`: as `Program` has it; `queries` by title, `buckets` by number."""

    timestamp: int = 0
    idle: int | None = None
    clocks: Clocks = field(default_factory=Clocks)
    queries: Mapping[str, QueryTime] = field(default_factory=dict)
    buckets: Mapping[int, BucketSize] = field(default_factory=dict)
    recent: tuple[Recent, ...] = ()

    @property
    def held(self) -> int:
        """Records that were read, and wait for slower sources."""
        return sum(size.held for size in self.buckets.values())

    def after(
        self, told: Iterable[tuple[Tag, pa.Table]], *, idle: int | None, records: int, matches: int
    ) -> JobProgress:
        """What the next micro-batch makes of it."""
        made = replace(self, idle=idle)
        for tag, table in told:
            rows = table.to_pylist()
            match tag:
                case Tag.METRIC:
                    made = _with_sizes(made, rows)
                case Tag.SOURCE:
                    made = replace(made, clocks=Clocks.from_plain([list(row.values()) for row in rows]))
                case Tag.TIMELINE:
                    made = replace(made, queries={**made.queries, **_query_times(rows)})
                case _:
                    pass
        if made.timestamp == self.timestamp:  # no bucket was called: Spark runs such micro-batches all the time
            return made
        recent = (*self.recent, Recent(made.timestamp, records, matches))
        return replace(made, recent=recent[-RECENT:])

    def to_plain(self) -> dict[str, Any]:
        """What JSON can hold."""
        plain: dict[str, Any] = {"version": PROGRESS_VERSION, "timestamp": self.timestamp, "idle": self.idle}
        plain |= {
            "clocks": self.clocks.to_plain(),
            "queries": {title: asdict(it) for title, it in self.queries.items()},
        }
        plain |= {"buckets": [[number, *asdict(size).values()] for number, size in sorted(self.buckets.items())]}
        return plain | {"recent": [list(asdict(item).values()) for item in self.recent]}

    @staticmethod
    def from_plain(data: Mapping[str, Any] | None) -> JobProgress:
        """The inverse; nothing gives the beginning, and so does what another release left."""
        if data is None or data["version"] != PROGRESS_VERSION:
            return JobProgress()
        return JobProgress(
            timestamp=data["timestamp"],
            idle=data["idle"],
            clocks=Clocks.from_plain(data["clocks"]),
            queries={
                title: QueryTime(it["definitive"], tuple(Timeline(**line) for line in it["timelines"]))
                for title, it in data["queries"].items()
            },
            buckets={number: BucketSize(*sizes) for number, *sizes in data["buckets"]},
            recent=tuple(Recent(*item) for item in data["recent"]),
        )


def _with_sizes(progress: JobProgress, rows: Sequence[Mapping[str, Any]]) -> JobProgress:
    sizes = {row["bucket"]: BucketSize(row["state_bytes"], row["kept"], row["held"]) for row in rows}
    timestamp = max([progress.timestamp, *(row["timestamp"] for row in rows)])
    return replace(progress, timestamp=timestamp, buckets={**progress.buckets, **sizes})


def _query_times(rows: Sequence[Mapping[str, Any]]) -> dict[str, QueryTime]:
    found: dict[str, QueryTime] = {}
    for row in rows:
        if row["timeline"] is None:
            found[row["query"]] = QueryTime(row["bound"])
    for row in rows:
        if row["timeline"] is not None:
            line = Timeline(row["timeline"], row["bound"], row["newest"], row["heard"])
            query = found[row["query"]]
            found[row["query"]] = replace(query, timelines=(*query.timelines, line))
    return found
