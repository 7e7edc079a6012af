"""Control events that change the queries, among bounded records: found before these are run."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark_types

from job_engine.sources.reading import Reading
from job_engine.wire.plan_text import load_plan, plan_text
from querylang.plan.changes import CHANGES
from querylang.plan.model import Plan
from runtime.admission.selection import furthest_time, selectors_of
from runtime.arrow_types import has_column
from runtime.columns.arrivals import PLACE, Arrivals, RecordKind, come_before, in_arrival_order
from runtime.instants import NO_TIME
from runtime.reading.column_names import TYPE
from spark_backend.frames.files import files_of
from spark_backend.frames.frames import frame_columns, rows_of_frame
from spark_backend.stream.worker_calls import on_worker

_THIS = "spark_backend.frames.change_records"
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
