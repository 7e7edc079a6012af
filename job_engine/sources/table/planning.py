"""What the lister asks of tables of Delta."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning
from job_engine.sources.table.commit_planner import CommitPlanner
from job_engine.sources.table.delta_source import DeltaSource
from job_engine.sources.table.table_units import (
    ListedFile,
    TableMemory,
    TablePiece,
    TablePosition,
    TableWork,
    unit_tasks,
)
from runtime.json_reader import shaped
from runtime.json_shapes import Count

Memories = Mapping[str, TableMemory]


class PlannedTables(KindPlanner):
    """The tables of one run; see `KindPlanner`."""

    def __init__(self, sources: Sequence[DeltaSource], run: PlannedRun) -> None:
        firsts = None if run.firsts is None else partial(_firsts, run.firsts)
        self._planner = CommitPlanner(sources, accepts_loss=run.accepts_loss, firsts=firsts)

    def fix_end(self) -> None:
        """As `KindPlanner.fix_end`."""
        self._planner.fix_end()

    def next(self, memories: Memories, report: Report, *, has_ended: bool) -> Planned:  # noqa: ARG002
        """As `KindPlanner.next`; data files are counted like others."""
        before = {name: memory.position for name, memory in memories.items() if memory.position is not None}
        found = self._planner.next(before, {name: memory.files for name, memory in memories.items()}, report)
        pieces = {}
        for name, position in found.positions.items():
            units = tuple(unit for unit in found.units if unit.source == name)
            files = units[-1].first + len(units[-1].files) - 1 if units else memories[name].files
            pieces[name] = TablePiece(position, files, units)
        has_moved = self._planner.is_worth_noting(before, found)
        return Planned(pieces, bool(found.units), is_due=has_moved, unread=found.unread)


class _MemoryRow(TypedDict):
    position: TablePosition | None
    files: Count


class TablePlanning(SourcePlanning):
    """Tables of Delta; see `SourcePlanning`."""

    own_type = DeltaSource
    work_type = TableWork
    memory = TableMemory
    planner = PlannedTables

    def memory_of(self, source: str, plain: Any) -> TableMemory:
        """As `SourcePlanning.memory_of`."""
        row = shaped(plain, _MemoryRow)
        return TableMemory(source, row["position"], row["files"])

    def piece_of(self, source: str, plain: Any) -> TablePiece:  # noqa: ARG002
        """As `SourcePlanning.piece_of`."""
        return shaped(plain, TablePiece)

    def tasks(
        self,
        pieces: Mapping[str, TablePiece],
        sources: Mapping[str, DeltaSource],  # noqa: ARG002
        count: int,
        unproven: Collection[str],  # noqa: ARG002
    ) -> list[dict[str, TableWork]]:
        """As `SourcePlanning.tasks`."""
        units = [unit for piece in pieces.values() for unit in piece.units]
        return [
            {
                name: TableWork(tuple(unit for unit in share if unit.source == name))
                for name in dict.fromkeys(unit.source for unit in share)
            }
            for share in unit_tasks(units, count)
        ]


PLANNING = TablePlanning()


def _firsts(
    options: Mapping[str, str], source: DeltaSource, files: Sequence[ListedFile], columns: Mapping[str, str]
) -> Sequence[int | None]:
    from job_engine.sources.table.first_arrivals import first_arrivals_in_table  # slow to load, rarely needed

    return first_arrivals_in_table(options, source, files, columns)
