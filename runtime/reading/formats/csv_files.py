"""CSV files: all cells as text; a record that is not a row spoils no other.

A file is read in blocks, so that memory does not grow with it.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from querylang.errors import InputError, counted
from runtime.file_forms import MOST_NAMES, Asked, shortened, shown_delimiter
from runtime.reading.formats.blocks import (
    COMMA,
    Blocks,
    CsvRecords,
    count_lines,
    fits,
    has_lone_returns,
    has_stray_quotes,
    quotes_of,
    separate_records,
    what_is_wrong,
    whole_records,
)
from runtime.reading.formats.raw_table import Describe, RawTable, Unreadable, one_line

_ALONE = 1 << 16
"""Bytes that one thread reads sooner than it could wake others."""

_STRAY = "a quote is not closed, or occurs inside a cell"


def read_csv(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    """The file in parts; a file without rows is one empty table."""
    with path.open("rb") as file:
        blocks = Blocks(file)
        if blocks.waiting.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(f"{path}: is UTF-16 text; say so: `--csv encoding=utf-16`")
        blocks.accept_returns()
        for _ in range(asked.csv.skip):
            blocks.skip_line()
        header = _header(path, blocks, asked)
        parts = _Parts(name, header, blocks, asked)
        is_empty = True
        while blocks.waiting or not blocks.is_end:
            part = parts.read_next()
            if part is not None:
                is_empty = False
                yield part
        if is_empty:
            yield parts.without_rows([])


def _header(path: Path, blocks: Blocks, asked: Asked) -> list[str]:
    """The names of the columns: given by users, in the first record, or `column1` ..."""
    form = asked.csv
    first = _first_record(path, blocks, asked.max_record, form.delimiter or COMMA, has_names=form.has_header)
    if form.names and len(form.names) != len(first):
        raise InputError(f"{path}: has {counted(len(first), 'column')}, and `names` has {len(form.names)}")
    if form.names:
        return list(form.names)
    return first if form.has_header else [f"column{number}" for number in range(1, len(first) + 1)]


def _first_record(path: Path, blocks: Blocks, longest: int, delimiter: str, *, has_names: bool) -> list[str]:
    """The cells of the first record; `has_names`: they are names of columns, not of a row."""
    records = whole_records(blocks.waiting, is_end=blocks.is_end)
    while not len(records) and not blocks.is_end and len(blocks.waiting) <= longest:
        blocks.fill()
        records = whole_records(blocks.waiting, is_end=blocks.is_end)
    if not len(records) and not blocks.waiting.strip():
        raise InputError(f"{path}: is empty; a CSV table begins with a row of column names")
    if not len(records):
        raise InputError(f"{path}: its first line is not a row of column names: it does not end")
    if b"\0" in records.raw(0):
        raise InputError(
            f"{path}: is not text in UTF-8: its first line has zero bytes; UTF-16: `--csv encoding=utf-16`"
        )
    try:
        (header,) = csv.reader([records.raw(0).decode("utf-8", "replace")], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path}: its first line is not a row of column names: {one_line(error)}") from error
    if not has_names:
        return header
    seen: set[str] = set()
    for column in header:
        if column and column in seen:
            raise InputError(f"{path}: duplicate column {shortened(column)!r} in the header")
        seen.add(column)
    if len(header) == 1:
        _refuse_other_delimiter(path, header[0])
    blocks.take(int(records.ends[0]))
    return header


def _refuse_other_delimiter(path: Path, column: str) -> None:
    """Raise InputError for a header whose only name has other delimiters in it."""
    for delimiter in ";\t|,":
        if delimiter in column:
            raise InputError(
                f"{path}: its only column is {shortened(column)!r};"
                f' is the delimiter another one? `--csv "delimiter={shown_delimiter(delimiter)}"`'
            )


class _Parts:
    """The tables of a file, below its header.

    delimiter: the character between cells
    chosen: the columns that are kept; of very many, only those that are needed
    number: of the next record, from 1
    """

    def __init__(self, name: str, header: Sequence[str], blocks: Blocks, asked: Asked) -> None:
        self.name = name
        self.header = header
        self.blocks = blocks
        self.asked = asked
        self.delimiter = asked.csv.delimiter or COMMA
        self.number = 1
        self._are_rows_lines = True  # so far
        self.chosen = asked.chosen(header) or self.header
        if len(self.header) > MOST_NAMES and asked.wanted is not None:
            needed = [column for column in self.header if column.casefold() in asked.wanted]
            self.chosen = needed or self.header[:1]

    def read_next(self) -> RawTable | None:
        """The records that are waiting; None = more of the file is needed, or lines are blank."""
        blocks, longest = self.blocks, self.asked.max_record
        if self._are_rows_lines:
            part = self._line_by_line()
            self._are_rows_lines = part is not None or b"\n" not in blocks.waiting
            if part is not None:
                return part
        records = whole_records(blocks.waiting, is_end=blocks.is_end)
        part = self._at_once(records)
        if part is None:
            records = separate_records(blocks.waiting, len(self.header), self.delimiter, is_end=blocks.is_end)
            part = self._one_by_one(records)
        if records.end:
            blocks.skip(records.end, records.lines)
        elif len(blocks.waiting) > longest:
            part = self._without_first()
        else:
            blocks.fill()
        return part

    def without_rows(self, unreadable: Sequence[Unreadable]) -> RawTable:
        """A table of records that are not rows."""
        none = np.empty(0, np.int64)
        return RawTable(self.name, self._parse(b""), none, _nothing, unreadable, has_types=False)

    def _line_by_line(self) -> RawTable | None:
        """All whole lines, if each is a row; None = some are not, or there is none.

        Arrow makes one row of a record with line ends in quotes, and none of a blank line. So if
        there are as many rows as line ends, the rows are the lines: nothing looks for records.
        """
        data = self.blocks.waiting
        end = data.rfind(b"\n") + 1
        if not end or end > self.asked.max_record or (self.blocks.is_end and end != len(data)):
            return None
        if has_stray_quotes(data, quotes_of(data, end), end, self.delimiter) or has_lone_returns(data, end):
            return None
        try:
            columns = self._parse(data, end, has_line_ends=False)
        except pa.ArrowInvalid:
            return None
        lines = count_lines(data, end)
        if len(columns) != lines:
            return None
        first, line = self.number, self.blocks.line
        self.number += lines
        self.blocks.skip(end, lines)

        records = cache(lambda: whole_records(data[:end], is_end=True))

        def describe(number: int) -> tuple[str, str]:
            return f"line {line + number - first}", records().text(number - first)

        numbers = np.arange(first, first + lines)
        return RawTable(self.name, columns, numbers, describe, has_types=False, is_ascii=data.isascii())

    def _at_once(self, records: CsvRecords) -> RawTable | None:
        """All records as rows; None = some are not, or there are none."""
        if not len(records) or records.lengths.max() > self.asked.max_record:
            return None
        data, end = records.data, records.end
        if has_stray_quotes(data, records.quotes, end, self.delimiter) or has_lone_returns(data, end):
            return None
        try:
            columns = self._parse(data, end, has_line_ends=records.may_have_inner_line_ends)
        except pa.ArrowInvalid:
            return None
        if len(columns) != len(records):
            return None
        numbers, describe = self._numbers(records), self._describe(records)
        return RawTable(self.name, columns, numbers, describe, has_types=False, is_ascii=data.isascii())

    def _one_by_one(self, records: CsvRecords) -> RawTable | None:
        """The records that are rows, with what is wrong with each of the others."""
        if not len(records):
            return None
        cells, longest = len(self.header), self.asked.max_record
        is_long = records.lengths > longest
        good = fits(records.data, records.starts, records.ends, cells, self.delimiter) & ~is_long
        columns = self._parse(_joined(records, good))
        if len(columns) != good.sum():
            raise pa.ArrowInvalid("its lines are not rows of cells")
        describe, numbers = self._describe(records), self._numbers(records)
        unreadable = []
        for index in np.flatnonzero(~good).tolist():
            reason = self.asked.too_long if is_long[index] else what_is_wrong(records.raw(index), cells, self.delimiter)
            place, raw = describe(int(numbers[index]))
            unreadable.append(Unreadable(int(numbers[index]), place, reason, raw))
        return RawTable(self.name, columns, numbers[good], describe, unreadable, has_types=False)

    def _parse(self, data: bytes, end: int | None = None, *, has_line_ends: bool = True) -> pa.Table:
        whole = len(data) if end is None else end
        missing = self.asked.csv.missing
        return _parse(data, whole, self.header, self.chosen, self.delimiter, missing, has_line_ends=has_line_ends)

    def _numbers(self, records: CsvRecords) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = self.number
        self.number += len(records)
        return np.arange(first, self.number)

    def _describe(self, records: CsvRecords) -> Describe:
        first, line = self.number, self.blocks.line
        return lambda number: (f"line {line + records.line(number - first)}", records.text(number - first))

    def _without_first(self) -> RawTable:
        """Skip a record that is longer than the limit, or only a line whose quote is stray."""
        blocks = self.blocks
        line, start = blocks.line, blocks.place
        head = blocks.waiting.partition(b"\n")[0]
        reason = self.asked.too_long
        if not _may_go_on(head, self.delimiter.encode()) or not _skip_record(blocks):
            reason = _STRAY
            blocks.go_back(start, line)
            blocks.skip_line()
        raw = shortened(head[: 1 << 16].decode("utf-8", "replace").rstrip("\r"))
        found = Unreadable(self.number, f"line {line}", reason, raw)
        self.number += 1
        return self.without_rows([found])


def _may_go_on(line: bytes, delimiter: bytes) -> bool:
    """Whether the last quote of a line is where a cell may begin, or the line is not at its end."""
    quote = line.rfind(b'"')
    return quote <= 0 or line[quote - 1 : quote] in (delimiter, b'"')


def _skip_record(blocks: Blocks) -> bool:
    """Continue behind the first record; False = its last quote is not closed."""
    open_quotes = 0
    while True:
        content = np.frombuffer(blocks.waiting, np.uint8)
        line_ends = np.flatnonzero(content == ord("\n"))
        quotes = np.flatnonzero(content == ord('"'))
        ends = line_ends[(np.searchsorted(quotes, line_ends) + open_quotes) % 2 == 0]
        if len(ends):
            blocks.take(int(ends[0]) + 1)
            return True
        open_quotes = (open_quotes + len(quotes)) % 2
        blocks.take(len(blocks.waiting))
        if blocks.is_end:
            return open_quotes == 0
        blocks.fill()


def _nothing(number: int) -> tuple[str, str]:
    raise AssertionError(f"there is no row {number}")


def _joined(records: CsvRecords, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bytes:
    """The chosen records, each with a line end."""
    pairs = zip(records.starts[chosen].tolist(), records.ends[chosen].tolist(), strict=True)
    return b"".join([records.data[start:end] for start, end in pairs])


def _parse(
    data: bytes,
    end: int,
    header: Sequence[str],
    chosen: Sequence[str],
    delimiter: str,
    missing: Sequence[str],
    *,
    has_line_ends: bool,
) -> pa.Table:
    """All cells up to `end` as text. An empty cell is null, `""` is the empty string.

    missing: other cells that are null unless they are in quotes
    has_line_ends: some may be inside of quotes

    Raises ArrowInvalid.
    """
    if not end or (data[:1].isspace() and not data[:end].strip()):
        return pa.table([pa.array([], pa.string()) for _ in chosen], names=chosen)
    if not data.endswith(b"\n", 0, end):
        # otherwise Arrow takes an empty last cell behind a quoted one as quoted, too
        data, end = data[:end] + b"\n", end + 1
    table = pa.csv.read_csv(
        pa.BufferReader(pa.py_buffer(data).slice(0, end)),
        read_options=pa.csv.ReadOptions(
            column_names=header, block_size=max(1 << 24, end + 1), use_threads=end > _ALONE
        ),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=has_line_ends),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.binary()),
            include_columns=[] if chosen is header else chosen,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=["", *missing],
        ),
    )
    return pa.table([_as_text(column) for column in table.columns], names=chosen)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same bytes as text, UTF-8 or not: `broken_text` looks at those that are needed."""
    return pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
