"""How columns get from a source to a bucket: packed, one binary value a bucket.

Takes `Arrivals` as a reader made them; gives rows `(bucket, data)`, and on the other side the Arrivals again. Only
these rows go through the shuffle: the JVM never sees a record. What no query wants stays behind and is counted.
Columns that hold one value in a whole batch (a file's name, a null text) travel once, in the schema. Every bucket gets
one row a batch, with records or not: it tells how far the batch has brought each source partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.columns.arrivals import SHAPE_FIELDS, SYSTEM_FIELDS, Arrivals, RecordKind, arrivals_schema
from runtime.results.ledger import Account, ledger_table
from runtime.results.schemas import LEDGER_SCHEMA
from spark_backend.operator.job_clock import Heard
from spark_backend.wire.container import pack, unpack
from spark_backend.wire.partition_groups import EVERY_BUCKET, PartitionGroup, Route

PACKED_VERSION = 2
PACKED_SCHEMA = pa.schema([("bucket", pa.int32()), ("data", pa.binary())])
PACKED_DDL = "bucket int, data binary"
_USE = "packed"
_CONSTANTS = b"ensue.constants"
HOME = 0
"""The bucket in which what every bucket gets is counted."""


CONTROL = "control"
"""The name of the control stream; no source of events has it."""


class Call(StrEnum):
    """What a row without records asks of a bucket; a later one asks for all that the ones before it do."""

    START = "start"
    """To look at its clock: no timeout fires before a bucket has been called once."""
    CATCH_UP = "catch-up"
    """To take what waits for other sources: all that was there is read."""
    FLUSH = "flush"
    """To take everything, and to let time run out."""


@dataclass(frozen=True, slots=True)
class Part:
    """Records for one partition group; `is_copy`: every bucket has these, and bucket HOME counts them.

    `source`: whose they are, as the clock tells sources apart. `place`: where it stands among all of them.
    """

    group: int
    is_copy: bool
    source: str
    place: int
    arrivals: Arrivals


@dataclass(frozen=True, slots=True)
class Packed:
    """What one row says: how far it brings the clocks of sources, a call or None, records, accounts of others."""

    heard: tuple[Heard, ...]
    call: Call | None
    parts: tuple[Part, ...]
    ledger: pa.Table


@dataclass(frozen=True, slots=True)
class _Piece:
    group: int
    is_copy: bool
    data: bytes


def pack_arrivals(
    arrivals: Arrivals,
    groups: Sequence[PartitionGroup],
    buckets: int,
    *,
    source: str = "table",
    place: int = 0,
    is_control: bool = False,
    by_partition: bool = True,
) -> pa.RecordBatch:
    """A batch of records (at least one) as one row a bucket; `source`, `place`: see `Part`.

    `is_control`: they are of the control stream and tell nothing about how far the events have come. `by_partition`
    false: all of the source is read in order of arrival, as one.
    """
    pieces: list[list[_Piece]] = [[] for _ in range(buckets)]
    account = Account()
    varying, constants = _without_constants(arrivals.table)
    for group in groups:
        route = group.route(arrivals, buckets)
        account.update(route.account)
        for bucket, is_copy, table in _split(varying, route, buckets):
            pieces[bucket].append(_Piece(group.number, is_copy, _to_ipc(table, constants)))
    header = {"source": CONTROL if is_control else source, "place": place, "heard": [], "call": None}
    if not is_control:
        header["heard"] = [[source, *item] for item in _heard(arrivals, by_partition, "_partition" in constants)]
    counts = ledger_table(account).to_pylist()
    return _batch([_row(header, pieces[bucket], ledger=counts if bucket == HOME else []) for bucket in range(buckets)])


def pack_signal(buckets: int, call: Call) -> pa.RecordBatch:
    """A call for every bucket without a record."""
    return _batch([_row({"source": "", "place": 0, "heard": [], "call": str(call)}, [])] * buckets)


def unpack_row(data: bytes, plan: Plan) -> Packed:
    """The inverse of packing, for one row; raises ContainerError for a value of another release."""
    header, parts = unpack(_USE, PACKED_VERSION, data)
    schema = arrivals_schema(plan)
    restored = tuple(
        Part(group, is_copy, header["source"], header["place"], Arrivals(_from_ipc(part, schema)))
        for (group, is_copy), part in zip(header["parts"], parts, strict=True)
    )
    ledger = pa.Table.from_pylist(header["ledger"], schema=LEDGER_SCHEMA)
    call = None if header["call"] is None else Call(header["call"])
    return Packed(tuple(Heard(*item) for item in header["heard"]), call, restored, ledger)


def _heard(arrivals: Arrivals, by_partition: bool, is_one: bool) -> list[tuple[int | None, int]]:
    """The largest arrival of each partition; what could not be read says nothing of its partition, unless there is but one."""
    arrival, partition = arrivals.system("arrival"), arrivals.system("partition")
    if not by_partition or is_one:
        return [(int(partition[0]) if by_partition else None, int(arrival.max()))]
    readable = arrivals.system("kind") != RecordKind.MALFORMED
    present, numbers = np.unique(partition[readable], return_inverse=True)
    latest = np.full(len(present), arrival.min())
    np.maximum.at(latest, numbers, arrival[readable])
    return list(zip(present.tolist(), latest.tolist(), strict=True))


def _row(header: dict[str, Any], pieces: Sequence[_Piece], ledger: Sequence[dict[str, Any]] = ()) -> bytes:
    own = {"ledger": list(ledger), "parts": [[piece.group, piece.is_copy] for piece in pieces]}
    return pack(_USE, PACKED_VERSION, header | own, [piece.data for piece in pieces])


def _batch(rows: Sequence[bytes]) -> pa.RecordBatch:
    columns = [pa.array(range(len(rows)), pa.int32()), pa.array(rows, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def _split(table: pa.Table, route: Route, buckets: int) -> Iterator[tuple[int, bool, pa.Table]]:
    """The rows of each bucket, order kept: one stable sort of small integers and one gather, not a filter a bucket."""
    is_copy = route.bucket == EVERY_BUCKET
    everywhere = np.flatnonzero(route.is_wanted & is_copy)
    if len(everywhere):
        copies = table.take(pa.array(everywhere))
        yield from ((place, True, copies) for place in range(buckets))
    own = np.where(route.is_wanted & ~is_copy, route.bucket, buckets)
    order = np.argsort(_narrow(own, buckets), kind="stable")
    ends = np.cumsum(np.bincount(own, minlength=buckets))[:buckets]
    gathered = table.take(pa.array(order[: ends[-1]]))
    for place, end in enumerate(ends):
        start = 0 if place == 0 else ends[place - 1]
        if end > start:
            yield place, False, gathered.slice(start, end - start)


def _narrow(bucket: NDArray[np.int64], buckets: int) -> NDArray[Any]:
    """As 8 or 16 bits: numpy sorts those by radix."""
    return bucket.astype(np.uint8 if buckets < 1 << 8 else np.uint16 if buckets < 1 << 16 else np.int64)


def _without_constants(table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """The columns that vary, and the value of each system column that does not; null columns of fields are dropped.

    Offsets always stay: a table without a column would have no rows.
    """
    constants: dict[str, Any] = {}
    for field in (*SYSTEM_FIELDS, *SHAPE_FIELDS):
        if field.name != "_offset" and field.name in table.column_names and _is_constant(table.column(field.name)):
            constants[field.name] = table.column(field.name)[0].as_py()
    empty = {name for name in table.column_names if table.column(name).null_count == len(table)}
    kept = [name for name in table.column_names if name not in constants and name not in empty]
    return table.select(kept).combine_chunks(), constants


def _is_constant(column: pa.ChunkedArray) -> bool:
    if column.null_count:
        return column.null_count == len(column)
    first = column[0]
    return column[-1] == first and bool(pc.all(pc.equal(column, first)).as_py())


def _to_ipc(table: pa.Table, constants: dict[str, Any]) -> bytes:
    metadata = {_CONSTANTS: json.dumps({"rows": table.num_rows, "values": constants})}
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata(metadata)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return sink.getvalue().to_pybytes()


def _from_ipc(data: memoryview, schema: pa.Schema) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    stored = json.loads(table.schema.metadata[_CONSTANTS])
    rows, values = stored["rows"], stored["values"]
    names = set(table.column_names)
    shapes = [field for field in SHAPE_FIELDS if field.name in names or field.name in values]
    schema, columns = pa.schema([*schema, *shapes]), []
    for field in schema:
        if field.name in names:
            columns.append(table.column(field.name))
        elif values.get(field.name) is not None:
            columns.append(pa.repeat(pa.scalar(values[field.name], field.type), rows))
        else:
            columns.append(pa.nulls(rows, field.type))
    return pa.table(columns, schema=schema)
