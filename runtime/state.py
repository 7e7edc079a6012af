"""State as bytes: a versioned container of columns, readable by every later release.

Layout: the magic, a version, the length of a JSON header, the header, then Arrow IPC streams one after the other, whose names and
lengths the header lists. Nothing of ours is pickled; the header never mentions more of a query than its name.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from querylang.errors import InputError

MAGIC = b"ENSUE"
STATE_VERSION = 1
_PREFIX = struct.Struct("<5sHI")
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class StateError(InputError):
    """State that this release cannot go on from; the message names what differs."""


def encode(header: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> bytes:
    """One value that holds plain data and named tables."""
    streams = {name: _to_ipc(table) for name, table in tables.items()}
    listed = [[name, len(stream)] for name, stream in streams.items()]
    text = json.dumps({"header": header, "tables": listed}).encode()
    return b"".join([_PREFIX.pack(MAGIC, STATE_VERSION, len(text)), text, *streams.values()])


def decode(data: bytes) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """The inverse of `encode`; raises StateError for anything else, a container of another version by name."""
    if len(data) < _PREFIX.size:
        raise StateError("this is not state of Ensue: too short")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise StateError("this is not state of Ensue")
    if version != STATE_VERSION:
        raise StateError(f"state of version {version}; this release reads version {STATE_VERSION}")
    at = _PREFIX.size + length
    try:
        index = json.loads(data[_PREFIX.size : at])
        tables = {}
        for name, size in index["tables"]:
            tables[name] = pa.ipc.open_stream(pa.py_buffer(data)[at : at + size]).read_all()
            at += size
    except (ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
        raise StateError(f"this state is damaged: {error}") from None
    return index["header"], tables


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
