"""Files and tables as raw columns: CSV, JSON lines, Parquet, YAML rows, pandas, Polars and Arrow tables.

Takes a path or a table; gives `RawTable`s: Arrow columns as they are in the file (text, where the file has no types),
the number of each row, and the rows that are none. Names and meanings of the columns are left to `runtime.tables`.
A file that cannot be a table at all raises InputError.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from querylang.errors import InputError

SUFFIXES = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is no row: its number (from 1), where it stands (`line 7`), why, and its raw text."""

    number: int
    place: str
    reason: str
    raw: str


Describe = Callable[[int], tuple[str, str]]
"""Gives, for a row's number, where it stands and its raw text; called for rows in trouble only."""


@dataclass(frozen=True, slots=True)
class RawTable:
    """Columns of one table (or of a part of it); `numbers` are the rows' numbers in the whole table, from 1.

    Without `has_types` all cells are text, whatever they stand for.
    """

    name: str
    columns: pa.Table
    numbers: NDArray[np.int64]
    describe: Describe
    unreadable: Sequence[Unreadable] = field(default=())
    has_types: bool = True


def read_raw(table: Any, name: str | None = None) -> RawTable:
    """Read all of a path, a pandas, Polars or Arrow table, or a list of mappings."""
    parts = list(iter_raw(table, name))
    if len(parts) == 1:
        return parts[0]
    columns = pa.concat_tables([part.columns for part in parts], promote_options="permissive")
    numbers = np.concatenate([part.numbers for part in parts])
    return RawTable(parts[0].name, columns, numbers, _describe_rows(columns, "row"))


def iter_raw(table: Any, name: str | None = None) -> Iterator[RawTable]:
    """The parts in which a table is best read: a Parquet file's row groups, everything else in one."""
    if isinstance(table, str | Path):
        yield from _read_path(Path(table), name or Path(table).name)
    elif isinstance(table, Sequence):
        yield _of_mappings(table, name or "table", "row")
    else:
        columns = _as_arrow(table)
        numbers = np.arange(1, len(columns) + 1)
        yield RawTable(name or "table", columns, numbers, _describe_rows(columns, "row"))


def _read_path(path: Path, name: str) -> Iterator[RawTable]:
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a table")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    try:
        match path.suffix.lower():
            case ".parquet":
                yield from _read_parquet(path, name)
            case ".csv":
                yield _read_csv(path, name)
            case ".json" | ".jsonl" | ".ndjson":
                yield _read_json(path, name)
            case ".yaml" | ".yml":
                yield _read_yaml(path, name)
            case suffix:
                raise InputError(f"{path}: {suffix or 'no suffix'} is not a kind of table; known: {' '.join(SUFFIXES)}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: cannot be read as a table: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _describe_rows(columns: pa.Table, word: str) -> Describe:
    def describe(number: int) -> tuple[str, str]:
        row = columns.slice(number - 1, 1).to_pylist()[0]
        return f"{word} {number}", _as_json(row)

    return describe


def _as_json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _as_arrow(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "to_arrow"):
        return pa.table(table.to_arrow())
    if hasattr(table, "iloc"):
        return _of_pandas(table)
    raise InputError(f"a {type(table).__name__} is not a table; give a path or a pandas, Polars or Arrow table")


def _of_pandas(frame: Any) -> pa.Table:
    columns = {}
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position]
        if values.dtype == object:
            columns[str(name)] = _column_of([None if _is_missing(value) else value for value in values])
        else:
            columns[str(name)] = pa.array(values, from_pandas=True)
    return pa.table(columns)


def _is_missing(value: Any) -> bool:
    return value is None or value != value  # noqa: PLR0124  NaN and NaT differ from themselves


# ---------------------------------------------------------------------------------------------------------- Parquet


def _read_parquet(path: Path, name: str) -> Iterator[RawTable]:
    file = pa.parquet.ParquetFile(path)
    first = 1
    for group in range(max(file.num_row_groups, 1)):
        columns = file.read_row_group(group) if file.num_row_groups else file.read()
        numbers = np.arange(first, first + len(columns))
        describe = _describe_rows(columns, "row")
        yield RawTable(name, columns, numbers, _shifted(describe, first - 1))
        first += len(columns)


