"""Packed rows: a batch of records as one binary value per bucket, the only rows of the shuffle.

The JVM never sees a record. Records that no query needs are not sent, but counted. Every bucket
gets one row per batch, with records or without: it reports the progress of the source partitions.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from job_engine.local_path import LocalPath, temporary_file
from job_engine.wire.partition_groups import EVERY_BUCKET, PartitionGroup, Route, refusing_group
from job_engine.wire.reports import (
    EACH_PARTITION,
    ProgressBy,
    Report,
    SourceProgress,
    Unread,
    UnreadFiles,
    reports_to_plain,
    source_progress,
)
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan
from runtime.admission import Outcome, furthest_time
from runtime.column_types import has_column
from runtime.columns.arrivals import MOVED_FIELD, SHAPE_FIELDS, SYSTEM_FIELDS, Arrivals, arrivals_schema
from runtime.instants import NO_TIME
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count
from runtime.results.ledger import RECEIVED, Account, ledger_table
from runtime.results.schemas import LEDGER_SCHEMA, NO_LEDGER

# A JSON header and byte strings in one versioned binary value: packed rows and saved state.
#
# Every use has its own word and version: a value of another use or release is refused by name
# instead of being misread. The content is plain data, never pickled classes.

_BEGINNING = b"ENSUE\x02"
_PREFIX = struct.Struct("<6sII")


class ContainerError(ValueError):
    """The bytes are not a container, or one of another use or version, or they are damaged."""


def pack(
    use: str, version: int, header: Mapping[str, Any], parts: Sequence[bytes], *, is_stored: bool = False
) -> bytes:
    """One value; `header` is anything that JSON can hold, `parts` follow it in order.

    is_stored: the checksum covers the parts, too; without it, the header only
    """
    lengths = [len(part) for part in parts]
    outer = {"use": use, "version": version, "header": dict(header), "lengths": lengths}
    text = json.dumps(outer).encode()
    checksum = _checksum(text, parts if is_stored else ())
    return b"".join((_PREFIX.pack(_BEGINNING, len(text), checksum), text, *parts))


class _Outer(TypedDict):
    use: str
    version: int
    header: dict[str, Any]
    lengths: list[Count]


def unpack(use: str, version: int, data: bytes) -> tuple[dict[str, Any], list[memoryview]]:
    """The inverse of `pack`, without copying the parts.

    Raises ContainerError for another use or version, and for damage.
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size or bytes(view[: len(_BEGINNING)]) != _BEGINNING:
        raise ContainerError(f"not a {use} value of this release of Ensue")
    _, length, checksum = _PREFIX.unpack_from(view)
    start = _PREFIX.size
    text, content = bytes(view[start : start + length]), view[start + length :]
    # of a stored value with parts, only the second one fits
    if len(text) < length or (checksum != _checksum(text, ()) and checksum != _checksum(text, (content,))):
        raise ContainerError(f"this {use} value is damaged: its checksum does not fit")
    try:
        outer = json_of_text(text, _Outer)
    except DamagedJson as error:
        raise ContainerError(f"this {use} value is damaged: {error}") from error
    if outer["use"] != use or outer["version"] != version:
        raise ContainerError(
            f"{outer['use']} value of version {outer['version']}; this release reads {use} of version {version}"
        )
    if sum(outer["lengths"]) != len(content):
        raise ContainerError(f"a {use} value is truncated: {len(content)} of {sum(outer['lengths'])} bytes")
    ends = [*accumulate(outer["lengths"])]
    return outer["header"], [content[end - size : end] for end, size in zip(ends, outer["lengths"], strict=True)]


def _checksum(text: bytes, parts: Sequence[bytes | memoryview]) -> int:
    checksum = zlib.crc32(text, len(text))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


# Tables of records as Arrow IPC bytes; columns with one value are sent once, in the schema.
#
# A source's name, its partition or a null text are usually the same for a whole batch.

_CONSTANTS = b"ensue.constants"
_OPTIONAL = (*SHAPE_FIELDS, MOVED_FIELD)
"""System columns that are sent only if a batch has them."""


