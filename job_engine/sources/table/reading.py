"""What workers do with tables of Delta."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from job_engine.delta_log import data_file
from job_engine.delta_package import open_table, refuse_missing_package, unknown_settings
from job_engine.errors import LostInput
from job_engine.place import Place, local_copy, place_to_plain
from job_engine.sources.crash_marks import NO_MARKS, WHOLE, CrashMarks, Deadly, death_of
from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.reading import (
    ANY_COLUMN,
    Read,
    Reading,
    earliest,
    of_each,
    of_statistics,
    pack_parts,
    reading_of_source,
)
from job_engine.sources.table.commits import UnreadableTable, position_at, snapshot_units
from job_engine.sources.table.pieces import ListedFile, TableFile, TableUnit, TableWork
from job_engine.sources.table.settings import DeltaSource
from job_engine.wire.packed_rows import RefusedFile, pack_lost, pack_refused, pack_reports
from job_engine.wire.program import Program, load_program
from job_engine.wire.reports import Report
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, PassingError, counted, is_passing, listed
from runtime.columns.arrivals import Arrivals, place_of
from runtime.json_reader import json_of_text
from runtime.reading import RawTable, joined_parts, needed_names, of_columns, open_parquet

# Read data files of Delta tables on a worker, as packed rows.

TYPES = {
    "string": pa.string(),
    "byte": pa.int64(),
    "short": pa.int64(),
    "integer": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Of partition columns, whose values the log has as text. Others stay text."""


@dataclass
class ColumnsOfTable(Container[str]):
    """The columns that a table has by now: what was written before it had one lacks it."""

    source: DeltaSource

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in position_at(self.source, None, is_read=False).columns)

    def __contains__(self, name: object) -> bool:
        """Whether the newest version has a column of this name; its log is read once."""
        return str(name).casefold() in self._names


@dataclass(frozen=True, slots=True)
class UnitReader:
    """Reads units of one source."""

    program: Program
    source: DeltaSource
    reading: Reading
    accepts_loss: bool
    marks: CrashMarks = NO_MARKS

    def packed(self, unit: TableUnit) -> Iterator[pa.RecordBatch]:
        """The packed rows of a unit, all of it together: files of a commit have no order."""
        parts: list[Read] = []
        for number, file in enumerate(unit.files, unit.first):
            path = self._place(file)
            if not path.is_file():
                yield from self._lost(file, path)
                continue
            name = self.reading.prefix + file.path
            with self.marks.reading(str(path)) as is_suspect:
                death = self._death(unit, file, number, path, is_suspect=is_suspect)
                if death is None:
                    parts += self._records(unit, file, number, path)
                    continue
            yield pack_refused(RefusedFile(name, death), [query.title for query in self.program.plan().queries])
            yield pack_reports([Report("malformed_file", self.source.name, 0, f"{file.path}: {death}")])
        if parts:
            remarks = [remark for part in parts for remark in part.remarks]
            together = Read(Arrivals.concat([part.arrivals for part in parts]), remarks)
            yield from pack_parts([together], self.program, self.reading)

    def _death(self, unit: TableUnit, file: TableFile, number: int, path: Place, *, is_suspect: bool) -> str | None:
        """Why a file ends the process that reads it; None = it does not."""
        name = self.reading.prefix + file.path
        known = self.marks.skipped(name).get(WHOLE)
        if known is not None or not is_suspect:
            return known
        death = death_of(lambda: self._records(unit, file, number, path))
        if death is None:
            return None
        rows = "" if file.rows is None else f"; it has {counted(file.rows, 'row')}"
        reason = f"reading it ends the process with {death}{rows}"
        self.marks.skip(Deadly(name, 0, WHOLE, reason))
        return reason

    def _place(self, file: TableFile) -> Place:
        """Where a data file is: in its table's folder, or elsewhere where that is allowed."""
        return data_file(self.source.place, file.path, outside=self.source.outside_files)

    def _records(self, unit: TableUnit, file: TableFile, number: int, path: Place) -> list[Read]:
        name = self.reading.prefix + file.path
        reading = replace(self.reading, source=name, place=place_of(self.reading.rank, number))
        with local_copy(path) as copy:
            try:
                table = table_of_file(copy, file, unit.columns, needed_names(self.program.plan(), reading.columns))
                return list(reading.records(table, self.program.plan(), ColumnsOfTable(self.source)))
            except (InputError, OSError, pa.ArrowException) as error:
                reason = str(error).removeprefix(f"{name}: ").replace(str(copy), str(path))
                is_not_its_own = isinstance(error, PassingError) or is_passing(error)
                raise (PassingError if is_not_its_own else InputError)(f"{path}: {reason}") from error

    def _lost(self, file: TableFile, path: Place) -> Iterator[pa.RecordBatch]:
        problem = "the data file no longer exists: it was removed by VACUUM, or by hand"
        if not self.accepts_loss:
            raise LostInput(f"{path}: {problem}")
        queries = [query.title for query in self.program.plan().queries]
        yield pack_lost(self.reading.prefix + file.path, queries, max(1, file.rows or 1))
        yield pack_reports([Report("lost", self.source.name, 0, f"{file.path}: {problem}")])


