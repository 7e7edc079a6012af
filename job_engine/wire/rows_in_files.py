"""Packed rows that pass from task to task in files, where all tasks run on one machine.

Through Spark every byte is copied to the JVM, into a file of the shuffle, into a sorter, into Arrow
and back. Here Spark only gets where each row is. When a micro-batch has ended, its files are
removed: a repeated one packs its rows again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from job_engine.places.local_path import LocalPath, temporary_file
from runtime.json_reader import json_of_text
from runtime.json_shapes import Count

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