def _shifted(describe: Describe, before: int) -> Describe:
    return lambda number: (f"row {number}", describe(number - before)[1])


# -------------------------------------------------------------------------------------------------------------- CSV


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a CSV file, header included, as byte ranges; blank lines are none."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    line_ends: NDArray[np.int64]

    def raw(self, index: int) -> str:
        return self.data[self.starts[index] : self.ends[index]].decode("utf-8", "replace").rstrip("\r\n")

    def line(self, index: int) -> int:
        return int(np.searchsorted(self.line_ends, self.starts[index])) + 1

    def describe(self, index: int) -> tuple[str, str]:
        return f"line {self.line(index)}", self.raw(index)

    def unreadable(self, index: int, reason: str) -> Unreadable:
        return Unreadable(index, f"line {self.line(index)}", reason, self.raw(index))


def _records(data: bytes, whole_lines: bool) -> _Records:
    """Cut at line ends outside quotes, or with `whole_lines` at every line end."""
    bytes_ = np.frombuffer(data, np.uint8)
    is_end = bytes_ == ord("\n")
    line_ends = np.flatnonzero(is_end)
    if not whole_lines:
        is_end &= np.cumsum(bytes_ == ord('"'), dtype=np.int64) % 2 == 0
    ends = np.flatnonzero(is_end) + 1
    if len(data) and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1]])
    lengths, first = ends - starts, bytes_[starts]
    blank = (lengths == 1) & (first == ord("\n")) | (lengths == 2) & (first == ord("\r"))
    return _Records(data, starts[~blank], ends[~blank], line_ends)


def _read_csv(path: Path, name: str) -> RawTable:
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    header = _csv_header(path, data)
    if data.count(b'"') % 2 == 1:
        return _read_csv_with_open_quote(name, data, header)
    columns, refused = _parse_csv(data, header)
    if any(b"\n" in raw.strip().encode() for _, _, raw in refused):
        return _read_csv_with_open_quote(name, data, header)
    records = cache(lambda: _records(data, whole_lines=False))
    wrong = {index: _wrong_cells(header, cells) for index, cells, _ in refused}
    numbers = np.setdiff1d(np.arange(1, len(columns) + len(wrong) + 1), np.array(list(wrong), np.int64))
    unreadable = [records().unreadable(index, reason) for index, reason in wrong.items()]
    return RawTable(name, columns, numbers, lambda number: records().describe(number), unreadable, has_types=False)


def _wrong_cells(header: Sequence[str], cells: int) -> str:
    return f"{cells} cells where the header has {len(header)}"


def _csv_header(path: Path, data: bytes) -> list[str]:
    rows = csv.reader(io.StringIO(data[: 1 << 20].decode("utf-8", "replace")))
    header = next((row for row in rows if row), None)
    if header is None:
        raise InputError(f"{path}: is empty; a CSV table begins with a row of column names")
    repeated = [column for index, column in enumerate(header) if column and column in header[:index]]
    if repeated:
        raise InputError(f"{path}: the column {repeated[0]!r} stands twice in the header")
    return header


def _parse_csv(data: bytes, header: Sequence[str]) -> tuple[pa.Table, list[tuple[int, int, str]]]:
    """All cells as text (an empty cell is null, `""` is not), and the refused: record index, cells, raw text."""
    refused: list[tuple[int, int, str]] = []

    def refuse(row: Any) -> str:
        refused.append((row.number - 1, row.actual_columns, row.text))
        return "skip"

    table = pa.csv.read_csv(
        pa.BufferReader(data),
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=max(1 << 22, 1)),
        parse_options=pa.csv.ParseOptions(newlines_in_values=b'"' in data, invalid_row_handler=refuse),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.binary()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    return pa.table([_decoded(column) for column in table.columns], names=table.column_names), refused


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowInvalid:  # not UTF-8 somewhere: shown with a replacement character, as editors do
        return pa.chunked_array(
            [[None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()]]
        )


