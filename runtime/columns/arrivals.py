"""Columns of arrivals: what every source gives and the engine takes.

One Arrow table holds a batch of records of any number of event types, in any order. System columns start with an
underscore; each pair of a field name and a type that some event type has is one more column, `name:type`, null on the
rows of the other event types. Readers fill it (`runtime.reading.tables`), transports carry it, the engine orders it by
(arrival, source, partition, offset). Times are microseconds UTC.
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
from runtime.arrow_types import arrow_type

BATCH_VERSION = 1

AT_THE_END = 2**60
"""The step of what the end of an input brings: behind every record."""


class RecordKind(IntEnum):
    """What a record is, where it is no event of the plan; an event's kind is its type's index in `Plan.events`."""

    TICK = -1
    CONTROL = -2
    MALFORMED = -3
    UNKNOWN_TYPE = -4


class Shape(IntEnum):
    """How an event lies in time: at its start alone, from its start to its end, or as one edge of what does."""

    POINT = 0
    INTERVAL = 1
    START_EDGE = 2
    END_EDGE = 3


SYSTEM_FIELDS: tuple[pa.Field, ...] = (
    pa.field("_kind", pa.int16(), nullable=False),
    pa.field("_arrival", pa.int64(), nullable=False),
    pa.field("_source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("_partition", pa.int32(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_source_time", pa.int64(), nullable=False),
    pa.field("_text", pa.string()),
)


SHAPE_FIELDS: tuple[pa.Field, ...] = (pa.field("_end", pa.int64()), pa.field("_shape", pa.int8()))
"""System columns of sources whose events may be intervals; absent elsewhere."""


def column_name(field: str, type_: Type) -> str:
    """The column that holds a field: event types that agree on name and type share it."""
    return f"{field}:{type_}"


def field_columns(events: Iterable[EventType]) -> dict[str, Type]:
    """The field columns of a set of event types, in order of first appearance."""
    return {column_name(field.name, field.type): field.type for event in events for field in event.fields}


def arrivals_schema(plan: Plan) -> pa.Schema:
    """The schema of `Arrivals.table` for a plan; `_text` and field columns that are null throughout may be left out."""
    fields = [pa.field(name, arrow_type(type_, plan)) for name, type_ in field_columns(plan.events).items()]
    return pa.schema([*SYSTEM_FIELDS, *fields])


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A batch of records.

    `_kind`: index into `Plan.events`, or a `RecordKind`. `_arrival`: arrival time; along the offsets of one source partition
    it never decreases (readers clamp it). `_source`, `_partition`, `_offset`: where the record came from; together
    unique; the source is dictionary-encoded. `_source_time`: the time in the source's declared column, NO_TIME where
    there is none. `_text`: the control event, the reason why the record could not be read (with the record), or the
    unknown type's name; the column may be absent. `_end`, `_shape`: where an event that is no point ends, NO_TIME for the
    others, and its `Shape`; absent where all are points.
    """

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @staticmethod
    def empty(plan: Plan) -> Arrivals:
        """No records, with the columns of the plan."""
        return Arrivals(arrivals_schema(plan).empty_table())

    @staticmethod
    def concat(parts: Sequence[Arrivals]) -> Arrivals:
        """All records of all parts; columns that a part does not have are null there."""
        table = pa.concat_tables([part.table for part in parts], promote_options="default")
        if table.num_rows == max((len(part) for part in parts), default=0):  # the others only brought columns
            table = pa.table([_without_empty_chunks(column) for column in table.columns], schema=table.schema)
        return Arrivals(table.unify_dictionaries().combine_chunks())

    def take(self, rows: NDArray[np.int64]) -> Arrivals:
        """The records at these positions, in this order."""
        return Arrivals(self.table.take(pa.array(rows)))

    def system(self, name: str) -> NDArray[np.int64]:
        """A numeric system column (`kind`, `arrival`, `partition`, `offset`, `source_time`) as a numpy array."""
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
        """The inverse of `to_bytes`; raises ValueError for another version."""
        table = pa.ipc.open_stream(data).read_all()
        version = (table.schema.metadata or {}).get(b"ensue.batch", b"?").decode()
        if version != str(BATCH_VERSION):
            raise ValueError(f"batch of version {version}; this release reads version {BATCH_VERSION}")
        return Arrivals(table)


def _without_empty_chunks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for chunk in column.chunks if len(chunk)], column.type)
