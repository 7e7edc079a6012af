"""A batch of records as an Arrow table: the form in which sources deliver and the engine reads.

One table holds records of any number of event types, in any order. System columns begin with an
underscore. Every combination of a field name and a type is one more column, `name:type`, null on
the rows of other event types. The engine processes records by (arrival, place, partition, offset).
Times are microseconds UTC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.expression import Kind, Type
from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.lookups import LOOKUP, failed_name
from querylang.plan.model import EventType, Plan
from runtime.column_types import arrow_type, has_column, made_once
from runtime.columns.rows import stable_order
from runtime.interpreter import Dictionary, EvaluationError, Event, Location, Value, World

BATCH_VERSION = 1

AT_THE_END = 2**60
"""The step number of the end of the input: after every record."""


class RecordKind(IntEnum):
    """The kind of a record that is not an event.

    The kind of an event is its type's index in `Plan.events`.

    TICK: only advances the clock
    CONTROL: a control event
    MALFORMED: cannot be read
    UNKNOWN_TYPE: an event of a type that the plan does not have
    """

    TICK = -1
    CONTROL = -2
    MALFORMED = -3
    UNKNOWN_TYPE = -4


class Shape(IntEnum):
    """What an event is in time.

    POINT: happens at its source time
    INTERVAL: lasts from its source time to its end
    START_EDGE: the start of an interval whose end is not known yet
    END_EDGE: the end of an interval that a start edge began
    """

    POINT = 0
    INTERVAL = 1
    START_EDGE = 2
    END_EDGE = 3


SYSTEM_FIELDS: tuple[pa.Field, ...] = (
    pa.field("_kind", pa.int16(), nullable=False),
    pa.field("_arrival", pa.int64(), nullable=False),
    pa.field("_source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("_partition", pa.int64(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_source_time", pa.int64(), nullable=False),
    pa.field("_text", pa.string()),
    pa.field("_place", pa.int64(), nullable=False),
)


SHAPE_FIELDS: tuple[pa.Field, ...] = (pa.field("_end", pa.int64()), pa.field("_shape", pa.int8()))
"""System columns that are present only if events may be intervals."""


PLACES_OF_A_SOURCE = 1 << 40
"""Places that each source of a job has for its files."""


MOVED_FIELD = pa.field("_moved", pa.bool_())
"""A system column that is present only if a reader has moved records: which ones it has."""


def is_moved(table: pa.Table) -> NDArray[np.bool_]:
    """Which records arrive later than they say, because a reader has moved them."""
    if not has_column(table, MOVED_FIELD.name):
        return np.zeros(len(table), np.bool_)
    moved = table.column(MOVED_FIELD.name).fill_null(False)
    return moved.to_numpy().astype(np.bool_)


def place_of(source: int, file: int = 0) -> int:
    """The `_place` of records of a job.

    source: number of the source among all, by name; the control stream comes last
    file: number of the file in its source
    """
    return source * PLACES_OF_A_SOURCE + file


def column_name(field: str, type_: Type) -> str:
    """The column of a field; event types with a field of the same name and type share it."""
    return f"{field}:{type_}"


_KNOWN: dict[int, tuple[Iterable[EventType], dict[str, Type]]] = {}
"""Field columns that were asked for, by the identity of the event types, which are kept beside."""

_MOST_KNOWN = 64


def field_columns(events: Iterable[EventType]) -> dict[str, Type]:
    """The field columns of these event types with their types, in order of first appearance.

    Those of a plan are asked for many times per batch, and it may have ten thousand event types.
    """
    known = _KNOWN.get(id(events))
    if known is None or known[0] is not events:
        known = events, {column_name(field.name, field.type): field.type for event in events for field in event.fields}
        if isinstance(events, tuple):
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[id(events)] = known
    return dict(known[1])


@made_once
def arrivals_schema(plan: Plan) -> pa.Schema:
    """The schema of `Arrivals.table`; `_text` and field columns without values may be absent."""
    fields = [pa.field(name, arrow_type(type_, plan)) for name, type_ in field_columns(plan.events).items()]
    return pa.schema([*SYSTEM_FIELDS, *fields])


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A batch of records; its table has these system columns.

    _kind: an index into `Plan.events`, or a `RecordKind`
    _arrival: arrival time, µs; a record that has none arrives with the one before it
    _source, _partition, _offset: where the record came from; together unique
    _source_time: the time in the source's declared column, µs; NO_TIME = none
    _text: the control event, the unknown type's name, or why a record is malformed, with the record
    _place: place of the file or table among all; of records that arrive together it decides first
    _end: end of an interval or end edge, µs; NO_TIME = none; absent if all events are points
    _shape: the event's `Shape`; absent if all events are points
    _moved: the reader has moved `_arrival` to that of the record before it; absent if of none
    """

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @staticmethod
    def empty(plan: Plan) -> Arrivals:
        """A batch without records, with the columns of a plan."""
        return _no_arrivals(plan)

    @staticmethod
    def concat(parts: Sequence[Arrivals]) -> Arrivals:
        """All records of all parts; a column that a part lacks is null there."""
        whole = [part.table for part in parts if len(part)] or [part.table for part in parts[:1]]
        if len(whole) == 1 and all(part.table.schema.equals(whole[0].schema) for part in parts):
            return Arrivals(_in_one_chunk(whole[0]))  # the others add neither records nor columns
        table = pa.concat_tables([part.table for part in parts], promote_options="default")
        if table.num_rows == max((len(part) for part in parts), default=0):  # the others add columns
            table = pa.table([_without_empty_chunks(column) for column in table.columns], schema=table.schema)
        return Arrivals(_in_one_chunk(table))

    def take(self, rows: NDArray[np.int64]) -> Arrivals:
        """The records with these indexes, in this order."""
        return Arrivals(self.table.take(pa.array(rows)))

    def system(self, name: str) -> NDArray[np.int64]:
        """A numeric system column as a numpy array; `name` without its underscore."""
        return self.table.column(f"_{name}").to_numpy()

    def to_bytes(self) -> bytes:
        """An Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        schema = self.table.schema.with_metadata({"ensue.batch": str(BATCH_VERSION)})
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(self.table.replace_schema_metadata(schema.metadata))
        return sink.getvalue().to_pybytes()

    @staticmethod
    def from_bytes(data: bytes) -> Arrivals:
        """The inverse of `to_bytes`; ValueError for another version."""
        table = pa.ipc.open_stream(data).read_all()
        version = (table.schema.metadata or {}).get(b"ensue.batch", b"?").decode()
        if version != str(BATCH_VERSION):
            raise ValueError(f"batch of version {version}; this release reads version {BATCH_VERSION}")
        return Arrivals(table)


@made_once
def _no_arrivals(plan: Plan) -> Arrivals:
    return Arrivals(arrivals_schema(plan).empty_table())


def _in_one_chunk(table: pa.Table) -> pa.Table:
    if all(column.num_chunks == 1 for column in table.itercolumns()):
        return table
    return table.unify_dictionaries().combine_chunks()


def _without_empty_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for chunk in column.chunks if len(chunk)], column.type)


_TIES = ("_place", "_partition", "_offset")
"""What orders records that arrive together."""

PLACE = ("_arrival", *_TIES)
"""A record's place in the order of arrival."""


