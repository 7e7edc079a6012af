"""What a driver asks of tables of Delta, before a job starts and beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from job_engine.delta_log import fields_of, is_below, refuse_unreadable
from job_engine.delta_package import open_table, refuse_missing_package
from job_engine.place import Place
from job_engine.sources.kinds import FirstTables, SourceRunning
from job_engine.sources.source import Again, PieceAgain, PiecesAgain, Source, SourceBacklog, Unread
from job_engine.sources.table.commits import UnreadableTable, position_at, snapshot_units
from job_engine.sources.table.pieces import (
    ListedFile,
    TableFile,
    TableFirsts,
    TableMemory,
    TablePosition,
    TableUnit,
    TableWork,
)
from job_engine.sources.table.planning import CommitPlanner, began_at
from job_engine.sources.table.reading import empty_table, first_arrivals_in_table
from job_engine.sources.table.settings import DeltaSource
from querylang.errors import InputError, did_you_mean, listed
from runtime.json_reader import shaped
from runtime.reading import ColumnNames

# The data files of Delta tables that a job has read, to be read again.

Unit = tuple[tuple[TableFile, ...], Mapping[str, str]]


def table_pieces(
    source: DeltaSource, memory: TableMemory, before: TablePosition | None, firsts: TableFirsts | None = None
) -> PiecesAgain:
    """The pieces of a source, and what is missing.

    before: the position up to which all has been read again already; None = nothing has
    firsts: tells when the records of data files arrive; None = their order says nothing
    """
    read = memory.position
    if read is None:
        return PiecesAgain()
    whole = replace(source, max_files=None, max_bytes=None)
    try:
        units, gaps = _units(whole, before, read)
    except UnreadableTable as error:
        return PiecesAgain(gaps=[str(error).partition(". To continue")[0]])
    number = max(1, memory.files + 1 - sum(len(files) for files, _ in units))
    found = []
    for files, columns in units:
        found.append(TableUnit(source.name, number, files, columns))
        number += len(files)
    if firsts is None or (len(found) < 2 and not read.has_unread):
        return PiecesAgain([_piece(unit) for unit in found], gaps)
    left = None
    if read.has_unread:
        left = CommitPlanner([source], firsts=firsts).left_behind(source, read, memory.files + 1)
    return PiecesAgain(list(_with_unread(source, found, left, firsts))[::-1], gaps)


def _piece(unit: TableUnit) -> PieceAgain:
    return PieceAgain(unit.source, unit.size, TableWork((unit,)))


def _with_unread(
    source: DeltaSource, units: Sequence[TableUnit], left: Unread | None, firsts: TableFirsts
) -> Iterator[PieceAgain]:
    """Pieces from the last to the first, each with what is left behind it: time waits for that.

    left: behind the last one, what the job has not read
    """
    for unit in reversed(units):
        yield replace(_piece(unit), unread={source.name: left})
        for file, first in zip(
            unit.files, firsts(source, [ListedFile(file) for file in unit.files], unit.columns), strict=True
        ):
            if first is not None and (left is None or first < left.first):
                left = Unread(first, unit.first, file.path)
        left = left and replace(left, number=unit.first)


def _units(source: DeltaSource, before: TablePosition | None, read: TablePosition) -> tuple[Sequence[Unit], list[str]]:
    """The units that the job has read, and what is missing; raises UnreadableTable."""
    if read.units_read is not None:
        done = 0 if before is None else before.units_read or 0
        return [(files, read.columns) for files in snapshot_units(source, read.version)[done : read.units_read]], []
    if before is not None:
        return _checked(source, _commits(source, before, read))
    if read.began is None and source.start != "earliest":
        raise UnreadableTable(f"source '{source.name}': an older release has not written down where it began to read")
    # as the job has read them, if the log still tells all
    is_whole, began = (True, 0) if read.began is None else (read.is_whole, read.began)
    try:
        found, gaps = _checked(source, _commits(source, began_at(source, began, is_whole=is_whole), read))
    except UnreadableTable:
        if not is_whole:
            raise
        found, gaps = [], []
    if is_whole and (gaps or not found):
        return [(files, read.columns) for files in snapshot_units(source, read.version)], []
    return found, gaps


def _checked(source: DeltaSource, found: list[Unit]) -> tuple[list[Unit], list[str]]:
    """The same, and which data files no longer exist."""
    lost = [file.path for files, _ in found for file in files if not _exists(source, file)]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return found, [f"source '{source.name}': the data file {lost[0]}{more} no longer exists"] if lost else []


def _commits(source: DeltaSource, after: TablePosition, read: TablePosition) -> list[Unit]:
    planner = CommitPlanner([source], until={source.name: read.version})
    found = planner.next({source.name: after}, {}, lambda *_: None)
    return [(unit.files, unit.columns) for unit in found.units]


def _exists(source: DeltaSource, file: TableFile) -> bool:
    return not is_below(file.path) or (source.place / file.path).is_file()


class RunningTable(SourceRunning):
    """Tables of Delta; see `SourceRunning`."""

    def refuse_unreadable(self, source: Source) -> None:
        """As `SourceRunning.refuse_unreadable`: no table, or one that asks too much of readers."""
        own: DeltaSource = source.own
        refuse_missing_package()
        table = open_table(own.place)
        if table is None:
            raise InputError(
                f"{own.place}: the source '{source.name}' is not a Delta table: it has no folder '_delta_log'"
            )
        refuse_unreadable(own.place, table)
        columns = [field["name"] for field in fields_of(table)]
        if own.arrival.casefold() not in {column.casefold() for column in columns}:
            raise InputError(
                f"{own.place}: the source '{source.name}' has no column '{own.arrival}' for its 'arrival'"
                f"{did_you_mean(own.arrival, columns) or f'; it has {listed(columns)}'}"
            )

    def first_tables(self, source: Source, names: ColumnNames, copies: Path, most: int | None) -> FirstTables:  # noqa: ARG002
        """As `SourceRunning.first_tables`: the log says which columns there are."""
        return FirstTables((), [empty_table(position_at(source.own, None, is_read=False).columns)], [source.name])

    def backlog(self, own: DeltaSource, memory: TableMemory, checkpoint: Place) -> SourceBacklog:  # noqa: ARG002
        """As `SourceRunning.backlog`."""
        if not own.folder:
            return SourceBacklog(own.name, problem="a catalog says where the table is, once the job has started")
        planner = CommitPlanner([replace(own, max_files=None, max_bytes=None)], accepts_loss=True)
        known = {} if memory.position is None else {own.name: memory.position}
        files = [file for unit in planner.next(known, {}, lambda *_: None).units for file in unit.files]
        return SourceBacklog(own.name, files=len(files), bytes=sum(file.size for file in files))

    def done(self, memory: TableMemory) -> Any:
        """As `SourceRunning.done`: its position."""
        return memory.position and asdict(memory.position)

    def again(self, own: DeltaSource, memory: TableMemory, asked: Again) -> PiecesAgain:
        """As `SourceRunning.again`."""
        before = None if asked.before is None else shaped(asked.before, TablePosition)
        firsts = None if asked.firsts is None else partial(first_arrivals_in_table, asked.firsts)
        return table_pieces(own, memory, before, firsts)


RUNNING = RunningTable()
