"""The data files of Delta tables that a job has read, to be read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_backend.job.history.pieces import Piece
from spark_backend.sources.delta.commit_planner import CommitPlanner
from spark_backend.sources.delta.delta_source import DeltaSource
from spark_backend.sources.delta.snapshot import UnreadableTable, snapshot_units
from spark_backend.sources.delta.table_units import TableFile, TablePosition, TableUnit
from spark_backend.sources.listing.file_tasks import FileTask

Unit = tuple[tuple[TableFile, ...], Mapping[str, str]]


def table_pieces(
    source: DeltaSource, before: TablePosition | None, read: TablePosition, count: int
) -> tuple[list[Piece], list[str]]:
    """The pieces of a source, and what is missing; parameters as of `pieces_between`.

    count: how many data files the job has read
    """
    whole = replace(source, max_files=None, max_bytes=None)
    try:
        units = _units(whole, before, read)
    except UnreadableTable as error:
        return [], [str(error).partition(". To continue")[0]]
    number = max(1, count + 1 - sum(len(files) for files, _ in units))
    pieces = []
    for files, columns in units:
        unit = TableUnit(source.name, number, files, columns)
        number += len(files)
        pieces.append(Piece(source.name, unit.size, FileTask(units=(unit,))))
    return pieces, []


def _units(source: DeltaSource, before: TablePosition | None, read: TablePosition) -> Sequence[Unit]:
    if read.units_read is not None:
        done = 0 if before is None else before.units_read or 0
        return [(files, read.columns) for files in snapshot_units(source, read.version)[done : read.units_read]]
    if before is not None:
        return _commits(source, before, read)
    try:  # as the job has read them, if the log still tells all
        found = _commits(replace(source, start="0"), None, read)
    except UnreadableTable:
        found = []
    if found and all(_exists(source, file) for files, _ in found for file in files):
        return found
    return [(files, read.columns) for files in snapshot_units(source, read.version)]


def _commits(source: DeltaSource, before: TablePosition | None, read: TablePosition) -> list[Unit]:
    planner = CommitPlanner([source], until={source.name: read.version})
    positions = {} if before is None else {source.name: before}
    found = planner.next(positions, {}, lambda *_: None)
    return [(unit.files, unit.columns) for unit in found.units]


def _exists(source: DeltaSource, file: TableFile) -> bool:
    return ":/" in file.path or (source.place / file.path).is_file()