def in_arrival_order(table: pa.Table) -> pa.Table:
    """The rows in order of arrival. A table that is sorted already, as usual, costs one scan."""
    arrival = table.column("_arrival").to_numpy()
    if len(arrival) < 2 or (arrival[1:] > arrival[:-1]).all():
        return table
    ties = [table.column(name).to_numpy() for name in _TIES]
    if _is_sorted(arrival, *ties):
        return table
    order = stable_order(arrival)
    if not _is_sorted(*(column[order] for column in (arrival, *ties))):
        order = np.lexsort((*reversed(ties), arrival))
    return table.take(pa.array(order))


def is_in_order(table: pa.Table) -> bool:
    """Whether the rows are in order of arrival already."""
    return _is_sorted(*(table.column(name).to_numpy() for name in PLACE))


def come_before(table: pa.Table, place: Sequence[int], *, or_are: bool = False) -> NDArray[np.bool_]:
    """Which rows come before a place in the order of arrival.

    place: the values of PLACE
    or_are: the row at that place, too
    """
    is_before, is_same = np.zeros(len(table), np.bool_), np.ones(len(table), np.bool_)
    for name, limit in zip(PLACE, place, strict=True):
        own = table.column(name).to_numpy()
        is_before |= is_same & (own < limit)
        is_same &= own == limit
    return is_before | is_same if or_are else is_before


def _is_sorted(*columns: NDArray[np.int64]) -> bool:
    """Whether the rows are in ascending order by these columns, the first one most significant."""
    undecided = np.ones(len(columns[0]) - 1, np.bool_)
    for column in columns:
        before, after = column[:-1], column[1:]
        if (undecided & (before > after)).any():
            return False
        undecided &= before == after
    return True


