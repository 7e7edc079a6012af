"""What the lister asks of tables of Delta."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

from job_engine.delta_log import REPAIR, commit_file, commits, last_checkpoint, read_commit
from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning
from job_engine.sources.source import Unread
from job_engine.sources.table.commits import (
    CommitReading,
    UnreadableTable,
    UnreadCommits,
    commit_reading,
    listed_units,
    position_at,
    refuse_outside_files,
)
from job_engine.sources.table.pieces import (
    ListedFile,
    TableFirsts,
    TableMemory,
    TablePiece,
    TablePosition,
    TableReads,
    TableUnit,
    TableWork,
    unit_tasks,
)
from job_engine.sources.table.settings import DeltaSource
from querylang.errors import InputError
from runtime.json_reader import DamagedJson, part_of, shaped
from runtime.json_shapes import Count

# Decide which commits of Delta tables the next micro-batch reads.
#
# What is decided is in the manifest, so a repeated micro-batch reads the same data files.

WORTH_NOTING = 20
"""Commits without rows after which a position is on record, though nothing is read."""


class _Limit:
    """How much of a source a micro-batch reads: at least one unit.

    is_reached: whether something is left to the next one
    """

    def __init__(self, source: DeltaSource) -> None:
        self._source = source
        self._files = self._bytes = 0
        self.is_reached = False

    def takes(self, files: Sequence[ListedFile]) -> bool:
        count, size = self._files + len(files), self._bytes + sum(item.file.size for item in files)
        most, largest = self._source.max_files, self._source.max_bytes
        is_over = (most is not None and count > most) or (largest is not None and size > largest)
        if is_over and self._files and files:
            self.is_reached = True
            return False
        self._files, self._bytes = count, size
        return True


class CommitPlanner:
    """Plans the commits of one run."""

    def __init__(
        self,
        sources: Sequence[DeltaSource],
        *,
        accepts_loss: bool = False,
        until: Mapping[str, int] | None = None,
        firsts: TableFirsts | None = None,
    ) -> None:
        """Without reading anything.

        until: by source, the last version that is read; others have no last one
        firsts: tells when the records of files arrive; None = their order says nothing
        """
        self._sources = sources
        self._accepts_loss = accepts_loss
        self._until: dict[str, int] = dict(until or {})
        self._snapshots: dict[str, list[tuple[ListedFile, ...]]] = {}
        self._unread = {} if firsts is None else {item.name: self._unread_commits(item, firsts) for item in sources}

    def fix_end(self) -> None:
        """The run reads what is there now, and nothing that comes later."""
        self._until = {source.name: newest_version(source) for source in self._sources}

    def next(self, before: Mapping[str, TablePosition], counts: Mapping[str, int], report: Report) -> TableReads:
        """What follows `before`; `counts`: how many files of each source were read."""
        units: list[TableUnit] = []
        positions = {}
        unread: dict[str, Unread | None] = {}
        for source in self._sources:
            name, known = source.name, before.get(source.name)
            found, position, is_limited = self._of_source(source, known, report)
            number = counts.get(name, 0) + 1
            for files, columns in found:
                units.append(TableUnit(name, number, tuple(item.file for item in files), columns))
                number += len(files)
            left = self.left_behind(source, position, number) if is_limited else None
            if left is not None or (known is not None and known.has_unread):
                unread[name] = left
            positions[name] = replace(position, has_unread=left is not None)
        return TableReads(tuple(units), positions, unread)

    def left_behind(self, source: DeltaSource, position: TablePosition, number: int) -> Unread | None:
        """What the clock has to wait for behind a position; `number`: of the next file."""
        if source.name not in self._unread:
            return None
        units = () if position.units_read is None else self._snapshot(source, position.version)
        return self._unread[source.name].behind(position, units, number)

    def _unread_commits(self, source: DeltaSource, firsts: TableFirsts) -> UnreadCommits:
        def following(position: TablePosition) -> tuple[Sequence[ListedFile], TablePosition] | None:
            return None if self._is_at_end(source, position) else self._listed_commit(source, position, _no_report)

        return UnreadCommits(source, firsts, following)

    def _is_at_end(self, source: DeltaSource, position: TablePosition) -> bool:
        return position.version >= self._until.get(source.name, position.version + 1)

    def is_worth_noting(self, before: Mapping[str, TablePosition], after: TableReads) -> bool:
        """Whether positions have moved so far that they are recorded though nothing is read.

        So is where a job begins with the latest version: the next look would find a later one.
        """
        latest = {source.name for source in self._sources if source.start == "latest"}
        return any(name in latest and name not in before for name in after.positions) or any(
            position.version - (before[name].version if name in before else position.version) >= WORTH_NOTING
            for name, position in after.positions.items()
        )

    def _of_source(
        self, source: DeltaSource, before: TablePosition | None, report: Report
    ) -> tuple[list[tuple[Sequence[ListedFile], Mapping[str, str]]], TablePosition, bool]:
        """What is read, the position behind it, and whether a limit leaves something."""
        position = _begin(source) if before is None else _with_columns(source, before)
        limit = _Limit(source)
        taken: list[tuple[Sequence[ListedFile], Mapping[str, str]]] = []
        if position.units_read is not None:
            units = self._snapshot(source, position.version)[position.units_read :]
            files: Sequence[ListedFile]
            for files in units:
                if not limit.takes(files):
                    return taken, position, True
                taken.append((files, position.columns))
                position = replace(position, units_read=(position.units_read or 0) + 1)
            position = replace(position, units_read=None)
            self._snapshots.pop(source.name, None)
        while not self._is_at_end(source, position):
            try:
                found = self._next_commit(source, position, report)
            except UnreadableTable:
                if taken:
                    break  # what comes before it is read first
                raise
            if found is None or not limit.takes(found[0]):
                break
            files, position = found
            if files:
                taken.append((files, position.columns))
        return taken, position, limit.is_reached

    def _next_commit(
        self, source: DeltaSource, position: TablePosition, report: Report
    ) -> tuple[Sequence[ListedFile], TablePosition] | None:
        """The files of the next commit, and the position behind it; None = there is none yet."""
        found = self._listed_commit(source, position, report)
        if found is not None:
            return found
        gap = _gap(source, position)
        return None if gap is None else ((), self._behind(source, position, gap, report))

    def _listed_commit(
        self, source: DeltaSource, position: TablePosition, report: Report
    ) -> tuple[Sequence[ListedFile], TablePosition] | None:
        """The same, whatever became of a commit that the log does not have."""
        reading = _reading(source, position.version + 1)
        if reading is None:
            return None
        after = _accepted(source, position, reading)
        return self._files(source, reading, after.version, report), after

    def _snapshot(self, source: DeltaSource, version: int) -> list[tuple[ListedFile, ...]]:
        if source.name not in self._snapshots:
            self._snapshots[source.name] = listed_units(source, version)
        return self._snapshots[source.name]

    def _files(
        self, source: DeltaSource, reading: CommitReading, version: int, report: Report
    ) -> tuple[ListedFile, ...]:
        if not reading.changes:
            refuse_outside_files(source, [item.file for item in reading.files])
            return reading.files
        if not source.skips_changes:
            raise UnreadableTable(
                f"source '{source.name}': {source.folder}: version {version} changes or deletes rows. A source reads"
                " what is added; `skip_changes: true` passes over such versions"
            )
        report("skipped_changes", source.name, f"version {version}")
        return ()

    def _behind(self, source: DeltaSource, position: TablePosition, gap: str, report: Report) -> TablePosition:
        """The newest position, where what is between it and another one is lost."""
        if not self._accepts_loss:
            raise UnreadableTable(
                f"source '{source.name}': {source.folder}: {gap}. To continue without what is lost: ensue run"
                " --accept-loss"
            )
        report("lost", source.name, gap)
        found = position_at(source, None, is_read=True)
        return replace(found, began=position.began, is_whole=position.is_whole)


def _no_report(cause: str, source: str, example: str) -> None:
    """Of what is looked at before it is read: it is reported once it is read."""


def _reading(source: DeltaSource, version: int) -> CommitReading | None:
    """A commit; None = it does not exist. Raises UnreadableTable for one that is damaged."""
    try:
        actions = read_commit(source.place, version)
        with part_of(commit_file(source.place, version), REPAIR):
            return None if actions is None else commit_reading(actions)
    except DamagedJson as error:
        raise UnreadableTable(f"source '{source.name}': {error}") from error


def newest_version(source: DeltaSource) -> int:
    """The version of a table."""
    table = source.place
    return max([*commits(table)[-1:], last_checkpoint(table) or 0, 0])


def _begin(source: DeltaSource) -> TablePosition:
    """Where a new job begins."""
    position = _first_position(source)
    return replace(position, began=position.version, is_whole=position.units_read is not None)


def _with_columns(source: DeltaSource, position: TablePosition) -> TablePosition:
    """A position that a job begins at anew, with the columns that the table had there."""
    if position.columns:
        return position
    try:
        found = position_at(source, max(0, position.version), is_read=True)
    except (InputError, UnreadableTable):
        return position  # the log no longer has it: what follows says so
    return replace(position, columns=found.columns)


def began_at(source: DeltaSource, version: int, *, is_whole: bool) -> TablePosition:
    """Where a job has begun, as `TablePosition` says it."""
    found = position_at(source, max(0, version), is_read=not is_whole)
    return replace(found, version=version, began=version, is_whole=is_whole)


def _first_position(source: DeltaSource) -> TablePosition:
    match source.start:
        case "earliest":
            return position_at(source, None, is_read=False)
        case "latest":
            return position_at(source, None, is_read=True)
        case start if start.startswith("@"):
            version = _version_at(source, int(start[1:]))
        case start:
            version = int(start)
    newest = newest_version(source)
    if version > newest + 1:
        raise UnreadableTable(
            f"source '{source.name}': {source.folder}: is at version {newest}, before `start: {version}`"
        )
    found = position_at(source, max(0, min(version, newest)), is_read=True)
    return replace(found, version=version - 1)


def _version_at(source: DeltaSource, moment: int) -> int:
    """The first version that was committed at a time (µs) or later."""
    table = source.place
    known = commits(table)
    for version in known:
        reading = _reading(source, version)
        time = None if reading is None else reading.time
        if time is not None and time * 1000 >= moment:
            if version == known[0] and version > 0:
                raise UnreadableTable(
                    f"source '{source.name}': {source.folder}: the log begins with version {version}, which is later"
                    " than `start`: it does not tell what was there then"
                )
            return version
    return newest_version(source) + 1


def _gap(source: DeltaSource, position: TablePosition) -> str | None:
    """Why the next commit does not exist, if it is not that there is none yet."""
    table = source.place
    checkpoint = last_checkpoint(table)
    if checkpoint is not None and checkpoint > position.version:
        # the next commit may have been written since it was looked for
        if commit_file(table, position.version + 1).exists():
            return None
        return f"the log no longer has version {position.version + 1}; its entries are removed after a time"
    has_last = position.version < 0 or checkpoint == position.version
    if not has_last and not commit_file(table, position.version).exists():
        return f"version {position.version} was read and does not exist: the table was removed or made again"
    return None


def _accepted(source: DeltaSource, position: TablePosition, reading: CommitReading) -> TablePosition:
    """The position behind a commit; raises UnreadableTable if the table is not what it was."""
    version = position.version + 1
    where = f"source '{source.name}': {source.folder}: version {version}"
    if reading.problem is not None:
        raise UnreadableTable(f"{where} {reading.problem}")
    if reading.identity is not None and reading.identity != position.identity and position.version >= 0:
        raise UnreadableTable(f"{where} is of another table: it was made again. Choose a new checkpoint")
    after = replace(position, version=version)
    if reading.columns is None or reading.columns == position.columns:
        return after
    changed = [name for name, kind in position.columns.items() if reading.columns.get(name) != kind]
    new = [name for name in reading.columns if name not in position.columns]
    if changed:
        raise UnreadableTable(
            f"{where} changes the type of column '{changed[0]}', or removes it. Choose a new checkpoint"
        )
    if new and not source.adds_columns:
        raise UnreadableTable(f"{where} adds column '{new[0]}'; `schema_changes: add_columns` allows it")
    return replace(after, columns=reading.columns)


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

    def begun(self, before: TablePiece | None, dropped: Sequence[TablePiece]) -> TablePiece | None:
        """As `SourcePlanning.begun`: the version behind which commits are read.

        A table that is read as a whole has what it had, in a later version as well.
        """
        first = next((piece.position for piece in dropped if piece.position is not None), None)
        is_known = before is not None and before.position is not None
        if first is None or first.began is None or first.is_whole or is_known:
            return None
        # the columns are those behind what is read anew: the next plan looks for those before it
        return TablePiece(replace(first, version=first.began, columns={}, units_read=None, has_unread=False))


PLANNING = TablePlanning()


def _firsts(
    options: Mapping[str, str], source: DeltaSource, files: Sequence[ListedFile], columns: Mapping[str, str]
) -> Sequence[int | None]:
    from job_engine.sources.table.reading import first_arrivals_in_table  # slow to load, rarely needed

    return first_arrivals_in_table(options, source, files, columns)