def split_constants(table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """The columns that vary, and the values of the system columns that do not.

    Fields that are null throughout are dropped. `_offset` always stays: without a column a table
    would have no rows.
    """
    constants: dict[str, Any] = {}
    for column in (*SYSTEM_FIELDS, *_OPTIONAL):
        if column.name != "_offset" and has_column(table, column.name) and _is_constant(table.column(column.name)):
            constants[column.name] = table.column(column.name)[0].as_py()
    empty = {name for name in table.column_names if table.column(name).null_count == len(table)}
    kept = [name for name in table.column_names if name not in constants and name not in empty]
    return table.select(kept).combine_chunks(), constants


def _is_constant(column: pa.ChunkedArray) -> bool:
    if column.null_count:
        return column.null_count == len(column)
    first = column[0]
    return column[-1] == first and bool(pc.all(pc.equal(column, first)).as_py())


def to_bytes(table: pa.Table, constants: dict[str, Any]) -> bytes:
    """An Arrow IPC stream with the constants as metadata of its schema."""
    metadata = {_CONSTANTS: json.dumps({"rows": table.num_rows, "values": constants})}
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata(metadata)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return sink.getvalue().to_pybytes()


class _Stored(TypedDict):
    rows: Count
    values: dict[str, Any]


def from_bytes(data: memoryview, schema: pa.Schema) -> pa.Table:
    """The table with all columns of `schema`, and the optional ones that were sent."""
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    stored = json_of_text(table.schema.metadata[_CONSTANTS], _Stored)
    rows, values = stored["rows"], stored["values"]
    names = set(table.column_names)
    optional = [column for column in _OPTIONAL if column.name in names or column.name in values]
    schema, columns = pa.schema([*schema, *optional]), []
    for column in schema:
        if column.name in names:
            columns.append(table.column(column.name))
        elif values.get(column.name) is not None:
            columns.append(pa.repeat(pa.scalar(values[column.name], column.type), rows))
        else:
            columns.append(pa.nulls(rows, column.type))
    return pa.table(columns, schema=schema)


PACKED_VERSION = 4
PACKED_SCHEMA = pa.schema([("bucket", pa.int32()), ("data", pa.binary())])
PACKED_DDL = "bucket int, data binary"
_USE = "packed"

HOME = 0
"""The bucket that counts and reports what all buckets have in common."""

CONTROL = "control"
"""The name of the control stream; no source of events may have it."""


COMMANDS = "ensue control"
"""The name of commands as a source; no source of events may have it."""


class Signal(StrEnum):
    """What a row without records asks of a bucket; each signal includes those before it."""

    START = "start"
    """Look at the clock. Spark fires no timeout for a bucket that has never been called."""
    CATCH_UP = "catch-up"
    """Process the records held for other sources: all available input has been read."""
    FLUSH = "flush"
    """Process all records, then advance time until no timer is left."""


Coordinates = tuple[str, int, int]
"""Of a record: what it was read from, partition, offset."""


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """Records of one source for one partition group.

    group: number of the group
    is_copy: whether every bucket has these records; bucket HOME counts them
    source: name of the source in the job's clock
    rank: place of the source among all; records of equal coordinates are ordered by it
    arrivals: the records
    refuses: whether this group reports those that no query can read
    counted: the titles of the queries that count them as held, by the last arrivals of epochs; none
        = they are not counted, None = for all queries of the earliest epoch
    """

    group: int
    is_copy: bool
    source: str
    rank: int
    arrivals: Arrivals
    refuses: bool
    counted: tuple[tuple[int, tuple[str, ...]], ...] | None = None

    def taken(self, rows: NDArray[np.int64]) -> GroupRecords:
        """The records in these rows."""
        return replace(self, arrivals=self.arrivals.take(rows))

    def chosen(self, rows: NDArray[np.bool_]) -> GroupRecords:
        """The records that are chosen; `rows`: by record."""
        return self.taken(np.flatnonzero(rows))

    def coordinates(self) -> list[Coordinates]:
        """Where the records were read."""
        table = self.arrivals.table.select(["_source", "_partition", "_offset"])
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that is not a table.

    source: its name, as the records of a file have it
    reason: why it cannot be read
    """

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class BucketInput:
    """The content of one packed row.

    progress: of the source partitions in the batch
    signal: None = the row carries records
    records: per partition group
    ledger: counts of records that were not sent (LEDGER_SCHEMA); only in bucket HOME
    reports: of the reader; only in bucket HOME
    refused: files that are not tables, with the reasons; only in bucket HOME
    commands: as plain data; those that are control events have a record, too
    latest: all records arrived later than this, µs, and are refused; None = they are not
    newest: the furthest source time of the batch, µs; NO_TIME = it has none
    unread: what the micro-batch leaves of listed files
    """

    progress: tuple[SourceProgress, ...]
    signal: Signal | None
    records: tuple[GroupRecords, ...]
    ledger: pa.Table
    reports: tuple[Report, ...] = ()
    refused: tuple[RefusedFile, ...] = ()
    commands: tuple[Mapping[str, Any], ...] = ()
    latest: int | None = None
    newest: int = NO_TIME
    unread: Unread = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _PackedRecords:
    group: int
    is_copy: bool
    data: bytes


def pack_arrivals(
    arrivals: Arrivals,
    groups: Sequence[PartitionGroup],
    buckets: int,
    *,
    source: str = "table",
    rank: int = 0,
    is_control: bool = False,
    counted: ProgressBy = EACH_PARTITION,
    latest: int | None = None,
) -> pa.RecordBatch:
    """A batch of at least one record as one row per bucket; `source`, `rank` as in GroupRecords.

    is_control: these are control events, which report no progress
    counted: how the progress of the source is counted
    latest: as in `BucketInput`; such records report no progress
    """
    per_bucket: list[list[_PackedRecords]] = [[] for _ in range(buckets)]
    account = Account()
    varying, constants = split_constants(arrivals.table)
    refusing = 0 if is_control else refusing_group(groups, source)
    for group in groups:
        route = group.route(arrivals, buckets, refuses=group.number == refusing)
        account.update(route.account)
        for bucket, is_copy, table in _split(varying, route, buckets):
            per_bucket[bucket].append(_PackedRecords(group.number, is_copy, to_bytes(table, constants)))
    stream = CONTROL if is_control and source != COMMANDS else source
    header = {"source": stream, "rank": rank, "progress": [], "signal": None, "refusing": refusing}
    if latest is not None:
        header["latest"] = latest
    elif not is_control:
        header["progress"] = [item.to_plain() for item in source_progress(arrivals, source, counted)]
        header["newest"] = furthest_time(arrivals.table, chain.from_iterable(group.selectors for group in groups))
    counts = ledger_table(account).to_pylist()
    rows = enumerate(per_bucket)
    return _batch([_row(header, records, ledger=counts if bucket == HOME else []) for bucket, records in rows])


def pack_signal(buckets: int, signal: Signal) -> pa.RecordBatch:
    """A row per bucket that holds a signal and no records."""
    return _batch([_row({"source": "", "rank": 0, "progress": [], "signal": str(signal)}, [])] * buckets)


def pack_commands(buckets: int, commands: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """A row per bucket that holds commands as plain data, and no records."""
    header = {"source": COMMANDS, "rank": 0, "progress": [], "signal": None, "commands": list(commands)}
    return _batch([_row(header, [])] * buckets)


def pack_progress(buckets: int, progress: Sequence[SourceProgress]) -> pa.RecordBatch:
    """A row per bucket that advances source partitions without records."""
    header = {"source": "", "rank": 0, "progress": [item.to_plain() for item in progress], "signal": None}
    return _batch([_row(header, [])] * buckets)


def pack_unread(buckets: int, unread: Unread) -> pa.RecordBatch:
    """A row per bucket that says what is left of listed files, and holds no records."""
    plain = {source: None if files is None else files.to_plain() for source, files in unread.items()}
    header = {"source": "", "rank": 0, "progress": [], "signal": None, "unread": plain}
    return _batch([_row(header, [])] * buckets)


def pack_reports(reports: Sequence[Report]) -> pa.RecordBatch:
    """A row for bucket HOME that holds reports and no records."""
    header = {"source": "", "rank": 0, "progress": [], "signal": None}
    return _batch([_row(header | {"reports": reports_to_plain(reports)}, [])])


def pack_refused(file: RefusedFile, queries: Sequence[str]) -> pa.RecordBatch:
    """A row for bucket HOME that holds a file that is not a table.

    queries: titles of those that count it, as one record
    """
    words = (RECEIVED, Outcome.MALFORMED_FILE.word)
    account = Account({(query, file.source, word): 1 for query in queries for word in words})
    header = {"source": "", "rank": 0, "progress": [], "signal": None, "refused": [[file.source, file.reason]]}
    return _batch([_row(header, [], ledger_table(account).to_pylist())])


def pack_lost(source: str, queries: Sequence[str], count: int = 1) -> pa.RecordBatch:
    """A row for bucket HOME that counts what is lost; a file is one, its records are unknown.

    source: its name, as the records of a file have it
    queries: titles of those that count it
    """
    account = Account({(query, source, "lost"): count for query in queries})
    header = {"source": "", "rank": 0, "progress": [], "signal": None}
    return _batch([_row(header, [], ledger_table(account).to_pylist())])


def unpack_row(data: bytes, plan: Plan) -> BucketInput:
    """The content of one row; raises ContainerError for a row of another release."""
    header, parts = unpack(_USE, PACKED_VERSION, data)
    schema = arrivals_schema(plan)
    source, rank, refusing = header["source"], header["rank"], header.get("refusing")
    records = tuple(
        GroupRecords(group, is_copy, source, rank, Arrivals(from_bytes(part, schema)), group == refusing)
        for (group, is_copy), part in zip(header["records"], parts, strict=True)
    )
    ledger = pa.Table.from_pylist(header["ledger"], schema=LEDGER_SCHEMA) if header["ledger"] else NO_LEDGER
    signal = None if header["signal"] is None else Signal(header["signal"])
    progress = tuple(map(SourceProgress.of_plain, header["progress"]))
    reports = tuple(Report(*item) for item in header.get("reports", ()))
    refused = tuple(RefusedFile(*item) for item in header.get("refused", ()))
    commands = tuple(header.get("commands", ()))
    unread = header.get("unread", {})
    return BucketInput(
        progress,
        signal,
        records,
        ledger,
        reports,
        refused,
        commands,
        header.get("latest"),
        header.get("newest", NO_TIME),
        {source: None if row is None else UnreadFiles.of_plain(row) for source, row in unread.items()},
    )


def _row(header: dict[str, Any], records: Sequence[_PackedRecords], ledger: Sequence[dict[str, Any]] = ()) -> bytes:
    own = {"ledger": list(ledger), "records": [[item.group, item.is_copy] for item in records]}
    return pack(_USE, PACKED_VERSION, header | own, [item.data for item in records])


def _batch(rows: Sequence[bytes]) -> pa.RecordBatch:
    columns = [pa.array(range(len(rows)), pa.int32()), pa.array(rows, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def _split(table: pa.Table, route: Route, buckets: int) -> Iterator[tuple[int, bool, pa.Table]]:
    """The records of each bucket in their order, copies apart.

    One stable sort of small integers and one gather cost less than a filter per bucket.
    """
    is_copy = route.bucket == EVERY_BUCKET
    everywhere = np.flatnonzero(route.is_wanted & is_copy)
    if len(everywhere):
        copies = table.take(pa.array(everywhere))
        yield from ((bucket, True, copies) for bucket in range(buckets))
    own = np.where(route.is_wanted & ~is_copy, route.bucket, buckets)
    order = np.argsort(_narrow(own, buckets), kind="stable")
    ends = np.cumsum(np.bincount(own, minlength=buckets))[:buckets]
    gathered = table.take(pa.array(order[: ends[-1]]))
    for bucket, end in enumerate(ends):
        start = 0 if bucket == 0 else ends[bucket - 1]
        if end > start:
            yield bucket, False, gathered.slice(start, end - start)


def _narrow(bucket: NDArray[np.int64], buckets: int) -> NDArray[Any]:
    """As 8 or 16 bits, which numpy sorts by radix."""
    return bucket.astype(np.uint8 if buckets < 1 << 8 else np.uint16 if buckets < 1 << 16 else np.int64)


# Packed rows that pass from task to task in files, where all tasks run on one machine.
#
# Through Spark every byte is copied to the JVM, into a file of the shuffle, into a sorter, into
# Arrow and back. Here Spark only gets where each row is. When a micro-batch has ended, its files
# are removed: a repeated one packs its rows again.

_MAGIC = b"ENSUE-ROW-IN-FILE\x01"

SMALL = 1 << 16
"""Bytes. A batch of fewer costs more in a file than through Spark."""


def remove_rows(folder: Path) -> None:
    """Remove all rows, after the micro-batch that they are of."""
    with suppress(FileNotFoundError):  # what cleans up temporary folders may have removed it
        for file in folder.iterdir():
            file.unlink(missing_ok=True)


def put_aside(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Batches of packed rows with places instead of the rows; small batches as they are."""
    for batch in batches:
        rows = batch.column(1)
        offsets, data = _offsets(rows), rows.buffers()[2]
        if data is None or offsets[-1] - offsets[0] < SMALL:
            yield batch
            continue
        path = _written(data.slice(offsets[0], offsets[-1] - offsets[0]), folder)
        places = [
            _MAGIC + json.dumps([path, start - offsets[0], end - start]).encode() for start, end in pairwise(offsets)
        ]
        yield batch.set_column(1, batch.schema.field(1), pa.array(places, pa.binary()))


def fetched(data: bytes) -> bytes:
    """A packed row, wherever it is."""
    if not data.startswith(_MAGIC):
        return data
    path, start, length = json_of_text(data[len(_MAGIC) :], tuple[str, Count, Count])
    with LocalPath(path).open("rb") as file:
        file.seek(start)
        found = file.read(length)
    if len(found) < length:
        raise OSError(f"{path}: {len(found)} bytes of a packed row that has {length}")
    return found


def _offsets(rows: pa.BinaryArray) -> list[int]:
    """Where each row begins in the data of all, and the end of the last one."""
    offsets: list[int] = memoryview(rows.buffers()[1]).cast("i").tolist()
    return offsets[rows.offset : rows.offset + len(rows) + 1]


def _written(data: pa.Buffer, folder: Path) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been cleaned up
    path = temporary_file(folder)
    with path.open("wb") as file:
        file.write(memoryview(data))
    return str(path)
