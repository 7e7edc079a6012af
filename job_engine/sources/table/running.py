"""What a driver asks of tables of Delta, before a job starts and beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from job_engine.delta.log import fields_of, refuse_unreadable
from job_engine.delta.package import open_table, refuse_missing_package
from job_engine.places.place import Place
from job_engine.sources.again import Again, PiecesAgain
from job_engine.sources.backlog import SourceBacklog
from job_engine.sources.kinds import FirstTables, SourceRunning
from job_engine.sources.source import Source
from job_engine.sources.table.commit_planner import CommitPlanner
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.first_arrivals import first_arrivals_in_table
from job_engine.sources.table.snapshot import position_at
from job_engine.sources.table.table_units import TableMemory, TablePosition
from job_engine.sources.table.tables_again import table_pieces
from job_engine.sources.table.unit_reading import TYPES
from querylang.errors import InputError, did_you_mean, listed
from runtime.json_reader import json_of_text, shaped
from runtime.reading.column_names import ColumnNames


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
        return FirstTables((), [_empty_table(position_at(source.own, None, is_read=False).columns)], [source.name])

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


def _empty_table(columns: Mapping[str, str]) -> pa.Table:
    """A table without rows that has the columns of a Delta table; what is nested is a struct."""
    types = {name: json_of_text(text, object) for name, text in columns.items()}
    return pa.schema(
        [
            (name, TYPES.get(type_, pa.string()) if isinstance(type_, str) else pa.struct([]))
            for name, type_ in types.items()
        ]
    ).empty_table()
