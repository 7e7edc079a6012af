"""Local files that Arrow opens by itself: it writes them without a copy in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet


def parquet_writer(path: Path, schema: pa.Schema, **settings: Any) -> pa.parquet.ParquetWriter:
    """A writer of a new Parquet file; `settings`: of pyarrow's writer."""
    return pa.parquet.ParquetWriter(path, schema, **settings)


def csv_writer(path: Path, schema: pa.Schema) -> pa.csv.CSVWriter:
    """A writer of a new CSV file."""
    return pa.csv.CSVWriter(path, schema)


def parquet_rows(path: Path) -> int:
    """How many rows a Parquet file has."""
    return int(pa.parquet.read_metadata(path).num_rows)


def new_bytes(path: Path) -> pa.NativeFile:
    """A new file for Arrow's streams."""
    return pa.OSFile(str(path), "wb")


def mapped_bytes(path: Path) -> pa.NativeFile:
    """A file of Arrow's streams, whose pages are read when they are needed."""
    return pa.memory_map(str(path))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a new Parquet file."""
    pa.parquet.write_table(table, path)
