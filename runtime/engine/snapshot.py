"""Snapshots: state as bytes, in a versioned container that every later release can read.

Layout: the magic, a version, the length of a JSON header, a checksum (CRC-32, begun with that
length) of all that follows, the header, then Arrow IPC streams, whose names and lengths the header
lists. Nothing is pickled.

States of many queries have many small tables with the same columns: these are one stream, and the
header is compressed. So an idle query costs some bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import InputError
from runtime.column_types import has_column
from runtime.columns.rows import joined
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count

MAGIC = b"ENSUE"
STATE_VERSION = 3
"""The newest version, of states with many tables. Others are of the second if queries share a
state, else of the first: older releases read them, too."""
MANY = 64
"""So many tables are stored together."""
ALIKE = "alike"
"""In the header, by title of a query whose state is not stored: the one whose state is equal."""

_PREFIX = struct.Struct("<5sHII")
# Threads would take longer to begin than the columns of a small table take.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class StateError(InputError):
    """State that this release cannot restore; the message names what differs."""


def encode(header: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    """Plain data and named tables as one value."""
    if len(tables) >= MANY:
        return _encoded_together(header, tables)
    streams = {name: _to_ipc(table) for name, table in tables.items()}
    listed = [[name, len(stream)] for name, stream in streams.items()]
    text = json.dumps({"header": header, "tables": listed}).encode()
    body = b"".join([text, *streams.values()])
    return _with_prefix(2 if header.get(ALIKE) else 1, len(text), body)


def _encoded_together(header: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    """Tables with the same columns as one stream."""
    alike: dict[bytes, list[str]] = {}
    for name, table in tables.items():
        alike.setdefault(table.schema.serialize().to_pybytes(), []).append(name)
    streams = [_to_ipc(joined([tables[name] for name in names])) for names in alike.values()]
    listed = [
        [names, [len(tables[name]) for name in names], len(stream)]
        for names, stream in zip(alike.values(), streams, strict=True)
    ]
    text = zlib.compress(json.dumps({"header": header, "streams": listed}).encode(), level=1)
    return _with_prefix(STATE_VERSION, len(text), b"".join([text, *streams]))


def _with_prefix(version: int, length: int, body: bytes) -> bytes:
    return _PREFIX.pack(MAGIC, version, length, zlib.crc32(body, length)) + body


def decode(data: bytes) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The inverse of `encode`; raises StateError for anything else, a container of another version
    by name."""
    if len(data) < _PREFIX.size:
        raise StateError("this is not state of Ensue: too short")
    magic, version, length, checksum = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise StateError("this is not state of Ensue")
    if version not in range(1, STATE_VERSION + 1):
        raise StateError(f"state of version {version}; this release reads versions 1 to {STATE_VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    if zlib.crc32(body, length) != checksum:
        raise StateError("this state is damaged: its checksum does not fit")
    try:
        return _read(body, length) if version < STATE_VERSION else _read_together(body, length)
    except (DamagedJson, ValueError, zlib.error, pa.ArrowException) as error:
        raise StateError(f"this state cannot be read: {error}") from error


class _Index(TypedDict):
    header: dict[str, Any]
    tables: list[tuple[str, Count]]


def _read(body: memoryview, length: int) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    index, at = json_of_text(body[:length], _Index), length
    tables = {}
    for name, size in index["tables"]:
        tables[name] = _of_ipc(body[at : at + size])
        at += size
    return index["header"], tables


class _IndexTogether(TypedDict):
    """streams: the names of tables, how many rows each has, and the length of their stream"""

    header: dict[str, Any]
    streams: list[tuple[list[str], list[Count], Count]]


def _read_together(body: memoryview, length: int) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    index, at = json_of_text(zlib.decompress(body[:length]), _IndexTogether), length
    tables = {}
    for names, counts, size in index["streams"]:
        table, first = _of_ipc(body[at : at + size]), 0
        if len(names) != len(counts) or sum(counts) != len(table):
            raise ValueError(f"a table has {len(table)} rows, not those of its {len(names)} parts")
        for name, count in zip(names, counts, strict=True):
            tables[name] = table.slice(first, count)
            first += count
        at += size
    return index["header"], tables


def _of_ipc(stream: memoryview) -> pa.Table:
    table = pa.ipc.open_stream(pa.py_buffer(stream), options=_READ).read_all()
    table.validate(full=True)  # kernels read columns without looking at bounds
    return table


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# Refuse saved state whose content cannot be, before kernels read it without looking at bounds. A
# checksum finds damage. These checks find what was written wrongly, or on purpose.


def fitted(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """A saved table with the columns that it has to have; ValueError for others."""
    if sorted(table.column_names) != sorted(schema.names):
        raise ValueError(f"'{name}' has the columns {table.column_names}, not {schema.names}")
    return table.select(schema.names).cast(schema)


def integer(value: object) -> int:
    """A saved time; TypeError or ValueError for anything that is not one of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a time")
    return int(np.int64(value))


def refuse_nulls(table: pa.Table, columns: Iterable[str], name: str) -> None:
    """ValueError for a null in one of these columns, which kernels read as numbers."""
    for column in columns:
        if has_column(table, column) and table.column(column).null_count:
            raise ValueError(f"'{name}' has a null in '{column}'")


def refuse_outside(table: pa.Table, column: str, least: int, most: int, name: str) -> None:
    """ValueError for a number in the column that is not from `least` to `most`."""
    if len(table):
        found = pc.min_max(table.column(column)).as_py()
        if found["min"] < least or found["max"] > most:
            raise ValueError(f"'{name}' has a number in '{column}' that is not from {least} to {most}")


def refuse_other_waits(members: pa.Table, terms: int) -> None:
    """ValueError if pending matches are not numbered from 0, each with one latest event."""
    refuse_outside(members, "_term", 0, terms - 1, "waits")
    refuse_outside(members, "_wait", 0, len(members) - 1, "waits")
    wait = members.column("_wait").to_numpy()
    latest = wait[members.column("_is_latest").to_numpy(zero_copy_only=False)]
    numbers = np.unique(wait)
    if not np.array_equal(numbers, np.arange(len(numbers))) or not np.array_equal(numbers, np.unique(latest)):
        raise ValueError("'waits' has a pending match without a number or without a latest event")
