"""Records on a worker: what a source's settings mean to the reader of `runtime.reading.tables`.

Takes paths or Arrow batches with a source's settings; gives packed rows. The reader is the embedded replay's: the same
types, the same unreadable rows, the same coordinates, hence the same matches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import InputError
from querylang.plan.model import Input, Plan, QueryPlan
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.policies.per_input import is_clocked
from runtime.reading.tables import iter_arrivals
from spark_backend.wire.packed_rows import Call, pack_arrivals, pack_signal
from spark_backend.wire.program import Program, load_program

ROWS_AT_ONCE = 500_000
"""Rows of a DataFrame that are packed together."""

MOST_TASKS = 1 << 12
MOST_ROWS = 1 << 24
"""Of a micro-batch without coordinates, where all tasks are one source partition; rows of one task."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The names of columns that say when and what, as the reader takes them; `event`: every row is of this type.

    `root`: the folder of a source; a file in a folder below it is called by its path from there, so that files of one
    name are told apart, with `prefix` before it. Without it a file is called by its name, as in a replay. `name`: how the
    clock calls the source. `place`: of records that agree in their coordinates otherwise, those of the lower place come
    first. `is_control`: the control stream; what is no event of the plan there is meant for the engine, which says what is
    wrong with it.
    """

    event: str | None = None
    type_field: str | None = None
    source_time: str | None = None
    arrival: str | None = None
    source: str | None = None
    root: str | None = None
    prefix: str = ""
    name: str = ""
    place: int = 0
    is_control: bool = False

    def to_text(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self))

    def arrivals(self, table: object, plan: Plan) -> Iterator[Arrivals]:
        """The records of a path or an Arrow table; raises InputError where it cannot be one."""
        parts = self._read(table, plan)
        return map(_as_controls, parts) if self.is_control else parts

    def _read(self, table: object, plan: Plan) -> Iterator[Arrivals]:
        return iter_arrivals(
            table,
            plan if self.event is None else plan_for_event(plan, self.event),
            arrival=self.arrival,
            type=self.type_field,
            source_time=self.source_time,
            source=self.source,
        )


def _as_controls(arrivals: Arrivals) -> Arrivals:
    """Of what is no event of the plan the reader keeps the type's name: it becomes the event again, as far as that tells what is wrong."""
    table, kinds = arrivals.table, arrivals.system("kind")
    is_unknown = kinds == RecordKind.UNKNOWN_TYPE
    if not is_unknown.any():
        return arrivals
    text = table.column("_text")
    texts = pc.if_else(pa.array(is_unknown), pc.binary_join_element_wise(text, "()", ""), text)
    for name, column in (
        ("_kind", pa.array(np.where(is_unknown, np.int16(RecordKind.CONTROL), kinds))),
        ("_text", texts),
    ):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), column)
    return Arrivals(table)


def plan_for_event(plan: Plan, event: str) -> Plan:
    """The plan with the inputs that take this event type and no others: what a source of one type is read for."""
    queries = []
    for query in plan.queries:
        inputs = tuple(taken for item in query.inputs for taken in _as_inputs(item) if taken.event == event)
        if inputs:
            queries.append(replace(query, inputs=inputs))
    return Plan(plan.events, tuple(queries) or (_taking(plan, event),))


def _as_inputs(item: Input) -> tuple[Input, ...]:
    if item.heartbeat is None:
        return (item,)
    beat = item.heartbeat
    heartbeat = replace(item, event=beat.event, keys=beat.keys, time_from=beat.time_from, filter=None, heartbeat=None)
    return (replace(item, heartbeat=None), heartbeat)


def _taking(plan: Plan, event: str) -> QueryPlan:
    """A query that takes a type which is no query's input: such events are counted as unrelated."""
    item = Input(event, (), None, None, None, (), None, None, out_of_order=False, heartbeat=None)
    return replace(plan.queries[0], inputs=(item,))


