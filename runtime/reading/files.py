"""Read any table: a file, a table in memory, or a list of mappings."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, PassingError, did_you_mean, is_passing, listed, near_file
from querylang.plan.expression import Kind, Type
from querylang.system_errors import has_way_out, refused
from runtime.file_forms import COMPRESSIONS, EVERYTHING, UTF_8, Asked, keys_of, kind_of, path_of, shortened, shown_name
from runtime.instants import NO_TIME
from runtime.number_arrays import Integers
from runtime.policies.settings_text import USUAL_TIMES
from runtime.reading.conversion import convert
from runtime.reading.formats.arrow_tables import read_arrow, read_frame
from runtime.reading.formats.csv_files import read_csv
from runtime.reading.formats.encodings import plain_file, refuse_other_kind
from runtime.reading.formats.json_files import read_json
from runtime.reading.formats.messages import Messages, read_messages
from runtime.reading.formats.parquet_files import read_parquet
from runtime.reading.formats.python_rows import of_mappings, read_yaml
from runtime.reading.formats.raw_table import RawTable, joined_parts, one_line, with_keys
from runtime.timestamps import given_times

_DAMAGED = (MemoryError, SystemError)
"""What Arrow raises, too, where a file says that a part of it has some other length than it has."""

Progress = Callable[[int], None]
"""Is called with how many rows have been read."""

Reader = Callable[[Path, str, Asked], Iterator[RawTable]]
"""Reads a file in parts, from its path, the source's name, and what is asked of it.

Raises InputError and Arrow's errors."""

FORMATS: Mapping[str, Reader] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".json": read_json,
    ".jsonl": read_json,
    ".ndjson": read_json,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".yaml": read_yaml,
    ".yml": read_yaml,
}
"""File suffixes and their readers. A new format is a file in `formats` and a line here."""


def read_raw(
    table: Any, name: str | None = None, asked: Asked = EVERYTHING, progress: Progress | None = None
) -> RawTable:
    """All of a table in one; otherwise as `iter_raw`."""
    parts, rows = [], 0
    for part in iter_raw(table, name, asked):
        parts.append(part)
        rows += len(part)
        if progress is not None:
            progress(rows)
    return joined_parts(parts)


def iter_raw(table: Any, name: str | None = None, asked: Asked = EVERYTHING) -> Iterator[RawTable]:
    """The parts of a table: files in blocks, anything else in one. Raises InputError.

    table: a path, a pandas, Polars or Arrow table, a source of Arrow data, a list of mappings, or
        messages of a log
    name: the source's name; None = the file's name, or `table`
    asked: what is needed, and limits
    """
    if isinstance(table, str | Path):
        own = name or shown_name(table)
        keys = keys_of(own)
        for part in _read_path(path_of(table), own, asked):
            yield with_keys(part, keys) if keys else part
    elif isinstance(table, Messages):
        yield read_messages(table, name or "table", asked)
    elif isinstance(table, Sequence):
        yield of_mappings(table, name or "table", asked)
    else:
        yield read_frame(table, name or "table", asked)


@contextmanager
def in_plain_words(path: Path) -> Iterator[None]:
    """Raise InputError, with the file's name, where it is not a file or cannot be read."""
    refuse_special(path)
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError, *_DAMAGED) as error:
        if isinstance(error, OSError) and has_way_out(error):
            raise refused(error, f"{path}: cannot be read as a table") from error
        reason = one_line(error) or "it asks for more memory than there is"
        kind = PassingError if is_passing(error) else InputError
        raise kind(f"{path}: cannot be read as a table: {reason}") from error