def table_of_file(path: Path, file: TableFile, columns: Mapping[str, str], needed_columns: Iterable[str]) -> pa.Table:
    """The columns of a data file that are needed, with those of partitions and later ones.

    columns: as in `TableUnit`
    needed_columns: names, whatever their case
    """
    needed = {name.casefold() for name in needed_columns}
    with open_parquet(path) as parquet:
        present = [name for name in parquet.schema_arrow.names if name.casefold() in needed]
        table, rows = parquet.read(present), parquet.metadata.num_rows
    folded = {name.casefold() for name in present}
    for name, kind in columns.items():
        if name.casefold() not in folded and name.casefold() in needed:
            column = _column(file.partition, name, json_of_text(kind, object), rows)
            table = table.append_column(name, column)
    return table


def _column(partition: Mapping[str, str | None], name: str, kind: object, rows: int) -> pa.Array:
    """The value of a partition in each row; null for a column that the file does not have."""
    value = partition.get(name)
    if value is None:
        return pa.nulls(rows, TYPES.get(kind, pa.null()) if isinstance(kind, str) else pa.null())
    return pa.repeat(value_of_log(value, kind)[0], rows)


def value_of_log(value: str, kind: object) -> pa.Array:
    """A value that the log has as text, in an array; `kind`: as in `TYPES`. Raises ArrowInvalid."""
    type_ = TYPES.get(kind) if isinstance(kind, str) else None
    if type_ is None:
        return pa.array([value])
    is_zoned = kind == "timestamp" and not value.endswith("Z") and "+" not in value
    return pc.cast(pa.array([value + "Z" if is_zoned else value]), type_)


def empty_table(columns: Mapping[str, str]) -> pa.Table:
    """A table without rows that has the columns of a Delta table; what is nested is a struct."""
    types = {name: json_of_text(text, object) for name, text in columns.items()}
    return pa.schema(
        [
            (name, TYPES.get(type_, pa.string()) if isinstance(type_, str) else pa.struct([]))
            for name, type_ in types.items()
        ]
    ).empty_table()


