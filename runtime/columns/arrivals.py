"""A batch of records as an Arrow table: the form in which sources deliver and the engine reads.

One table holds records of any number of event types, in any order. System columns begin with an
underscore. Every combination of a field name and a type is one more column, `name:type`, null on
the rows of other event types. The engine processes records by (arrival, place, partition, offset).
Times are microseconds UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import EventType, Plan
from querylang.plan.value_types import Type
from runtime.arrow_types import arrow_type, has_column, made_once

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
        table = pa.concat_tables([part.table for part in parts], promote_options="default")
        if table.num_rows == max((len(part) for part in parts), default=0):  # the others add columns
            table = pa.table([_without_empty_chunks(column) for column in table.columns], schema=table.schema)
        return Arrivals(table.unify_dictionaries().combine_chunks())

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


def _without_empty_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for chunk in column.chunks if len(chunk)], column.type)