def _read_path(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    with in_plain_words(path):
        yield from _read_file(path, name, asked)


def _read_file(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    kind, _ = kind_of(path)
    reader = FORMATS.get(kind)
    if reader is None:
        found = f"unknown table format {kind}" if kind else "no suffix that names a table format"
        raise InputError(f"{path}: {found}; known: {' '.join(FORMATS)}, also with {' '.join(COMPRESSIONS)} behind")
    if kind == ".tsv" and asked.csv.delimiter is None:
        asked = replace(asked, csv=replace(asked.csv, delimiter="\t"))
    refuse_other_kind(path, kind)
    is_csv = reader is read_csv
    escape = asked.csv.escape if is_csv else None
    with plain_file(path, asked, asked.csv.encoding if is_csv else UTF_8, escape) as plain:
        if plain != path and asked.csv.encoding == UTF_8:
            refuse_other_kind(plain, kind)
        yield from reader(plain, name, asked)


def refuse_special(path: Path) -> None:
    """Raise InputError for a path that is not a file with content; it is not opened."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{near_file(path)}") from None
    except (OSError, ValueError) as error:  # such as a name that is too long, or has a zero byte
        raise refused(error, f"{shortened(repr(str(path)))}: cannot be a file") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a folder, not a table")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: is a device or a pipe, not a file")


# Tables that are read whole, beside the events: columns by name, each with one type.


@dataclass(frozen=True, slots=True)
class SmallTable:
    """A table, read.

    raw: its columns
    what: what it is in messages, such as `table 'Asset'`
    """

    raw: RawTable
    what: str

    @staticmethod
    def read(given: Any, name: str, what: str) -> SmallTable:
        """A file, a DataFrame, an Arrow table, a list of mappings, or what was read already.

        name: of the source in messages where there is no file

        Raises InputError for a row that cannot be read.
        """
        raw = given if isinstance(given, RawTable) else read_raw(given, None if isinstance(given, str | Path) else name)
        if raw.unreadable:
            first = raw.unreadable[0]
            raise InputError(f"{raw.name}: {first.place}: {first.reason}; it is a row of {what}")
        return SmallTable(raw, what)

    def __len__(self) -> int:
        return len(self.raw)

    def at(self, row: int) -> str:
        """Where a row, from 0, is, for people."""
        place, _ = self.raw.describe(int(self.raw.numbers[row]))
        return f"{self.raw.name}: {place} of {self.what}"

    def refuse_rows(self, is_wrong: NDArray[np.bool_], name: str, problem: str) -> None:
        """Raise InputError for the first row that is wrong in a column."""
        if is_wrong.any():
            raise InputError(f"{self.at(int(np.flatnonzero(is_wrong)[0]))}: {name!r} {problem}")

    def name_of(self, name: str) -> str | None:
        """The column of this name, else the only one that differs in upper and lower case only."""
        if self.raw.has(name):
            return name
        alike = [own for own in self.raw.names if own.casefold() == name.casefold()]
        return alike[0] if len(alike) == 1 else None

    def column(self, name: str, type_: Type) -> pa.Array:
        """The column of this name. Raises InputError where there is none, or a cell is wrong."""
        own = self.name_of(name)
        if own is None:
            there = f"there are {listed(self.raw.names)}" if self.raw.names else "there are no columns"
            raise InputError(
                f"{self.raw.name}: {self.what} needs a column {name!r}; {there}{did_you_mean(name, self.raw.names)}"
            )
        column = self.raw.column(own) if type_ == Type.STRING else self.raw.values(own)
        if type_.kind in (Kind.INTEGER, Kind.FLOAT):
            column = self.raw.with_points(column)
        found = convert(column, type_)
        if found.bad is not None:
            row = int(np.flatnonzero(found.bad)[0])
            raise InputError(f"{self.at(row)}: {own!r} is {self.raw.shown(own, row)}, not {type_}")
        return found.values

    def times(self, name: str, missing: int) -> Integers:
        """The times of a column, µs; `missing` where there is none. Raises InputError."""
        own = self.name_of(name)
        if own is None:
            return np.full(len(self.raw), missing, np.int64)
        times = given_times(self.raw.values(own), USUAL_TIMES)
        if times.bad.any():
            row = int(np.flatnonzero(times.bad)[0])
            raise InputError(f"{self.at(row)}: {own!r} is {self.raw.shown(own, row)}, not a time")
        return np.where(times.micros == NO_TIME, missing, times.micros)
