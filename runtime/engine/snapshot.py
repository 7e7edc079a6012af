"""Snapshots: state as bytes, in a versioned container that every later release can read.

Layout: the magic, a version, the length of a JSON header, a checksum (CRC-32, begun with that
length) of all that follows, the header, then Arrow IPC streams, whose names and lengths the header
lists. Nothing is pickled.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, TypedDict

import pyarrow as pa

from querylang.errors import InputError
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count

MAGIC = b"ENSUE"
STATE_VERSION = 2
"""The newest version. States in which no query shares with another are of the first, which older
releases read, too."""
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
    streams = {name: _to_ipc(table) for name, table in tables.items()}
    listed = [[name, len(stream)] for name, stream in streams.items()]
    text = json.dumps({"header": header, "tables": listed}).encode()
    body = b"".join([text, *streams.values()])
    version = STATE_VERSION if header.get(ALIKE) else 1
    return _PREFIX.pack(MAGIC, version, len(text), zlib.crc32(body, len(text))) + body


def decode(data: bytes) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The inverse of `encode`; raises StateError for anything else, a container of another version
    by name."""
    if len(data) < _PREFIX.size:
        raise StateError("this is not state of Ensue: too short")
    magic, version, length, checksum = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise StateError("this is not state of Ensue")
    if version not in (1, STATE_VERSION):
        raise StateError(f"state of version {version}; this release reads versions 1 to {STATE_VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    if zlib.crc32(body, length) != checksum:
        raise StateError("this state is damaged: its checksum does not fit")
    try:
        return _read(body, length)
    except (DamagedJson, ValueError, pa.ArrowException) as error:
        raise StateError(f"this state cannot be read: {error}") from error


class _Index(TypedDict):
    header: dict[str, Any]
    tables: list[tuple[str, Count]]


def _read(body: memoryview, length: int) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    index, at = json_of_text(body[:length], _Index), length
    tables = {}
    for name, size in index["tables"]:
        tables[name] = pa.ipc.open_stream(pa.py_buffer(body[at : at + size]), options=_READ).read_all()
        tables[name].validate(full=True)  # kernels read columns without looking at bounds
        at += size
    return index["header"], tables


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