class TableReading(SourceReading):
    """Tables of Delta; see `SourceReading`."""

    def packed(self, own: DeltaSource, work: TableWork, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """As `SourceReading.packed`."""
        reader = UnitReader(run.program, own, run.reading, run.accepts_loss, run.marks)
        for unit in work.units:
            yield from reader.packed(unit)


READING = TableReading()


# Look up when the first record of a table's data file arrives, before the file is read.

_IN_ORDER = frozenset({"byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"})
"""Types of columns whose least value arrives first, unlike that of text."""


def first_arrivals_in_table(
    options: Mapping[str, str], source: DeltaSource, files: Sequence[ListedFile], columns: Mapping[str, str]
) -> list[int | None]:
    """As `first_arrivals`, of data files of a Delta table: by the log, or else by the files.

    columns: as in `TableUnit`
    """
    reading, plan = reading_of_source(options, source.name), load_program(options["program"]).plan()

    def first(item: ListedFile) -> int | None:
        known = _of_log(item, source, columns, reading)
        if known is not None:
            return known
        place = data_file(source.place, item.file.path, outside=source.outside_files)
        own = replace(reading, source=reading.prefix + item.file.path)
        try:
            with local_copy(place) as copy:
                known = of_statistics(copy, own)
                if known is not None:
                    return known
                table = table_of_file(copy, item.file, columns, needed_names(plan, own.columns))
                return own.least_arrival(table, plan, ANY_COLUMN)
        except (FileNotFoundError, InputError, pa.ArrowException):
            return None  # whoever reads it reports it

    return of_each(source.place, first, files)


def _of_log(item: ListedFile, source: DeltaSource, columns: Mapping[str, str], reading: Reading) -> int | None:
    """The least arrival by the log's statistics of a data file; None = not known."""
    value, kind = item.least.get(source.arrival), json_of_text(columns.get(source.arrival, "null"), object)
    if value is None or not isinstance(kind, str) or kind not in _IN_ORDER:
        return None
    try:
        return earliest(value_of_log(value, kind) if isinstance(value, str) else pa.array([value]), reading)
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # damaged


# All rows of a table at one version: what is known beside the stream.


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """A table of Delta that is read whole.

    what: it is in messages, such as `table 'Asset'`
    outside_files: as in `DeltaSource`
    """

    what: str
    place: Place
    outside_files: bool = False

    def newest(self) -> tuple[int, str] | None:
        """The newest version, and the table's identity; None = there is no table.

        Raises InputError, and OSError of a store.
        """
        refuse_missing_package()
        unknown = unknown_settings(self.place)
        if unknown:
            raise InputError(f"{self.what}: {listed(unknown)} cannot be set for Delta tables")
        table = open_table(self.place)
        return None if table is None else (table.version(), str(table.metadata().id))

    def rows(self, version: int, needed: Sequence[str], optional: Sequence[str] = ()) -> RawTable:
        """Its rows at a version: the columns that are needed, and the optional ones that it has.

        Raises InputError, and OSError of a store. Where a needed column is missing, there are no
        rows and all columns: whoever reads them says so.
        """
        folder, store = place_to_plain(self.place)
        source = DeltaSource(self.what, folder, "", outside_files=self.outside_files, store=store)
        name = f"{self.place} at version {version}"
        try:
            columns = position_at(source, version, is_read=True).columns
            files = [file for unit in snapshot_units(source, version) for file in unit]
        except UnreadableTable as error:
            raise InputError(str(error).removeprefix(f"source '{self.what}': ")) from error
        known = {column.casefold() for column in columns}
        is_whole = all(column.casefold() in known for column in needed)
        empty = empty_table(columns)
        if not is_whole or not files:
            return of_columns(name, empty, frozenset(empty.column_names))
        parts, first = [], 1
        for file in files:
            part = self._part(source, file, columns, (*needed, *optional))
            parts.append(_numbered(name, part, first, file.path))
            first += len(part)
        return joined_parts(parts)

    def _part(
        self, source: DeltaSource, file: TableFile, columns: Mapping[str, str], wanted: Sequence[str]
    ) -> pa.Table:
        path = data_file(self.place, file.path, outside=source.outside_files)
        if not path.is_file():
            raise InputError(f"{path}: the data file no longer exists: it was removed by VACUUM, or by hand")
        with local_copy(path) as copy:
            try:
                return table_of_file(copy, file, columns, wanted)
            except (InputError, OSError, pa.ArrowException) as error:
                reason = " ".join(str(error).split()).replace(str(copy), str(path))[:300]
                raise InputError(f"{path}: {reason}") from error


def _numbered(name: str, part: pa.Table, first: int, file: str) -> RawTable:
    """The rows of a data file, which say of themselves where in it they are."""
    raw = of_columns(name, part, frozenset(part.column_names), first)

    def describe(number: int) -> tuple[str, str]:
        return f"row {number - first + 1} of {file}", raw.describe(number)[1]

    return replace(raw, describe=describe)
