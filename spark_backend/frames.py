"""DataFrames in, DataFrames out: rows of any Spark source to packed rows, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from job_engine.sources.reading import Reading, pack_parts
from job_engine.wire.packed_rows import PACKED_DDL
from job_engine.wire.plan_text import load_plan, plan_text
from job_engine.wire.program import Program, load_program
from job_engine.wire.tagged_rows import Tag, read_table, schema_of, table_of
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.plan.model import Plan
from querylang.plan.routing import source_types
from querylang.printable import warn
from runtime.column_types import has_column
from runtime.columns.arrivals import PLACES_OF_A_SOURCE, Arrivals
from runtime.columns.keys import hash_rows
from runtime.input_policies import is_clocked
from runtime.reading import OFFSET, PARTITION, PLACES, TYPE, needed_names, new_names
from runtime.replay import source_names
from runtime.results.for_users import in_common
from runtime.results.schemas import match_schema
from spark_backend.spark_operator import on_worker

# Spark's types in Arrow, times in UTC: PySpark 4.2 asks for the time zone, before it was fixed.

_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a DataFrame."""
    return pa.schema([pa.field(part.name, arrow_type(part.dataType)) for part in schema.fields])


def arrow_type(type_: DataType) -> pa.DataType:
    """One type; raises PySparkTypeError if Arrow has none."""
    return to_arrow_type(_nullable(type_), **_IN_UTC)


def _nullable(type_: DataType) -> DataType:
    """The type with nulls in it: Arrow has no empty arrays of nothing otherwise."""
    if isinstance(type_, ArrayType):
        return ArrayType(_nullable(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(_nullable(type_.keyType), _nullable(type_.valueType))
    if isinstance(type_, StructType):
        if len(set(type_.names)) < len(type_.names):  # Spark gives no such rows to Python
            raise PySparkTypeError(f"{type_.simpleString()} has two fields of one name")
        return StructType([StructField(part.name, _nullable(part.dataType)) for part in type_.fields])
    return type_


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
    run = on_worker("spark_backend.frames", "pack_rows", program.to_text(), settings.to_text())
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
    """By event type that DataFrames bring: a row of it without values, if a column has types."""
    column = reading.columns.of(TYPE)
    events = source_types(plan.queries)
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


# Files that are read once, without a job.


def file_list(session: SparkSession, paths: Sequence[Path | str], readings: Sequence[Reading]) -> DataFrame:
    """The paths of files, and how each is read, with its source and place; a task per file."""
    each = enumerate(zip(paths, source_names(paths), readings, strict=True))
    rows = [
        (str(Path(path).resolve()), replace(reading, source=name, place=place).to_text())
        for place, (path, name, reading) in each
    ]
    return session.createDataFrame(
        session.sparkContext.parallelize(rows, max(1, len(rows))), "path string, reading string"
    )


def files_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Reading]]:
    """On workers: the paths of `file_list`, and how each is read."""
    for batch in batches:
        for path, reading in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield path, Reading.of_text(reading)


def packed_files(paths: DataFrame, program: Program) -> DataFrame:
    """Read and pack the files of `file_list`."""
    run = on_worker("spark_backend.frames", "pack_files", program.to_text())
    return paths.mapInArrow(run, PACKED_DDL)


def pack_files(program: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: see `packed_files`."""
    loaded = load_program(program)
    for path, reading in files_of(batches):
        # for the clock, all files are one source
        yield from pack_parts(reading.records(path, loaded.plan()), loaded, replace(reading, source=None))


# Decode tagged rows into the typed DataFrames that users get.


def decode(tagged: DataFrame, plan: Plan, tag: Tag, *queries: str, is_flat: bool = False) -> DataFrame:
    """The rows of one kind as a typed DataFrame. `output` includes errors.

    queries: for matches only: the titles of instances of one query. Where its texts have other
        columns, those of all; of a name whose type has changed, the earlier one has `_before`
    is_flat: for matches and discards: a column per field, in place of structs
    """
    alike: dict[pa.Schema, list[str]] = {}
    for title in queries:
        alike.setdefault(schema_of(plan, tag, title, is_flat=is_flat), []).append(title)
    if len(alike) > 1:
        parts = [decode(tagged, plan, tag, *titles, is_flat=is_flat) for titles in alike.values()]
        return _united(parts)
    wanted = f.col("kind") == str(tag)
    if tag is Tag.OUTPUT:
        wanted |= f.col("kind") == str(Tag.ERROR)
    if tag is Tag.MATCH:
        wanted &= f.col("query").isin(*queries)
    query = queries[0] if queries else ""
    run = on_worker("spark_backend.frames", "decode_batches", plan_text(plan), str(tag), query, is_flat)
    schema = from_arrow_schema(schema_of(plan, tag, query, is_flat=is_flat))
    return tagged.where(wanted).select("data").mapInArrow(run, schema)


def _united(parts: Sequence[DataFrame]) -> DataFrame:
    """The matches of several texts of a query, the latest one last."""
    *earlier, whole = parts
    for part in reversed(earlier):
        types = dict(whole.dtypes)
        names = []
        for name, type_ in part.dtypes:
            while types.get(name, type_) != type_:
                name += "_before"  # noqa: PLW2901  the name that it gets
            names.append(name)
        whole = part.toDF(*names).unionByName(whole, allowMissingColumns=True)
    return whole


def decode_batches(
    plan: str, tag: str, query: str, is_flat: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the column `data` of tagged rows of one kind."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from table_of(data, Tag(tag), query, load_plan(plan), is_flat=is_flat).combine_chunks().to_batches()


def common_batches(plan: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the column `data` of matches of any query: what `in_common` has."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from in_common(load_plan(plan), read_table(data)).to_batches()


def matches_frame(tagged: DataFrame, plan: Plan, *, is_flat: bool = False) -> DataFrame:
    """All matches: typed for the instances of one query; otherwise with what `in_common` has."""
    if len({query.name for query in plan.queries}) == 1:
        return decode(tagged, plan, Tag.MATCH, *(query.title for query in plan.queries), is_flat=is_flat)
    own = match_schema(plan, plan.queries[0]).empty_table()
    common = from_arrow_schema(in_common(plan, own).schema)
    matches = tagged.where(f.col("kind") == str(Tag.MATCH)).select("data")
    return matches.mapInArrow(on_worker("spark_backend.frames", "common_batches", plan_text(plan)), common)