def pack_files(program: str, reading: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over a column of paths: read each file and pack it. A second column names their sources."""
    loaded, how = load_program(program), Reading(**json.loads(reading))
    for batch in batches:
        for path, *source in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            file = PurePosixPath(local_path(path))
            names = source if how.root is None else [how.prefix + str(file.relative_to(how.root))]
            named = replace(how, source=names[0]) if names else how
            yield from _packed(named.arrivals(str(file), loaded.plan()), loaded, how, by_partition=True)


def pack_rows(program: str, reading: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over a DataFrame's columns.

    Rows without an `offset` column have no order but that of arrival: they are put into it, as far as Spark gives them
    together, and numbered by task, micro-batch and position, so that a repeated batch numbers them alike. Without a
    `partition` column that is the number of the task; but where records are put in order by source partition there is
    one partition only, and the task's number is a part of the offset.
    """
    from pyspark import TaskContext

    loaded, how = load_program(program), Reading(**json.loads(reading))
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    is_one = any(is_clocked(item) for query in loaded.plan().queries for item in query.inputs)
    first = _first_offset(task, None if number is None else int(number), is_one=is_one)
    rows = 0
    for table in _gathered(batches):
        by_partition = "partition" in table.column_names
        if "offset" not in table.column_names:
            ordered = _by_arrival(table, how.arrival or "at")
            numbered = _with_coordinates(ordered, 0 if is_one else task, first)
            first += len(table)
            rows += len(table)
            if is_one and number is not None and (rows > MOST_ROWS or task >= MOST_TASKS):
                raise InputError(
                    f"a micro-batch has more than {MOST_TASKS} tasks or {MOST_ROWS} rows of one task; to be put in order"
                    f" by source partition its DataFrame needs the columns 'partition' and 'offset'"
                )
        else:
            numbered = table
        yield from _packed(how.arrivals(numbered, loaded.plan()), loaded, how, by_partition)


def pack_signals(program: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the paths of signal files: their names say what they call for."""
    loaded = load_program(program)
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield pack_signal(loaded.buckets, Call(PurePosixPath(path).name.partition("-")[2]))


def _packed(parts: Iterator[Arrivals], program: Program, how: Reading, by_partition: bool) -> Iterator[pa.RecordBatch]:
    for arrivals in parts:
        if len(arrivals):
            yield pack_arrivals(
                arrivals,
                program.groups(),
                program.buckets,
                source=how.name or how.source or "table",
                place=how.place,
                is_control=how.is_control,
                by_partition=by_partition,
            )


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Spark's batches are small; packing is worth its while for many rows at once."""
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
    moments = table.column(column).combine_chunks()
    if pc.all(pc.less_equal(moments[:-1], moments[1:])).as_py() is not False:
        return table
    return table.take(pc.sort_indices(moments, null_placement="at_start"))


def _first_offset(task: int, batch: int | None, *, is_one: bool) -> int:
    """The number before that of a task's first row in a micro-batch, None: in a table. Offsets of one partition do not
    repeat: where all tasks are one partition a task has room for MOST_ROWS in a micro-batch, else for 2^40."""
    if not is_one:
        return ((batch or 0) << 40) + 1
    return ((task << 40) if batch is None else (batch * MOST_TASKS + task) * MOST_ROWS) + 1


def _with_coordinates(table: pa.Table, partition: int, first: int) -> pa.Table:
    if "partition" not in table.column_names:
        table = table.append_column("partition", pa.repeat(pa.scalar(partition, pa.int64()), len(table)))
    return table.append_column("offset", pa.array(np.arange(first, first + len(table))))


def local_path(uri: str) -> str:
    """The path of a file as Spark names it (`file:/a b/c.csv`); raises InputError for another file system."""
    scheme = urlsplit(uri.split("/", 1)[0] + "/").scheme
    if scheme not in {"", "file"}:
        raise InputError(f"{uri}: files are read from local or mounted folders only; mount it, or pass a DataFrame")
    path = uri.removeprefix("file:")
    return "/" + path.lstrip("/") if path.startswith("//") else path
