"""Match DataFrames or files of events, in batch or as a stream, without a job."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark_types

from job_engine.deployment_file import DEFAULT_BUCKETS
from job_engine.sources.reading import Reading
from job_engine.wire.clock_sources import Clock, Idle, clock_source
from job_engine.wire.packed_rows import CONTROL
from job_engine.wire.plan_text import load_plan, plan_text
from job_engine.wire.program import NullRule, Program, with_script
from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from querylang.plan.routing import CHANGES
from runtime.admission import furthest_time, selectors_of
from runtime.column_types import has_column
from runtime.columns.arrivals import PLACE, Arrivals, RecordKind, come_before, in_arrival_order, place_of
from runtime.instants import NO_TIME
from runtime.policies.plan_policies import Orderings, policy_of
from runtime.reading import TYPE
from runtime.replay import Script
from spark_backend.frames import (
    columns_of_all,
    file_list,
    files_of,
    frame_columns,
    packed_files,
    packed_frame,
    refuse_unreadable_types,
    rows_of_frame,
)
from spark_backend.session import with_package_path
from spark_backend.spark_operator import on_worker, tagged_bounded, tagged_user_stream

# Match streaming DataFrames of events, as a streaming DataFrame of tagged rows.

NO_ORDERINGS: Orderings = {}


def union_by_name(parts: Mapping[str, DataFrame]) -> DataFrame:
    """The union of all sources, in the order of their names.

    Spark tells the sources of a checkpoint apart by position only: after a swap it would read
    every file again.
    """
    return reduce(DataFrame.union, [parts[name] for name in sorted(parts)])


def stream(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    control: DataFrame | None = None,
    clock: str = "arrival",
    idle: Idle | None = None,
    orderings: Orderings = NO_ORDERINGS,
    buckets: int = DEFAULT_BUCKETS,
    reading: Reading | Mapping[str, Reading] | None = None,
    apply: bool = False,
) -> tuple[DataFrame, Program]:
    """A streaming DataFrame of tagged rows (TAGGED_DDL), and the program that makes them.

    Write it with the output mode `append`; `frames.decode.decode` makes typed DataFrames of it.

    frames: streaming DataFrames by source name, or one; columns as in an event table (`at`,
        `event`, `ts`, fields)
    control: rows with `at` and `event`, a control event as text; None = there is no control stream
    clock: `arrival` or `processing`
    idle: how long a source is silent before time advances without it; None = as its policy says
    orderings: the ordering policies that were chosen, by source
    buckets: number of parts that the keys are spread over
    reading: names of columns, for all sources or by source name; None = the usual ones
    apply: whether a checkpoint of an earlier version goes by the rule for nulls of today
    """
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    sources = [clock_source(name, None, idle, policy_of(orderings, name)) for name in sorted(named)]
    nulls = NullRule.APPLIED if apply else NullRule.STATE
    program = Program.of(plan, buckets=buckets, clock=Clock(clock), sources=sources, nulls=nulls)
    readings = {
        name: replace(
            _reading(reading, name), rank=rank, place=place_of(rank), is_mixed=True, elsewhere=columns_of_all(named)
        )
        for rank, name in enumerate(sorted(named))
    }
    refuse_unreadable_types(named, plan, readings)
    parts = {name: packed_frame(named[name], program, readings[name]) for name in readings}
    if control is not None:
        rank = len(named)
        last = Reading(source=CONTROL, rank=rank, place=place_of(rank), is_control=True)
        parts[CONTROL] = packed_frame(control, program, last)
    with_package_path(next(iter(named.values())).sparkSession)
    return tagged_user_stream(union_by_name(parts), program), program


def _reading(reading: Reading | Mapping[str, Reading] | None, name: str) -> Reading:
    if isinstance(reading, Reading):
        return reading
    return (reading or {}).get(name, Reading(source=name))


# Control events that change the queries, among bounded records: found before these are run.

_THIS = "spark_backend.frame_matching"
_PLAIN = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
"""Files whose bytes show whether a name is in them."""


@dataclass(frozen=True, slots=True)
class BoundedSource:
    """Records that can be read several times.

    rows: of a DataFrame, or the list of files that `file_list` gives
    reading: of a DataFrame
    is_files: whether it is such a list
    """

    rows: DataFrame
    reading: Reading
    is_files: bool

    def changes(self, plan: Plan) -> Arrivals:
        """The control events that change queries, in any order; the fields of events are absent."""
        rows = self.rows
        if not self.is_files:
            column = self.reading.columns.of(TYPE)
            fields = enumerate(rows.schema.fields)
            texts = {part.name: number for number, part in fields if isinstance(part.dataType, spark_types.StringType)}
            if column not in texts:
                return Arrivals.empty(plan)
            names = rows.columns  # of which Spark may understand none
            plain = rows.toDF(*(f"column{number}" for number in range(len(names))))
            rows = plain.where(f.col(f"column{texts[column]}").rlike("|".join(CHANGES))).toDF(*names)
        found = self._run("find_changes", rows, plan, "data binary").collect()
        return Arrivals.concat([Arrivals.empty(plan), *(Arrivals.from_bytes(bytes(row["data"])) for row in found)])

    def furthest(self, plan: Plan, before: pa.Table) -> int:
        """The furthest source time of the records before one, µs; `before`: that record."""
        place = before.select(list(PLACE)).to_pylist()[0]
        text = ",".join(str(place[name]) for name in PLACE)
        found = self._run("find_furthest", self.rows, plan, "time long", text).collect()
        return max((int(row["time"]) for row in found), default=NO_TIME)

    def _run(self, function: str, rows: DataFrame, plan: Plan, schema: str, *more: str) -> DataFrame:
        reading = self.reading
        if not self.is_files:
            chosen = frame_columns(rows, plan, reading)
            rows, reading = chosen.frame, replace(reading, frame_names=chosen.names)
        run = on_worker(_THIS, function, plan_text(plan), reading.to_text(), self.is_files, *more)
        return rows.mapInArrow(run, schema)


def changes_of(sources: Sequence[BoundedSource], plan: Plan) -> pa.Table:
    """All changes of sources, in order of arrival."""
    return in_arrival_order(Arrivals.concat([Arrivals.empty(plan), *(item.changes(plan) for item in sources)]).table)


def find_changes(
    plan: str, reading: str, is_files: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: see `BoundedSource.changes`."""
    loaded, settings = load_plan(plan), Reading.of_text(reading)
    parts = _of_files(loaded, batches, has_change) if is_files else rows_of_frame(loaded, settings, batches)
    for part in parts:
        texts = part.table.column("_text").to_pylist() if has_column(part.table, "_text") else []
        is_control = part.system("kind") == RecordKind.CONTROL
        rows = [
            row for row in np.flatnonzero(is_control).tolist() if any(name in (texts[row] or "") for name in CHANGES)
        ]
        if rows:
            data = part.take(np.array(rows)).to_bytes()
            yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], ["data"])


