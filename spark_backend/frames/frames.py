"""DataFrames as sources: the rows of any Spark source, with the columns of an event table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame

from job_engine.sources.reading import Reading, pack_parts
from job_engine.wire.packed_rows import PACKED_DDL
from job_engine.wire.program import Program, load_program
from querylang.errors import InputError
from querylang.plan.model import Plan
from querylang.printable import warn
from runtime.arrow_types import has_column
from runtime.columns.arrivals import PLACES_OF_A_SOURCE, Arrivals
from runtime.columns.keys import hash_rows
from runtime.policies.per_input import is_clocked
from runtime.reading.column_names import OFFSET, PARTITION, PLACES, TYPE, needed_names, new_names
from spark_backend.frames.spark_types import arrow_schema, arrow_type
from spark_backend.stream.worker_calls import on_worker

ROWS_AT_ONCE = 500_000
"""How many rows are packed together: Spark's batches are too small for it."""

MAX_TASKS = 1 << 12
"""Most tasks of a micro-batch without offsets, if all its rows are one source partition."""

MAX_ROWS = 1 << 24
"""Most rows of one such task."""


def packed_frame(frame: DataFrame, program: Program, reading: Reading) -> DataFrame:
    """Pack a DataFrame's rows; only the columns that the plan needs leave the JVM.

    Warns of rows without coordinates. Raises InputError for columns that are missing or ambiguous,
    if no event type of the queries can be read.
    """
    chosen = frame_columns(frame, program.plan(), reading)
    found = _mistakes(chosen, frame.columns, program.plan(), reading)
    if all(found.values()):
        raise next(mistake for mistake in found.values() if mistake is not None)
    _warn_of_missing_places(chosen, reading)
    settings = replace(reading, frame_names=chosen.names)
    run = on_worker("spark_backend.frames.frames", "pack_rows", program.to_text(), settings.to_text())
    return chosen.frame.mapInArrow(run, PACKED_DDL)


def refuse_unreadable_types(frames: Mapping[str, DataFrame], plan: Plan, readings: Mapping[str, Reading]) -> None:
    """Raise InputError for an event type that none of these DataFrames has the columns for.

    Which event types a column of types holds is known only to the tasks. Where one DataFrame can
    bring a type and another cannot, the other's rows of that type are discarded as malformed.
    """
    first: dict[str | None, InputError | None] = {}
    for name, frame in frames.items():
        found = _mistakes(frame_columns(frame, plan, readings[name]), frame.columns, plan, readings[name])
        if None in found:  # without a column of types a DataFrame may bring any one
            return
        for event, mistake in found.items():
            first[event] = None if mistake is None else first.get(event, mistake)
    for mistake in first.values():
        if mistake is not None:
            raise mistake


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """Columns of a DataFrame.

    frame: has them under plain names: Spark takes dots and backquotes apart, and does not tell
        names apart that differ in case only
    names: the names that the plan knows
    """

    frame: DataFrame
    names: tuple[str, ...]

    def empty(self) -> pa.Table:
        """The columns without rows."""
        return arrow_schema(self.frame.schema).empty_table().rename_columns(list(self.names))


def frame_columns(frame: DataFrame, plan: Plan, reading: Reading) -> FrameColumns:
    """The columns that the plan needs. Raises InputError for one of a type that Arrow has not."""
    table = _name(reading)
    needed = needed_names(plan, reading.columns)
    renamed = new_names(f"DataFrame {table!r}", frame.columns, needed)
    plain = frame.toDF(*(f"column{number}" for number in range(len(frame.columns))))
    named = [(number, renamed.get(name, name)) for number, name in enumerate(frame.columns)]
    chosen = [(number, name) for number, name in named if name in set(needed)]
    for number, name in chosen:
        kind = frame.schema.fields[number].dataType
        try:
            arrow_type(kind)
        except PySparkTypeError:
            raise InputError(
                f"DataFrame {table!r}: column {name!r} is {kind.simpleString()}, which no type of the language holds"
            ) from None
    return FrameColumns(plain.select(*(f"column{number}" for number, _ in chosen)), tuple(name for _, name in chosen))


