"""Event tables as arrivals, for a plan.

Columns of a table:

at: arrival time
event: an event type, or an event written as text
ts: source time
source, partition, offset: where the row came from
start, end, shape: of events that are intervals

All others are fields of events, by name. A row that cannot be read becomes a MALFORMED record that
says where and why.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, PassingError, did_you_mean, is_passing, listed, near_file
from querylang.plan.expression import Kind, Type
from querylang.plan.model import Plan
from querylang.system_errors import has_way_out, refused
from runtime.column_types import Integers
from runtime.columns.arrivals import Arrivals
from runtime.file_forms import COMPRESSIONS, EVERYTHING, UTF_8, Asked, keys_of, kind_of, path_of, shortened, shown_name
from runtime.instants import NO_TIME
from runtime.policies.settings_text import USUAL_TIMES
from runtime.reading import plan_needs
from runtime.reading.assembly import assemble, in_order_of_arrival, read_times
from runtime.reading.column_names import (
    ARRIVAL,
    SOURCE,
    STANDARD,
    TYPE,
    ColumnNames,
    Roles,
    find_roles,
    needed_names,
    with_names,
)
from runtime.reading.conversion import convert
from runtime.reading.field_columns import check_columns, read_fields, without_unreadable
from runtime.reading.formats.arrow_tables import read_arrow, read_frame
from runtime.reading.formats.csv_files import read_csv
from runtime.reading.formats.encodings import BrokenCell, plain_file, refuse_other_kind, without_broken_text
from runtime.reading.formats.json_files import read_json
from runtime.reading.formats.messages import Messages, read_messages
from runtime.reading.formats.parquet_files import read_parquet
from runtime.reading.formats.python_rows import of_mappings, read_yaml
from runtime.reading.formats.raw_table import RawTable, joined_parts, numbered_from, one_line, with_keys
from runtime.reading.remarks import Refusals, Remark, RemarkKind, warning_of, warnings_of_columns
from runtime.reading.row_kinds import read_kinds, refuse_types
from runtime.timestamps import given_times

# Read any table: a file, a table in memory, or a list of mappings.

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


SUFFIXES = tuple(FORMATS)
"""How the names of files end that can be tables."""


def is_table(name: str) -> bool:
    """Whether a file of this name can be a table, compressed or not."""
    return kind_of(Path(name))[0] in FORMATS


@dataclass(frozen=True, slots=True)
class TableRecords:
    """The records of a table.

    arrivals: the records
    numbers: by record: its number in the table, from 1
    is_history: the table has no arrival times; records arrive at their source time, sorted by it
    has_offsets: a column says the offsets: they order records that arrive together
    remarks: what may surprise people
    """

    arrivals: Arrivals
    numbers: NDArray[np.int64]
    is_history: bool
    has_offsets: bool = False
    remarks: tuple[Remark, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The remarks, a line each."""
        return tuple(remark.text for remark in self.remarks)


def read_arrivals(table: Any, plan: Plan, names: ColumnNames = STANDARD, *, source: str | None = None) -> Arrivals:
    """Read a whole table for a plan.

    table: a path, a pandas, Polars or Arrow table, or a list of mappings
    names: names of columns, instead of `at`, `event`, `ts`
    source: the source's name if the table has no such column; None = the file's name

    Without an arrival column the table is history: rows arrive at their source time, in its order.
    Raises InputError for anything that is not a table, and for a column that is missing.
    """
    return read_table(table, plan, names, source).arrivals


def read_table(
    table: Any,
    plan: Plan,
    names: ColumnNames,
    source: str | None = None,
    place: int = 0,
    progress: Progress | None = None,
) -> TableRecords:
    """As `read_arrivals`, with what else is known about the table; `place` as in `Arrivals`."""
    return _read(read_raw(table, source, _asked(plan, names), progress), plan, names, place)


def read_following(table: Any, plan: Plan, names: ColumnNames, source: str, first: int, before: int) -> TableRecords:
    """As `read_table`, of rows that follow others of their source.

    first: the number of the first row
    before: arrival, µs, of the row before it; NO_TIME = there is none
    """
    return _read(numbered_from(read_raw(table, source, _asked(plan, names)), first), plan, names, 0, before)


def iter_arrivals(
    table: Any, plan: Plan, names: ColumnNames = STANDARD, *, source: str | None = None, place: int = 0
) -> Iterator[Arrivals]:
    """As `read_arrivals`, in parts: files in blocks, anything else at once.

    place: `_place` of all records, as in `Arrivals`

    Each part is sorted by arrival. A part may begin before the one before it ends.
    """
    for part in iter_table(table, plan, names, source, place):
        yield part.arrivals


