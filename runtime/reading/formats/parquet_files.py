"""Parquet files, in parts of bounded size.

A small file may unfold to any size: one long text in a dictionary, repeated a million times. So
sizes are found before columns are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from querylang.errors import InputError
from runtime.arrow_types import one_chunk
from runtime.columns.rows import counts_of
from runtime.reading.formats.asked import Asked, size_text
from runtime.reading.formats.long_rows import is_bytes_or_text, without_long_rows
from runtime.reading.formats.parquet_footer import ColumnChunk, column_chunks
from runtime.reading.formats.raw_table import RawTable, of_columns, refuse_repeated
from runtime.threads import thread_count

if TYPE_CHECKING:
    import pyarrow.parquet

_PART = 64 << 20
"""How much text a part may have, in bytes, unless a single row has more."""

_ROWS = 1 << 20
"""Most rows of a part, if none is asked for."""

_RECORDS, _TIMES = 16, 200
"""A file may unfold to so many of the longest records, or to so many times its size."""

_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 7: 16}
"""Bytes of one value, by the numbers of physical types in parquet.thrift."""


def open_parquet(path: Path | str, encoded: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
    """A file to be read, with times in microseconds; every reader of ours opens it here.

    encoded: columns of text that come as dictionaries

    Times of 96 bits, which Spark writes, would be nanoseconds otherwise: these hold the years 1677
    to 2262 only, and Arrow gives any other year as one of them.
    """
    import pyarrow.parquet  # slow to load, and of no use to other tables

    return pyarrow.parquet.ParquetFile(path, read_dictionary=list(encoded), coerce_int96_timestamp_unit="us")


def read_parquet(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    """The file's row groups, large ones in parts; a file without any is one empty table."""
    with open_parquet(path) as file:
        schema = file.schema_arrow
    refuse_repeated(schema.names, name)
    encoded = [part.name for part in schema if part.name in asked.few_values and pa.types.is_string(part.type)]
    with open_parquet(path, encoded) as file:
        size = _Size(path, asked)
        groups = column_chunks(path)
        for chunks in groups:
            size.add(_fixed_size(chunks))
        first = 1
        for group, chunks in enumerate(groups):
            for columns in _parts(path, file, group, chunks, encoded, size):
                yield without_long_rows(of_columns(name, columns, frozenset(columns.column_names), first), asked)
                first += len(columns)
        if not file.num_row_groups:
            yield of_columns(name, schema.empty_table(), frozenset(schema.names))


class _Size:
    """How much a file has unfolded to, in bytes."""

    def __init__(self, path: Path, asked: Asked) -> None:
        self.path = path
        self.asked = asked
        self.most = max(_RECORDS * asked.max_record, _TIMES * path.stat().st_size)
        self.found = 0

    def add(self, size: int) -> None:
        """Raise InputError if it is too much."""
        self.found += size
        if self.found > self.most:
            raise InputError(
                f"{self.path}: unfolds to more than {size_text(self.most)}, from {size_text(self.path.stat().st_size)};"
                f" if that is right, set a larger `max_record` than {size_text(self.asked.max_record)}"
            )


def _fixed_size(chunks: Sequence[ColumnChunk]) -> int:
    """What a row group unfolds to at least: values of fixed size, and pages of text."""
    return sum(max(chunk.values * _WIDTHS.get(chunk.kind, 0), chunk.size) for chunk in chunks)


def _parts(
    path: Path,
    file: pyarrow.parquet.ParquetFile,
    group: int,
    chunks: Sequence[ColumnChunk],
    encoded: list[str],
    size: _Size,
) -> Iterator[pa.Table]:
    rows, names = file.metadata.row_group(group).num_rows, size.asked.chosen(file.schema_arrow.names)
    read = [chunk for chunk in chunks if names is None or chunk.path.partition(".")[0] in names]
    texts = [chunk for chunk in read if _may_repeat_text(chunk, encoded)]
    longest = max((_longest_text(path, group, chunk, rows) for chunk in texts), default=0)
    most = _ROWS
    if size.asked.rows is not None:
        most = size.asked.rows if group else -(-size.asked.rows // 2)
    # Parts are read beside the engine: of two threads the other one has work of its own.
    in_threads = thread_count() > (1 if size.asked.rows is None else 2)
    at_once = min(most, max(1, _PART // longest) if longest else most)
    if rows <= at_once:
        columns = file.read_row_group(group, names, use_threads=in_threads)
        size.add(_text_size(columns))
        yield columns
        return
    for batch in file.iter_batches(at_once, row_groups=[group], columns=names, use_threads=in_threads):
        columns = pa.Table.from_batches([batch])
        size.add(_text_size(columns))
        yield columns


def _may_repeat_text(chunk: ColumnChunk, encoded: list[str]) -> bool:
    """Whether text may be stored once and used often."""
    return chunk.is_text and (chunk.has_dictionary or chunk.has_delta_encoding) and chunk.path not in encoded


def _longest_text(path: Path, group: int, chunk: ColumnChunk, rows: int) -> int:
    """The length of the longest text in the dictionary of a column, times the values of a row."""
    values = -(-chunk.values // max(rows, 1))
    if not chunk.has_dictionary:
        return max(chunk.size, 1) * values  # each text may repeat the one before
    if chunk.values * chunk.size <= _PART:
        return 0  # all of it is small
    with open_parquet(path, [chunk.path]) as own:
        batch = next(own.iter_batches(1, row_groups=[group], columns=[chunk.path]), None)
    if batch is None:
        return 0
    return values * _longest_in(batch.column(0))


def _longest_in(column: pa.Array) -> int:
    """The longest text of the dictionaries inside of a column."""
    if pa.types.is_dictionary(column.type):
        return _longest_in(column.dictionary)
    if pa.types.is_struct(column.type):
        return max(map(_longest_in, column.flatten()), default=0)
    if pa.types.is_map(column.type):
        return max(_longest_in(column.keys), _longest_in(column.items))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return _longest_in(column.values)
    if len(column) and is_bytes_or_text(column.type):
        return int(pc.max(pc.binary_length(column)).as_py() or 0)
    return 0


def _text_size(columns: pa.Table) -> int:
    """Bytes of the columns of text; others are known from the file's own description."""
    sizes = (
        _decoded_size(one_chunk(column)) if pa.types.is_dictionary(column.type) else column.nbytes
        for column in columns.columns
        if is_bytes_or_text(column.type) or pa.types.is_nested(column.type) or pa.types.is_dictionary(column.type)
    )
    return sum(sizes)


def _decoded_size(column: pa.DictionaryArray) -> int:
    if not is_bytes_or_text(column.type.value_type) or not len(column.dictionary):
        return 0
    lengths = pc.fill_null(pc.cast(pc.binary_length(column.dictionary), pa.int64()), 0).to_numpy()
    codes = column.indices.drop_null() if column.indices.null_count else column.indices
    counts = counts_of(codes.to_numpy())
    return int(counts @ lengths[: len(counts)])