def columns_of_all(frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """The columns of several DataFrames: one that a DataFrame lacks is null there."""
    if len(frames) < 2:
        return ()
    return tuple(dict.fromkeys(name for frame in frames.values() for name in frame.columns))


def _name(reading: Reading) -> str:
    return reading.name or reading.source or "table"


def _warn_of_missing_places(chosen: FrameColumns, reading: Reading) -> None:
    names = [reading.columns.of(role) or role for role in PLACES[1:]]
    missing = [name for role, name in zip(PLACES[1:], names, strict=True) if not _has(chosen.names, reading, role)]
    if missing and not reading.is_control:
        columns = " and no column ".join(map(repr, missing))
        warn(
            f"DataFrame {_name(reading)!r} has no column {columns}: rows of equal arrival are taken in the order"
            " of their content, and ids of matches may differ from run to run"
        )


def _mistakes(
    chosen: FrameColumns, others: Sequence[str], plan: Plan, reading: Reading
) -> Mapping[str | None, InputError | None]:
    """By event type: why the DataFrame cannot bring it; None = it can.

    A row of each event type is read without values, before any task runs. A DataFrame without a
    column of types is one entry, of the type None.

    others: names of all columns, for messages
    """
    empty = chosen.empty()
    for name in others:
        if name.casefold() not in {known.casefold() for known in empty.column_names}:
            empty = empty.append_column(name, pa.nulls(0))
    return {event: _mistake(table, plan, reading) for event, table in _samples(empty, plan, reading).items()}


def _mistake(table: pa.Table, plan: Plan, reading: Reading) -> InputError | None:
    try:
        for _ in replace(reading, is_mixed=False).arrivals(table, plan):
            pass
    except InputError as mistake:
        return mistake
    return None


def _samples(empty: pa.Table, plan: Plan, reading: Reading) -> Mapping[str | None, pa.Table]:
    """By event type that the queries read: a row of it without values, if a column has types."""
    column = reading.columns.of(TYPE)
    events = dict.fromkeys(item.event for query in plan.queries for item in query.inputs)
    if reading.is_control or column is None or not has_column(empty, column) or not events:
        return {None: empty}
    position = empty.schema.get_field_index(column)
    blank = pa.Table.from_arrays([pa.nulls(1, kind) for kind in empty.schema.types], names=empty.column_names)
    return {event: blank.set_column(position, column, pa.array([event])) for event in events}


def _has(columns: Collection[str], reading: Reading, role: str) -> bool:
    """Whether some column says the partition or the offset."""
    return reading.columns.of(role) in columns


def rows_of_frame(plan: Plan, reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[Arrivals]:
    """The records of a bounded DataFrame's columns, on workers; those without `offset` get one."""
    number = 1
    for table in _gathered(batches, reading.frame_names):
        whole, own = _with_coordinates(table, reading, 0, number)
        number += len(table)
        yield from own.arrivals(whole, plan)


def pack_rows(program: str, reading: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over a DataFrame's columns, on workers.

    Rows without an `offset` column are numbered by task, micro-batch and position, so that a
    repeated micro-batch numbers them alike. A missing `partition` column is filled with the task's
    number. If rows have partitions, or are ordered by them, the task's number becomes part of the
    offset. The number depends on how Spark divides the rows, so that rows of equal arrival are
    taken in the order of their content instead.
    """
    from pyspark import TaskContext

    loaded, settings = load_program(program), Reading.of_text(reading)
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    is_clocked_plan = any(is_clocked(item) for query in loaded.plan().queries for item in query.inputs)
    first, rows = -1, 0
    for table in _gathered(batches, settings.frame_names):
        by_partition, has_offsets = (_has(table.column_names, settings, role) for role in (PARTITION, OFFSET))
        is_one = is_clocked_plan or by_partition
        if first < 0:
            first = _first_offset(task, None if number is None else int(number), is_one=is_one)
        numbered, own = _with_coordinates(table, settings, 0 if is_one else task, first)
        if not has_offsets:
            first += len(table)
            rows += len(table)
            if is_one and number is not None and (rows > MAX_ROWS or task >= MAX_TASKS):
                raise InputError(
                    f"a micro-batch has more than {MAX_TASKS} tasks or {MAX_ROWS} rows of one task; to be ordered"
                    f" by source partition its DataFrame needs the columns 'partition' and 'offset'"
                )
        parts = own.records(numbered, loaded.plan())
        if not (by_partition and has_offsets):
            parts = (replace(part, arrivals=_ordered_by_content(part.arrivals)) for part in parts)
        yield from pack_parts(parts, loaded, settings, by_partition=by_partition)


def _gathered(batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.Table]:
    """Tables of about ROWS_AT_ONCE rows; `names`: as of `Reading.frame_names`."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS_AT_ONCE:
            yield _named(waiting, names)
            waiting = []
    if waiting:
        yield _named(waiting, names)


def _named(batches: list[pa.RecordBatch], names: Sequence[str]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table.rename_columns(list(names)) if names else table


def _ordered_by_content(arrivals: Arrivals) -> Arrivals:
    """The records with places that decide by their content, whatever task reads them."""
    table = arrivals.table
    content = hash_rows(table.drop_columns(["_place", "_partition", "_offset"]))
    place = arrivals.system("place") + (content % np.uint64(PLACES_OF_A_SOURCE)).astype(np.int64)
    position = table.schema.get_field_index("_place")
    return Arrivals(table.set_column(position, table.schema.field(position), pa.array(place)))


def _first_offset(task: int, batch: int | None, *, is_one: bool) -> int:
    """The offset of a task's first row; `batch` None: the DataFrame is bounded.

    Offsets of one partition never repeat. A task has room for 2^40 rows, or for MAX_ROWS per
    micro-batch if all tasks are one partition.
    """
    if not is_one:
        return ((batch or 0) << 40) + 1
    return ((task << 40) if batch is None else (batch * MAX_TASKS + task) * MAX_ROWS) + 1


def _with_coordinates(table: pa.Table, reading: Reading, partition: int, first: int) -> tuple[pa.Table, Reading]:
    """The table with offsets from `first` if no column says them, then with partitions too.

    The names of the new columns are not those of fields.
    """
    if _has(table.column_names, reading, OFFSET):
        return table, reading
    if not _has(table.column_names, reading, PARTITION):
        name = _free(PARTITION, table.column_names)
        table = table.append_column(name, pa.repeat(pa.scalar(partition, pa.int64()), len(table)))
        reading = reading if reading.columns.of(PARTITION) == name else replace(reading, partition=name)
    name = _free(OFFSET, table.column_names)
    reading = reading if reading.columns.of(OFFSET) == name else replace(reading, offset=name)
    return table.append_column(name, pa.array(np.arange(first, first + len(table)))), reading


def _free(name: str, names: Collection[str]) -> str:
    """A name that no column has."""
    while name in names:
        name = f"{name}_"
    return name
