"""CSV files: all cells as text; a record that is not a row spoils no other."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from querylang.errors import InputError
from runtime.reading.formats.raw_table import RawTable, Unreadable, one_line


def read_csv(path: Path, name: str, _few_values: Collection[str]) -> Iterator[RawTable]:
    """The whole file as one table."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    records = _records(data)
    header = _header(path, records)
    try:
        columns = _parse(data[records.ends[0] :], header)
    except pa.ArrowInvalid:
        columns = None
    if columns is None or len(columns) != len(records.starts) - 1 or data.count(b'"') % 2 == 1:
        yield _good_records(name, records, header)
    else:
        yield RawTable(name, columns, np.arange(1, len(columns) + 1), records.describe, has_types=False)


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a CSV file as byte ranges, header included, without blank lines.

    data: the whole file
    starts, ends: by record: its bytes, line end included
    line_ends: positions of all line feeds in the file
    """

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    line_ends: NDArray[np.int64]

    def raw(self, index: int) -> str:
        """A record as text, without its line end."""
        return self.data[self.starts[index] : self.ends[index]].decode("utf-8", "replace").rstrip("\r\n")

    def describe(self, index: int) -> tuple[str, str]:
        """Place and raw text; the header is record 0, so that rows count from 1."""
        line = int(np.searchsorted(self.line_ends, self.starts[index])) + 1
        return f"line {line}", self.raw(index)

    def rows(self) -> list[bytes]:
        """The records below the header."""
        return [self.data[start:end] for start, end in zip(self.starts[1:], self.ends[1:], strict=True)]


def _records(data: bytes, *, whole_lines: bool = False) -> _Records:
    """Split a file at line ends outside of quotes; with `whole_lines` at every line end."""
    content = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero(content == ord("\n"))
    ends = line_ends + 1
    if not whole_lines and b'"' in data:
        quotes = np.flatnonzero(content == ord('"'))
        ends = ends[np.searchsorted(quotes, line_ends) % 2 == 0]
    if len(data) and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1]])
    lengths, first = ends - starts, content[starts]
    blank = (lengths == 1) & (first == ord("\n")) | (lengths == 2) & (first == ord("\r"))
    return _Records(data, starts[~blank], ends[~blank], line_ends)


def _header(path: Path, records: _Records) -> list[str]:
    if not len(records.starts):
        raise InputError(f"{path}: is empty; a CSV table begins with a row of column names")
    try:
        (header,) = csv.reader([records.raw(0)], strict=True)
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path}: its first line is not a row of column names: {one_line(error)}") from error
    repeated = [column for index, column in enumerate(header) if column and column in header[:index]]
    if repeated:
        raise InputError(f"{path}: duplicate column {repeated[0]!r} in the header")
    return header


def _parse(data: bytes, header: Sequence[str]) -> pa.Table:
    """All cells as text. An empty cell is null, `""` is the empty string. Raises ArrowInvalid."""
    if not data.strip():
        return pa.table([pa.array([], pa.string()) for _ in header], names=header)
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        read_options=pa.csv.ReadOptions(column_names=header, block_size=1 << 24),
        parse_options=pa.csv.ParseOptions(newlines_in_values=b'"' in data),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.binary()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return pa.table([_decoded(column) for column in table.columns], names=header)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowInvalid:  # a cell is not UTF-8: show replacement characters
        cells = [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()]
        return pa.chunked_array([pa.array(cells, pa.string())])


# One cell: text without quotes, or quoted text in which every quote is doubled, or nothing.
_CELL = rb'(?:[^",\r\n][^,\r\n"]*|"(?:[^"]|"")*")?'


def _good_records(name: str, records: _Records, header: Sequence[str]) -> RawTable:
    """The records that are rows, with what is wrong with each of the others.

    A stray quote makes one record of all lines up to the next quote. Then every line is taken as a
    record, so that the quote spoils its own line only.
    """
    pattern = re.compile(rb"%s(?:,%s){%d}\r?\n?" % (_CELL, _CELL, len(header) - 1))
    found = records.rows()
    good = np.array([pattern.fullmatch(record) is not None for record in found], np.bool_)
    if any(b"\n" in record.rstrip() for record, fits in zip(found, good, strict=True) if not fits):
        by_line = _records(records.data, whole_lines=True)
        if len(by_line.starts) > len(records.starts):
            return _good_records(name, by_line, header)
    kept = [
        record if record.endswith(b"\n") else record + b"\n" for record, fits in zip(found, good, strict=True) if fits
    ]
    columns = _parse(b"".join(kept), header)
    if len(columns) != len(kept):
        raise pa.ArrowInvalid("its lines are not rows of cells")
    unreadable = []
    for number in (np.flatnonzero(~good) + 1).tolist():
        place, raw = records.describe(number)
        unreadable.append(Unreadable(number, place, _what_is_wrong(raw, len(header)), raw))
    return RawTable(name, columns, np.flatnonzero(good) + 1, records.describe, unreadable, has_types=False)


def _what_is_wrong(raw: str, cells: int) -> str:
    try:
        (found,) = csv.reader([raw], strict=True)
    except (csv.Error, ValueError):
        return "a quote is not closed, or occurs inside a cell"
    return "a quote occurs inside a cell" if len(found) == cells else f"{len(found)} cells where the header has {cells}"
