"""Parquet files, in parts of bounded size.

A small file may unfold to any size: one long text in a dictionary, repeated a million times. So
sizes are found before columns are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass
from querylang.errors import InputError
from runtime.column_types import one_chunk
from runtime.columns.rows import counts_of
from runtime.file_forms import Asked, size_text
from runtime.reading.formats.raw_table import RawTable, is_bytes_or_text, of_columns, refuse_repeated, without_long_rows
from runtime.threads import thread_count

if TYPE_CHECKING:
    import pyarrow.parquet


# What a Parquet file's footer says of the chunks of its columns.
#
# pyarrow has the same as `FileMetaData`, but some footers that are damaged end the whole process
# there, because it does not catch every exception of its C++ part. The footer is a Thrift structure
# in the compact protocol: https://github.com/apache/parquet-format (README, parquet.thrift),
# https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

Fields = dict[int, Any]
"""A structure: its values by number of the field."""

_DEPTH = 32
"""Most structures and lists within each other; a footer has fewer than ten."""

_ROW_GROUPS, _COLUMNS, _DESCRIPTION = 4, 1, 3
_KIND, _ENCODINGS, _PATH, _VALUES, _SIZE, _DICTIONARY = 1, 2, 3, 5, 6, 11
_TEXT, _DELTA_OF_TEXT = 6, 7


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column of one row group.

    kind: its physical type, as parquet.thrift numbers them
    values: how many, nulls included
    size: bytes of its pages when they are not compressed
    path: names from the column of the table to this one, with dots
    """

    kind: int
    values: int
    size: int
    path: str
    has_dictionary: bool
    has_delta_encoding: bool

    @property
    def is_text(self) -> bool:
        """Whether its values are of any length."""
        return self.kind == _TEXT


def column_chunks(path: Path) -> list[list[ColumnChunk]]:
    """By row group, the chunks of its columns. Raises InputError for a footer that is damaged."""
    try:
        footer = _Reader(_footer(path)).structure()
        return [[_chunk(column) for column in group[_COLUMNS]] for group in footer[_ROW_GROUPS]]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: is damaged: its footer cannot be read") from error


def _chunk(column: Fields) -> ColumnChunk:
    found = column[_DESCRIPTION]
    return ColumnChunk(
        int(found[_KIND]),
        int(found[_VALUES]),
        int(found[_SIZE]),
        b".".join(found[_PATH]).decode("utf-8"),
        _DICTIONARY in found,
        _DELTA_OF_TEXT in found[_ENCODINGS],
    )


def _footer(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-8, 2)
        (length,) = struct.unpack("<I", file.read(4))
        file.seek(-8 - length, 2)
        return file.read(length)


class _Reader:
    """Reads values from the bytes of a footer; IndexError or ValueError = they are damaged."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0
        self._depth = 0

    def structure(self) -> Fields:
        """The structure at this place."""
        self._enter()
        fields: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            # A field of truth values has its value in its type.
            fields[number] = head & 15 == 1 if head & 15 in (1, 2) else self._value(head & 15)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._number())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self.structure()
            case 13:
                return self._bytes(16)
        raise ValueError(f"no type has the number {kind}")

    def _list(self) -> list[Any]:
        self._enter()
        head = self._byte()
        length = head >> 4 if head >> 4 < 15 else self._number()
        found = [self._value(head & 15) for _ in range(length)]
        self._depth -= 1
        return found

    def _map(self) -> list[tuple[Any, Any]]:
        self._enter()
        length = self._number()
        kinds = self._byte() if length else 0
        found = [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(length)]
        self._depth -= 1
        return found

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError("too many structures within each other")

    def _byte(self) -> int:
        value = self._data[self._place]
        self._place += 1
        return value

    def _bytes(self, length: int) -> bytes:
        if length > len(self._data) - self._place:
            raise IndexError(length)
        self._place += length
        return self._data[self._place - length : self._place]

    def _number(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
        return value | byte << shift

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)


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


# About how many rows a file has, without reading it: for people who wait.

SAMPLE = 1 << 20
"""How many bytes of a text are looked at."""


def about_rows(path: Path) -> int | None:
    """The number of rows, of text files about; None = unknown, or the file cannot be read."""
    try:
        if path.suffix.lower() == ".parquet":
            with open_parquet(path) as file:
                return int(file.metadata.num_rows)
        with path.open("rb") as file:
            sample = file.read(SAMPLE)
        lines = sample.count(b"\n")
        return path.stat().st_size * lines // len(sample) if lines else None
    except (OSError, pa.ArrowException):
        return None
