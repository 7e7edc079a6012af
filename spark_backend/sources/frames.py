"""DataFrames as sources: the rows of any Spark source, with the columns of an event table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.policies.per_input import is_clocked
from spark_backend.sources.pushdown import needed_columns
from spark_backend.sources.reading import Reading, pack_parts
from spark_backend.wire.packed_rows import PACKED_DDL
from spark_backend.wire.program import Program, load_program
from spark_backend.wire.worker_calls import on_worker

ROWS_AT_ONCE = 500_000
"""How many rows are packed together: Spark's batches are too small for it."""

MAX_TASKS = 1 << 12
"""Most tasks of a micro-batch without offsets, if all its rows are one source partition."""

MAX_ROWS = 1 << 24
"""Most rows of one such task."""


def packed_frame(frame: DataFrame, program: Program, reading: Reading) -> DataFrame:
    """Pack a DataFrame's rows; only the columns that the plan needs leave the JVM.

    Raises InputError for columns that `reading` names and the DataFrame does not have.
    """
    wanted = needed_columns(program.plan(), reading)
    chosen = frame.select(*(f.col(f"`{name}`") for name in frame.columns if name in wanted))
    _refuse_other_columns(chosen, program.plan(), reading)
    run = on_worker("spark_backend.sources.frames", "pack_rows", program.to_text(), reading.to_text())
    return chosen.mapInArrow(run, PACKED_DDL)


def _refuse_other_columns(frame: DataFrame, plan: Plan, reading: Reading) -> None:
    """Read an empty table of these columns, so that mistakes are found before any task runs."""
    for _ in reading.arrivals(to_arrow_schema(frame.schema, timezone="UTC").empty_table(), plan):
        pass


def pack_rows(program: str, reading: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over a DataFrame's columns, on workers.

    Rows without an `offset` column are sorted by arrival time, as far as Spark passes them
    together. They are numbered by task, micro-batch and position, so that a repeated micro-batch
    numbers them alike. A missing `partition` column is filled with the task's number. If records
    are ordered by source partition there is one partition only, and the task's number becomes part
    of the offset.
    """
    from pyspark import TaskContext

    loaded, settings = load_program(program), Reading.of_text(reading)
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    is_one = any(is_clocked(item) for query in loaded.plan().queries for item in query.inputs)
    first = _first_offset(task, None if number is None else int(number), is_one=is_one)
    rows = 0
    for table in _gathered(batches):
        by_partition = "partition" in table.column_names
        if "offset" not in table.column_names:
            ordered = _by_arrival(table, settings.arrival or "at")
            numbered = _with_coordinates(ordered, 0 if is_one else task, first)
            first += len(table)
            rows += len(table)
            if is_one and number is not None and (rows > MAX_ROWS or task >= MAX_TASKS):
                raise InputError(
                    f"a micro-batch has more than {MAX_TASKS} tasks or {MAX_ROWS} rows of one task; to be ordered"
                    f" by source partition its DataFrame needs the columns 'partition' and 'offset'"
                )
        else:
            numbered = table
        arrivals = settings.arrivals(numbered, loaded.plan())
        yield from pack_parts(arrivals, loaded, settings, by_partition=by_partition)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about ROWS_AT_ONCE rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _by_arrival(table: pa.Table, column: str) -> pa.Table:
    if column not in table.column_names or not len(table):
        return table
    times = table.column(column).combine_chunks()
    if pc.all(pc.less_equal(times[:-1], times[1:])).as_py() is not False:
        return table
    return table.take(pc.sort_indices(times, null_placement="at_start"))


def _first_offset(task: int, batch: int | None, *, is_one: bool) -> int:
    """The offset of a task's first row; `batch` None: the DataFrame is bounded.

    Offsets of one partition never repeat. A task has room for 2^40 rows, or for MAX_ROWS per
    micro-batch if all tasks are one partition.
    """
    if not is_one:
        return ((batch or 0) << 40) + 1
    return ((task << 40) if batch is None else (batch * MAX_TASKS + task) * MAX_ROWS) + 1


def _with_coordinates(table: pa.Table, partition: int, first: int) -> pa.Table:
    if "partition" not in table.column_names:
        table = table.append_column("partition", pa.repeat(pa.scalar(partition, pa.int64()), len(table)))
    return table.append_column("offset", pa.array(np.arange(first, first + len(table))))
