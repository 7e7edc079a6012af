"""Files and tables as raw columns: CSV, JSON lines, Parquet, YAML rows, pandas, Polars and Arrow tables.

Takes a path or a table; gives `RawTable`s: Arrow columns as they are in the file (text, where the file has no types),
the number of each row, and the rows that are none. Names and meanings of the columns are left to `runtime.reading.tables`.
A file that cannot be a table at all raises InputError.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
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

    Without `has_types` all cells are text, whatever they stand for. `declared`: the columns whose type is said by a
    schema, not found in their values.
    """

    name: str
    columns: pa.Table
    numbers: NDArray[np.int64]
    describe: Describe
    unreadable: Sequence[Unreadable] = field(default=())
    has_types: bool = True
    declared: frozenset[str] = frozenset()


def read_raw(table: Any, name: str | None = None, words: Collection[str] = ()) -> RawTable:
    """Read all of a path, a pandas, Polars or Arrow table, or a list of mappings."""
    parts = list(iter_raw(table, name, words))
    if len(parts) == 1:
        return parts[0]
    columns = pa.concat_tables([part.columns for part in parts], promote_options="permissive")
    numbers = np.concatenate([part.numbers for part in parts])
    return RawTable(parts[0].name, columns, numbers, _describe_rows(columns, "row"), declared=parts[0].declared)


def iter_raw(table: Any, name: str | None = None, words: Collection[str] = ()) -> Iterator[RawTable]:
    """The parts in which a table is best read: a Parquet file's row groups, everything else in one.

    `words`: columns of text that have few different cells; they may come as dictionaries.
    """
    if isinstance(table, str | Path):
        yield from _read_path(Path(table), name or Path(table).name, words)
    elif isinstance(table, Sequence):
        yield _of_mappings(table, name or "table", "row")
    else:
        columns = _as_arrow(table)
        numbers, describe = np.arange(1, len(columns) + 1), _describe_rows(columns, "row")
        yield RawTable(name or "table", columns, numbers, describe, declared=_declared(table, columns))


def _declared(table: Any, columns: pa.Table) -> frozenset[str]:
    """All columns, but those of a pandas frame that hold objects of any kind."""
    objects = table.select_dtypes("object").columns if _is_pandas(table) else ()
    return frozenset(columns.column_names) - set(map(str, objects))


def _read_path(path: Path, name: str, words: Collection[str]) -> Iterator[RawTable]:
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a table")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    try:
        match path.suffix.lower():
            case ".parquet":
                yield from _read_parquet(path, name, words)
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
        row = {name: cell_of(columns, name, number - 1) for name in columns.column_names}
        return f"{word} {number}", _as_json(row)

    return describe


def cell_of(columns: pa.Table, name: str, row: int) -> Any:
    """A cell as Python has it; a date that Python has not, as text."""
    cell = columns.column(name)[row]
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        return cell.cast(pa.string()).as_py()


def _as_json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _as_arrow(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "to_arrow"):
        return pa.table(table.to_arrow())
    if _is_pandas(table):
        return _of_pandas(table)
    raise InputError(f"a {type(table).__name__} is not a table; give a path or a pandas, Polars or Arrow table")


def _is_pandas(table: Any) -> bool:
    return hasattr(table, "iloc")


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
    """None, pandas' words for it, NaN; an array is a value."""
    if isinstance(value, float | np.floating | Decimal):
        return bool(value != value)  # noqa: PLR0124  NaN differs from itself
    return value is None or type(value).__name__ in ("NaTType", "NAType")


# ---------------------------------------------------------------------------------------------------------- Parquet


def _read_parquet(path: Path, name: str, words: Collection[str]) -> Iterator[RawTable]:
    schema = pa.parquet.read_schema(path)
    known = [part.name for part in schema if part.name in words and pa.types.is_string(part.type)]
    file = pa.parquet.ParquetFile(path, read_dictionary=known)
    first = 1
    for group in range(max(file.num_row_groups, 1)):
        columns = file.read_row_group(group) if file.num_row_groups else file.read()
        numbers = np.arange(first, first + len(columns))
        describe = _describe_rows(columns, "row")
        declared = frozenset(columns.column_names)
        yield RawTable(name, columns, numbers, _shifted(describe, first - 1), declared=declared)
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

    def describe(self, index: int) -> tuple[str, str]:
        line = int(np.searchsorted(self.line_ends, self.starts[index])) + 1
        return f"line {line}", self.raw(index)

    def rows(self) -> list[bytes]:
        """The records below the header."""
        return [self.data[start:end] for start, end in zip(self.starts[1:], self.ends[1:], strict=True)]


def _records(data: bytes, *, whole_lines: bool = False) -> _Records:
    """Cut at line ends outside quotes, or with `whole_lines` at every line end."""
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