def _read_csv_with_open_quote(name: str, data: bytes, header: Sequence[str]) -> RawTable:
    """A quote that is never closed would swallow the rest: every line is a record, those with an open quote none."""
    records = _records(data, whole_lines=True)
    count = len(records.starts)
    is_open = np.array([data.count(b'"', records.starts[i], records.ends[i]) % 2 == 1 for i in range(count)])
    whole = np.flatnonzero(~is_open)
    kept = b"".join(data[records.starts[i] : records.ends[i]] for i in whole)
    columns, refused = _parse_csv(kept, header)
    wrong = {int(whole[index]): _wrong_cells(header, cells) for index, cells, _ in refused}
    wrong |= {int(index): "a quote is not closed" for index in np.flatnonzero(is_open)}
    numbers = np.array([index for index in range(1, count) if index not in wrong], np.int64)
    unreadable = [records.unreadable(index, reason) for index, reason in sorted(wrong.items())]
    return RawTable(name, columns, numbers, records.describe, unreadable, has_types=False)


# ------------------------------------------------------------------------------------------------------- JSON, YAML


def _read_json(path: Path, name: str) -> RawTable:
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] == b"[":
        try:
            rows = json.loads(data)
        except ValueError as error:
            raise InputError(f"{path}: is not JSON: {error}") from error
        return _of_mappings(rows, name, "row")
    return _json_lines_at_once(data, name) or _json_lines(data, name)


def _json_lines_at_once(data: bytes, name: str) -> RawTable | None:
    """All lines in one go; None where a line is broken, or where a guessed type would lose what was written."""
    try:
        first = json.loads(data.lstrip().partition(b"\n")[0])
        text = pa.schema([(key, pa.string()) for key, value in first.items() if isinstance(value, str)])
        options = pa.json.ParseOptions(explicit_schema=text)
        columns = pa.json.read_json(pa.BufferReader(data), parse_options=options)
    except (ValueError, AttributeError):
        return None
    if any(pa.types.is_timestamp(column.type) for column in columns.columns):
        return None
    numbers = np.arange(1, len(columns) + 1)
    places = cache(lambda: _json_line_places(data))
    return RawTable(name, columns, numbers, lambda number: places()[number - 1])


def _json_line_places(data: bytes) -> list[tuple[str, str]]:
    lines = enumerate(data.decode("utf-8", "replace").split("\n"), 1)
    return [(f"line {number}", line.strip()) for number, line in lines if line.strip()]


def _json_lines(data: bytes, name: str) -> RawTable:
    places = _json_line_places(data)
    rows: list[Any] = []
    for _, line in places:
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            rows.append(_NoRow(f"not JSON: {error}"))
    return _of_rows(rows, name, lambda number: places[number - 1])


@dataclass(frozen=True, slots=True)
class _NoRow:
    reason: str


def _read_yaml(path: Path, name: str) -> RawTable:
    import yaml

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML: {_one_line(error)}") from error
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InputError(f"{path}: a YAML table is a list of rows, or a mapping with `rows`")
    return _of_mappings(rows, name, "row")


def _of_mappings(rows: Sequence[Any], name: str, word: str) -> RawTable:
    return _of_rows(rows, name, lambda number: (f"{word} {number}", _as_json(rows[number - 1])))


def _of_rows(rows: Sequence[Any], name: str, describe: Describe) -> RawTable:
    """Columns of rows that are mappings; all other rows are unreadable."""
    unreadable = []
    good: list[Mapping[str, Any]] = []
    numbers = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            good.append(row)
            numbers.append(number)
        else:
            reason = row.reason if isinstance(row, _NoRow) else "not a mapping of names to values"
            unreadable.append(Unreadable(number, describe(number)[0], reason, describe(number)[1]))
    names = dict.fromkeys(str(key) for row in good for key in row)
    columns = {key: _column_of([row.get(key) for row in good]) for key in names}
    table = pa.table(columns) if columns else pa.table({"": pa.nulls(len(good))})
    return RawTable(name, table, np.array(numbers, np.int64), describe, unreadable)


def _column_of(values: Sequence[Any]) -> pa.Array:
    """One type where all values have it (whole numbers among floats are floats), else text."""
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1 or types == {int, float}:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    return pa.array([_text_of(value) for value in values], pa.string())


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
