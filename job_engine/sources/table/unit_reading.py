"""Read data files of Delta tables on a worker, as packed rows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from job_engine.delta.log import data_file
from job_engine.places.place import Place, local_copy
from job_engine.sources.crash_marks import NO_MARKS, WHOLE, CrashMarks, Deadly, death_of
from job_engine.sources.reading import Read, Reading, pack_parts
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.snapshot import position_at
from job_engine.sources.table.table_units import TableFile, TableUnit
from job_engine.wire.packed_rows import RefusedFile, pack_lost, pack_refused, pack_reports
from job_engine.wire.program import Program
from job_engine.wire.reports import Report
from querylang.errors import InputError, counted
from runtime.columns.arrivals import Arrivals, place_of
from runtime.json_reader import json_of_text
from runtime.reading.column_names import needed_names
from runtime.reading.formats.parquet_files import open_parquet

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
            yield from pack_parts([together], self.program, self.reading, by_partition=True)

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
                raise InputError(f"{path}: {reason}") from error

    def _lost(self, file: TableFile, path: Place) -> Iterator[pa.RecordBatch]:
        problem = "the data file no longer exists: it was removed by VACUUM, or by hand"
        if not self.accepts_loss:
            raise InputError(f"{path}: {problem}. To continue without what is lost: ensue run --accept-loss")
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