def _read_csv(path: Path, name: str) -> RawTable:
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    records = _records(data)
    header = _csv_header(path, records)
    try:
        columns = _parse_csv(data[records.ends[0] :], header)
    except pa.ArrowInvalid:
        columns = None
    if columns is None or len(columns) != len(records.starts) - 1 or data.count(b'"') % 2 == 1:
        return _read_good_records(name, records, header)
    return RawTable(name, columns, np.arange(1, len(columns) + 1), records.describe, has_types=False)


def _csv_header(path: Path, records: _Records) -> list[str]:
    if not len(records.starts):
        raise InputError(f"{path}: is empty; a CSV table begins with a row of column names")
    try:
        (header,) = csv.reader([records.raw(0)], strict=True)
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path}: its first line is no row of column names: {_one_line(error)}") from error
    repeated = [column for index, column in enumerate(header) if column and column in header[:index]]
    if repeated:
        raise InputError(f"{path}: the column {repeated[0]!r} stands twice in the header")
    return header


def _parse_csv(data: bytes, header: Sequence[str]) -> pa.Table:
    """All cells as text; an empty cell is null, `""` is not. Raises ArrowInvalid."""
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
    except pa.ArrowInvalid:  # not UTF-8 somewhere: shown with a replacement character, as editors do
        cells = [None if cell is None else cell.decode("utf-8", "replace") for cell in column.to_pylist()]
        return pa.chunked_array([pa.array(cells, pa.string())])


_CELL = rb'(?:[^",\r\n][^,\r\n"]*|"(?:[^"]|"")*")?'


def _read_good_records(name: str, records: _Records, header: Sequence[str]) -> RawTable:
    """The records that are rows; of the others, what is wrong with each.

    Where a quote that does not belong there joins lines, every line is a record: it spoils its own line only.
    """
    pattern = re.compile(rb"%s(?:,%s){%d}\r?\n?" % (_CELL, _CELL, len(header) - 1))
    found = records.rows()
    good = np.array([pattern.fullmatch(record) is not None for record in found], np.bool_)
    if any(b"\n" in record.rstrip() for record, fits in zip(found, good, strict=True) if not fits):
        by_line = _records(records.data, whole_lines=True)
        if len(by_line.starts) > len(records.starts):
            return _read_good_records(name, by_line, header)
    kept = [
        record if record.endswith(b"\n") else record + b"\n" for record, fits in zip(found, good, strict=True) if fits
    ]
    columns = _parse_csv(b"".join(kept), header)
    if len(columns) != len(kept):
        raise pa.ArrowInvalid("its lines are no rows of cells")
    unreadable = []
    for number in (np.flatnonzero(~good) + 1).tolist():
        place, raw = records.describe(number)
        unreadable.append(Unreadable(number, place, _what_is_wrong(raw, len(header)), raw))
    return RawTable(name, columns, np.flatnonzero(good) + 1, records.describe, unreadable, has_types=False)


def _what_is_wrong(raw: str, cells: int) -> str:
    try:
        (found,) = csv.reader([raw], strict=True)
    except (csv.Error, ValueError):
        return "a quote is not closed, or stands inside a cell"
    return "a quote stands inside a cell" if len(found) == cells else f"{len(found)} cells where the header has {cells}"


# ------------------------------------------------------------------------------------------------------- JSON, YAML


def _read_json(path: Path, name: str) -> RawTable:
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] == b"[":
        try:
            rows = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: is not JSON: {_one_line(error)}") from error
        return _of_mappings(rows, name, "row")
    return _json_lines_at_once(data, name) or _json_lines(data, name)


def _json_lines_at_once(data: bytes, name: str) -> RawTable | None:
    """All lines in one go; None where a line is broken, or where a guessed type would lose what was written."""
    try:
        first = json.loads(data.lstrip().partition(b"\n")[0])
        text = pa.schema([(key, pa.string()) for key, value in first.items() if isinstance(value, str)])
        options = pa.json.ParseOptions(explicit_schema=text)
        columns = pa.json.read_json(pa.BufferReader(data), parse_options=options)
    except (ValueError, AttributeError, RecursionError):
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
        except (ValueError, RecursionError) as error:
            rows.append(_NoRow(f"not JSON: {_json_problem(error)}"))
    return _of_rows(rows, name, lambda number: places[number - 1])


def _json_problem(error: Exception) -> str:
    """What is wrong with one line; its place in the file is said beside it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (character {error.pos + 1})"
    return "nested too deeply" if isinstance(error, RecursionError) else _one_line(error)


@dataclass(frozen=True, slots=True)
class _NoRow:
    reason: str


def _read_yaml(path: Path, name: str) -> RawTable:
    import yaml

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML: {_one_line(error)}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{path}: holds a date or number that does not exist: {_one_line(error)}") from error
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
    return _as_json(value) if isinstance(value, bool | list | dict) else str(value)