def find_furthest(
    plan: str, reading: str, is_files: bool, before: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: see `BoundedSource.furthest`."""
    loaded, settings = load_plan(plan), Reading.of_text(reading)
    limit, selectors = [int(number) for number in before.split(",")], selectors_of(loaded)
    for part in _of_files(loaded, batches) if is_files else rows_of_frame(loaded, settings, batches):
        time = furthest_time(part.take(np.flatnonzero(come_before(part.table, limit))).table, selectors)
        yield pa.RecordBatch.from_arrays([pa.array([time], pa.int64())], ["time"])


def _of_files(
    plan: Plan, batches: Iterator[pa.RecordBatch], is_worth_it: Callable[[Path], bool] | None = None
) -> Iterator[Arrivals]:
    for path, reading in files_of(batches):
        if is_worth_it is None or is_worth_it(Path(path)):
            yield from reading.arrivals(path, plan)


def has_change(file: Path) -> bool:
    """Whether a file may have a change: its bytes show it where a letter is one byte."""
    if file.suffix.lower() not in _PLAIN or not file.stat().st_size:
        return True
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        is_wide = b"\0" in data[:1024]
        return is_wide or any(data.find(name.encode()) >= 0 for name in CHANGES)


# Match bounded DataFrames or files of events in batch: the same operator, without state.
#
# At the end time advances until no timer is left, unless `flush` is False.

BATCH_BUCKETS = 64
"""More than in a stream, because all events of a bucket must fit into a worker's memory."""


def match_tagged(
    frames: DataFrame | Mapping[str, DataFrame],
    plan: Plan,
    *,
    buckets: int = BATCH_BUCKETS,
    reading: Reading | Mapping[str, Reading] | None = None,
    flush: bool = True,
    changing: Changing | None = None,
    logs_discards: bool = False,
) -> DataFrame:
    """All results for DataFrames of events, as tagged rows; `frames`: by source name, or one.

    changing: how the queries change; `plan` is then that of its script
    logs_discards: as of `tagged_bounded`
    """
    program = _program(plan, buckets, changing)
    readings = _readings(frames, reading)
    parts = {name: packed_frame(frame, program, own) for name, (frame, own) in readings.items()}
    with_package_path(next(iter(readings.values()))[0].sparkSession)
    return tagged_bounded(union_by_name(parts), program, flush=flush, logs_discards=logs_discards)


@dataclass(frozen=True, slots=True)
class Changing:
    """How control events change the queries.

    changes: the records that the script counts
    """

    script: Script
    changes: pa.Table


def frame_sources(
    frames: DataFrame | Mapping[str, DataFrame], reading: Reading | Mapping[str, Reading] | None
) -> list[BoundedSource]:
    """What `match_tagged` reads."""
    with_package_path(next(iter(_readings(frames, reading).values()))[0].sparkSession)
    return [BoundedSource(frame, own, is_files=False) for frame, own in _readings(frames, reading).values()]


def file_source(session: SparkSession, paths: Sequence[Path | str], readings: Sequence[Reading]) -> BoundedSource:
    """What `match_files` reads."""
    with_package_path(session)
    return BoundedSource(file_list(session, paths, readings), Reading(), is_files=True)


def _readings(
    frames: DataFrame | Mapping[str, DataFrame], readings: Reading | Mapping[str, Reading] | None
) -> dict[str, tuple[DataFrame, Reading]]:
    named = {"table": frames} if isinstance(frames, DataFrame) else dict(frames)
    given = dict.fromkeys(named, readings) if isinstance(readings, Reading) else readings or {}
    own = {name: given.get(name) or Reading(source=name) for name in named}
    elsewhere = columns_of_all(named)
    return {
        name: (named[name], replace(own[name], place=place_of(rank), elsewhere=elsewhere))
        for rank, name in enumerate(sorted(named))
    }


def _program(plan: Plan, buckets: int, changing: Changing | None) -> Program:
    program = Program.of(plan, buckets=buckets, is_bounded=True)
    return program if changing is None else with_script(program, changing.script, changing.changes)


def match_files(
    session: SparkSession,
    paths: Sequence[Path | str],
    plan: Plan,
    *,
    readings: Sequence[Reading],
    buckets: int = BATCH_BUCKETS,
    flush: bool = True,
    changing: Changing | None = None,
) -> DataFrame:
    """All results for files of events, as tagged rows; workers read the files themselves."""
    with_package_path(session)
    program = _program(plan, buckets, changing)
    packed = packed_files(file_list(session, paths, readings), program)
    return tagged_bounded(packed, program, flush=flush)
