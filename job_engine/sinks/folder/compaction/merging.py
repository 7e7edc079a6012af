"""Write the rows of several result files to one, in their order, with equal columns and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

import pyarrow as pa

from job_engine.places.arrow_files import parquet_rows, parquet_writer
from querylang.errors import InputError
from runtime.reading.formats.parquet_files import open_parquet
from runtime.results.for_users import parquet_settings

ROWS = 1 << 17
"""Rows of a row group of Parquet, unless they are large."""

BYTES = 64 << 20
"""Bytes, as Parquet stores them before compression, after which a row group is written."""


@dataclass(frozen=True, slots=True)
class Merger:
    """How files of a format become one.

    head: what files have to have in common; raises InputError for a damaged file
    merge: writes the rows of files to a new one
    """

    head: Callable[[Path], bytes]
    merge: Callable[[Sequence[Path], Path], None]


def _parquet_head(path: Path) -> bytes:
    try:
        with open_parquet(path) as file:
            return bytes(file.schema_arrow.serialize().to_pybytes())
    except pa.ArrowException as error:
        raise InputError(f"{path.name}: is not a Parquet file: {error}") from error


def _merge_parquet(paths: Sequence[Path], out: Path) -> None:
    with open_parquet(paths[0]) as first:
        schema = first.schema_arrow
    rows = 0
    with parquet_writer(out, schema, **parquet_settings(schema)) as writer:
        for table in _row_groups(paths):
            writer.write_table(table)
            rows += len(table)
    expected = sum(map(parquet_rows, paths))
    assert rows == expected, f"{rows} of {expected} rows were copied"


def _row_groups(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """The rows of all files, in tables that are neither small nor large."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for path in paths:
        with open_parquet(path) as file:
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                waiting.append(file.read_row_group(number))
                rows, size = rows + group.num_rows, size + group.total_byte_size
                if rows >= ROWS or size >= BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _csv_head(path: Path) -> bytes:
    """The first line with its end; names in quotes may have line ends in them."""
    head = b""
    with path.open("rb") as file:
        for line in file:
            head += line
            if head.count(b'"') % 2 == 0:
                break
    return head


def _merge_csv(paths: Sequence[Path], out: Path) -> None:
    head = _csv_head(paths[0])
    with out.open("wb") as target:
        target.write(head)
        for path in paths:
            _append(target, path, after=len(head))


def _no_head(_path: Path) -> bytes:
    return b""


def _merge_json(paths: Sequence[Path], out: Path) -> None:
    with out.open("wb") as target:
        for path in paths:
            _append(target, path)


def _append(target: BinaryIO, path: Path, after: int = 0) -> None:
    with path.open("rb") as file:
        file.seek(after)
        copyfileobj(file, target, 1 << 20)


MERGERS: Mapping[str, Merger] = {
    "parquet": Merger(_parquet_head, _merge_parquet),
    "csv": Merger(_csv_head, _merge_csv),
    "json": Merger(_no_head, _merge_json),
}
"""By the format of a sink; others have files that only their own tools may touch."""