def iter_table(
    table: Any,
    plan: Plan,
    names: ColumnNames,
    source: str | None = None,
    place: int = 0,
    rows: int | None = None,
) -> Iterator[TableRecords]:
    """As `iter_arrivals`, with what else is known about each part.

    rows: most rows of a part, if the reader can choose; None = as it likes
    """
    before = NO_TIME
    for part in iter_raw(table, source, _asked(plan, names, rows)):
        read = _read(part, plan, names, place, before)
        if len(read.arrivals):
            before = int(read.arrivals.system("arrival")[np.argmax(read.numbers)])
        yield read


def iter_arrival_times(
    table: Any, plan: Plan, names: ColumnNames, source: str | None = None
) -> Iterator[NDArray[np.int64]]:
    """When the rows of a table arrive, µs, in parts as of `iter_arrivals`; but no rows are made.

    A row that does not say it is left out, unless a whole part does not: then all of it is read.
    """
    role = names.of(ARRIVAL)
    if role is not None:
        wanted = frozenset((role.casefold(),))
        for raw in iter_raw(table, source, replace(names.asked(wanted=wanted), only=wanted)):
            known = _arrival_times(names.as_written(with_names(raw, [role])), role, names)
            if not len(known):
                break
            yield known
        else:
            return
    for part in iter_arrivals(table, plan, names, source=source):
        if len(part):
            yield part.system("arrival")


def _arrival_times(raw: RawTable, role: str, names: ColumnNames) -> NDArray[np.int64]:
    """Those that a table says."""
    if not raw.has(role):
        return np.empty(0, np.int64)
    micros = given_times(raw.column(role), names.times).micros
    return micros[micros != NO_TIME]


def names_of_columns(path: Path) -> Collection[str]:
    """The names of the columns that a file begins with; raises InputError."""
    return next((part.names for part in iter_raw(path)), ())


def _asked(plan: Plan, names: ColumnNames, rows: int | None = None) -> Asked:
    """What the readers of files need to know about a plan."""
    wanted = frozenset(name.casefold() for name in needed_names(plan, names))
    return names.asked(texts_of_roles(names)[:1], wanted, rows)


def texts_of_roles(names: ColumnNames) -> tuple[str, ...]:
    """The columns of roles that are text also where they are declared as bytes: type and source."""
    return tuple(name for role in (TYPE, SOURCE) if (name := names.of(role)) is not None)


def _read(raw: RawTable, plan: Plan, names: ColumnNames, place: int, before: int = NO_TIME) -> TableRecords:
    """Run the stages of reading; the first reason to refuse a row is the one that is reported."""
    needed = needed_names(plan, names)
    raw, broken = without_broken_text(
        names.as_written(with_names(raw, needed)), needed, texts_of_roles(names), names.csv
    )
    refusals, allowed = Refusals(raw), plan_needs.leniency(plan, names.inferred, names.unread)
    _refuse_broken(broken, plan, allowed, refusals)
    roles = find_roles(raw, names, has_intervals=bool(plan_needs.interval_events(plan)))
    if names.is_typeless:
        refuse_types(raw, plan, refusals)
    kinds = read_kinds(raw, plan, roles.type, refusals, names.elsewhere)
    if names.is_mixed:
        kinds = without_unreadable(raw, plan, roles, kinds, refusals, names.elsewhere)
    check_columns(raw, plan, roles, kinds, names.elsewhere)
    fields = read_fields(raw, plan, kinds, names.times, refusals, allowed)
    times = read_times(raw, plan, roles, kinds, fields, names.times, refusals)
    timed = kinds.is_event_of(plan_needs.timed_events(plan), plan)
    odd_times = [*warnings_of_columns(raw, _time_columns(roles, plan), names.times)]
    implausible = warning_of(raw.name, raw.numbers, times.source, times.arrival, timed)
    odd_times += [] if implausible is None or odd_times else [implausible]
    if not odd_times and not roles.is_history:
        unused = plan_needs.unused_source_time(plan, names.source_time)
        odd_times += [] if unused is None else [Remark(RemarkKind.IDLE_COLUMN, names.source_time or "", 1, unused)]
    records = assemble(raw, plan, roles, kinds, fields, times, refusals, place)
    arrivals, numbers = in_order_of_arrival(records, before)
    return TableRecords(arrivals, numbers, roles.is_history, records.has_offsets, (*refusals.notes(), *odd_times))


def _refuse_broken(cells: Sequence[BrokenCell], plan: Plan, allowed: plan_needs.Leniency, refusals: Refusals) -> None:
    """Refuse the rows with text that is not UTF-8, unless no query reads it."""
    for cell in cells:
        uses = [(event.name, field) for event in plan.events for field in event.fields if field.name == cell.column]
        if uses and all((event, field.name) in allowed.unread for event, field in uses):
            refusals.note(cell.column, cell.row, cell.reason)
        else:
            refusals.refuse(cell.row, cell.reason)


def _time_columns(roles: Roles, plan: Plan) -> list[str]:
    """The columns that some query reads times from."""
    named = [name for name in (roles.arrival, roles.source_time, roles.start) if name is not None]
    return list(dict.fromkeys([*named, *sorted(field for _, field in plan_needs.source_time_fields(plan))]))
