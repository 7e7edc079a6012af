"""Parquet files, one row group at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from runtime.reading.formats.raw_table import RawTable, of_columns


def read_parquet(path: Path, name: str, few_values: Collection[str]) -> Iterator[RawTable]:
    """The file's row groups; a file without any is one empty table.

    few_values: text columns with few different cells; they are read as dictionaries
    """
    schema = pa.parquet.read_schema(path)
    encoded = [part.name for part in schema if part.name in few_values and pa.types.is_string(part.type)]
    file = pa.parquet.ParquetFile(path, read_dictionary=encoded)
    first = 1
    for group in range(max(file.num_row_groups, 1)):
        columns = file.read_row_group(group) if file.num_row_groups else file.read()
        yield of_columns(name, columns, frozenset(columns.column_names), first)
        first += len(columns)