def as_known(table: pa.Table, events: Sequence[EventType], known: Collection[str]) -> pa.Table:
    """A table of arrivals where events of types that are not known are of unknown types."""
    unknown = [place for place, event in enumerate(events) if event.name not in known]
    if not unknown:
        return table
    kinds = table.column("_kind").to_numpy()
    is_unknown = np.isin(kinds, unknown)
    if not is_unknown.any():
        return table
    names = [events[kind].name if new else None for kind, new in zip(kinds, is_unknown, strict=True)]
    told = table.column("_text").to_pylist() if has_column(table, "_text") else [None] * len(table)
    texts = pa.array([old if name is None else name for old, name in zip(told, names, strict=True)], pa.string())
    kinds = np.where(is_unknown, np.int16(RecordKind.UNKNOWN_TYPE), kinds)
    table = table.set_column(table.schema.get_field_index("_kind"), table.schema.field("_kind"), pa.array(kinds))
    if not has_column(table, "_text"):
        return table.append_column("_text", texts)
    return table.set_column(table.schema.get_field_index("_text"), "_text", texts)


# Cells as values of the language, and back. Arrow gives lists for sequences, pairs for
# dictionaries, and mappings for locations and events.

Cell = Any
"""A cell as Arrow's `to_pylist` gives it: a scalar, list, mapping, or pairs; None = null."""


def from_cell(cell: Cell, type_: Type, world: World) -> Value:
    """A cell as a value; None = a null, or an empty optional."""
    if cell is None or type_.is_scalar:
        return _scalar(cell)
    match type_.kind:
        case Kind.SEQUENCE:
            return [from_cell(item, type_.of[0], world) for item in cell]
        case Kind.DICTIONARY:
            pairs = cell.items() if isinstance(cell, Mapping) else cell
            return Dictionary.of(
                (from_cell(key, type_.of[0], world), from_cell(item, type_.of[1], world)) for key, item in pairs
            )
        case Kind.OPTIONAL:
            return from_cell(cell, type_.of[0], world)
        case Kind.EVENT:
            return event_of(world.event_type(type_.name), cell, world)
        case Kind.LOCATION:
            corners = [cell[name] for name in LOCATION_FIELDS]
            return None if None in corners else Location(*corners)
        case _:
            return _scalar(cell)


def _scalar(cell: Cell) -> Value:
    value: Value = cell
    return value


def event_of(event: EventType, cells: Mapping[str, Cell], world: World, time: int | None = None) -> Event:
    """An event with these cells as fields; missing ones are null.

    time: microseconds since 1970; None = unknown
    """
    values = {field.name: from_cell(cells.get(field.name), field.type, world) for field in event.fields}
    return Event(event, values, time)


def to_cell(value: Value) -> Cell:
    """The inverse of `from_cell`: what `pa.array` accepts."""
    match value:
        case list():
            return [to_cell(item) for item in value]
        case Dictionary():
            return [(to_cell(key), to_cell(item)) for key, item in value.items()]
        case Event():
            return {name: to_cell(item) for name, item in value.values.items()}
        case Location():
            return dict(zip(LOCATION_FIELDS, value.corners, strict=True))
        case _:
            return value


def column_values(table: pa.Table, field: str, type_: Type, world: World) -> list[Value]:
    """The values of a field on all rows; all null if the table has no such column."""
    name = column_name(field, type_)
    if not has_column(table, name):
        return [None] * len(table)
    cells = table.column(name).to_pylist()
    return cells if type_.is_scalar else [from_cell(cell, type_, world) for cell in cells]


def row_events(event: EventType, table: pa.Table, world: World, times: Sequence[int | None]) -> list[Event]:
    """Every row as an event of a type.

    table: fields in columns named by `column_name`
    times: by row: microseconds since 1970; None = unknown
    """
    columns = [column_values(table, field.name, field.type, world) for field in event.fields]
    names = [field.name for field in event.fields]
    rows: Iterable[tuple[Value, ...]] = zip(*columns, strict=True) if columns else [()] * len(table)
    events = [Event(event, dict(zip(names, row, strict=True)), time) for row, time in zip(rows, times, strict=True)]
    if world.looks_up and has_column(table, "_arrival"):
        looked_up = looked_up_in(table) or [{}] * len(table)
        for made, arrival, values in zip(events, table.column("_arrival").to_pylist(), looked_up, strict=True):
            made.arrival, made.looked_up = arrival, values
    return events


def looked_up_in(table: pa.Table) -> list[dict[str, Value | EvaluationError]] | None:
    """By row, what is stored of lookups (`querylang.plan.lookups`); None = nothing is."""
    names = [name for name in table.column_names if name.startswith(LOOKUP)]
    if not names:
        return None
    found: list[dict[str, Value | EvaluationError]] = [{} for _ in range(len(table))]
    for name in names:
        own = name.rpartition(":")[0]
        cells, failed = table.column(name).to_pylist(), table.column(failed_name(own)).to_pylist()
        for row, (cell, has_failed) in enumerate(zip(cells, failed, strict=True)):
            found[row][own] = EvaluationError(own) if has_failed else cell
    return found
