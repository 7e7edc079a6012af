"""What the lister asks of folders of files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from job_engine.sources.folder.after_reading import Settled, SettledFile, forget_settled, settle
from job_engine.sources.folder.folder_planner import FolderPlanner
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.pieces import (
    FolderMemory,
    FolderPiece,
    FolderWork,
    TakenFile,
    memory_of,
    piece_of,
    piece_to_plain,
)
from job_engine.sources.folder.task_split import split
from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning

Memories = Mapping[str, FolderMemory]


class PlannedFolders(KindPlanner):
    """The folders of one run; see `KindPlanner`."""

    def __init__(self, sources: Sequence[ListedSource], run: PlannedRun) -> None:
        firsts = None if run.firsts is None else partial(_firsts, run.firsts)
        self._run = run
        self._sources = {source.name: source for source in sources}
        self._planners = {source.name: FolderPlanner(source, firsts) for source in sources}
        self._settled_file = SettledFile.of(run.checkpoint)
        self._settled: dict[str, Settled] = {}
        self._settled_up_to = 0
        self._memories: Memories = {}
        self._is_fixed = False

    @property
    def settles(self) -> bool:
        """As `KindPlanner.settles`."""
        return any(source.after != "keep" for source in self._sources.values())

    def fix_end(self) -> None:
        """As `KindPlanner.fix_end`."""
        self._find(self._memories)
        self._is_fixed = True

    def load(self, memories: Memories) -> None:
        """As `KindPlanner.load`: without what was archived or deleted."""
        self._settled = self._settled_file.read()
        forget_settled(memories, self._settled)
        for name, source in self._sources.items():
            if source.after != "keep" and name in self._settled:
                self._settled[name].left.clear()  # they are tried again

    def begin(self, memories: Memories) -> None:
        """As `KindPlanner.begin`."""
        self._memories = memories
        for name, planner in self._planners.items():
            planner.begin(memories[name])

    def advance(self, pieces: Mapping[str, FolderPiece]) -> None:
        """As `KindPlanner.advance`."""
        for name, piece in pieces.items():
            self._planners[name].advance(piece)

    def drop_gone(self, memories: Memories) -> None:
        """As `KindPlanner.drop_gone`."""
        for name, planner in self._planners.items():
            planner.drop_gone(memories[name])

    def next(self, memories: Memories, report: Report, *, has_ended: bool) -> Planned:
        """As `KindPlanner.next`."""
        if not self._is_fixed:
            self._find(memories)
        found = {
            name: planner.next(memories[name], report, has_ended=has_ended) for name, planner in self._planners.items()
        }
        pieces = {name: piece for name, (piece, _) in found.items()}
        unread = {name: left for _, own in found.values() for name, left in own.items()}
        return Planned(pieces, any(piece.files for piece in pieces.values()), unread=unread)

    def settle(self, memories: Memories, committed: int, report: Report) -> None:
        """As `KindPlanner.settle`: archive or delete what is committed."""
        if committed <= self._settled_up_to:
            return
        for name, source in self._sources.items():
            if source.after == "keep":
                continue
            self._planners[name].leave_out_read(memories[name])
            settled = self._settled.setdefault(name, Settled())
            for path, problem in settle(source, memories[name], committed, settled).items():
                report("not_settled", name, f"{path}: {problem}")
        self._settled_file.write(self._settled)
        self._settled_up_to = committed

    def _find(self, memories: Memories) -> None:
        now = self._run.now()
        for name, planner in self._planners.items():
            planner.find(memories.get(name), now)


class FolderPlanning(SourcePlanning):
    """Folders of files; see `SourcePlanning`."""

    own_type = ListedSource
    work_type = FolderWork
    piece_of = staticmethod(piece_of)
    piece_to_plain = staticmethod(piece_to_plain)
    memory = FolderMemory
    memory_of = staticmethod(memory_of)
    planner = PlannedFolders

    def must_prove(self, own: ListedSource) -> bool:
        """As `SourcePlanning.must_prove`."""
        return own.must_prove

    def tasks(
        self,
        pieces: Mapping[str, FolderPiece],
        sources: Mapping[str, ListedSource],  # noqa: ARG002
        count: int,
        unproven: Collection[str],
    ) -> list[dict[str, FolderWork]]:
        """As `SourcePlanning.tasks`."""
        files = [file for piece in pieces.values() for file in piece.files]
        return [_by_source(share, pieces, unproven) for share in split(files, count)]


PLANNING = FolderPlanning()


def _by_source(
    files: Sequence[TakenFile], pieces: Mapping[str, FolderPiece], unproven: Collection[str]
) -> dict[str, FolderWork]:
    names = dict.fromkeys(file.source for file in files)
    return {
        name: FolderWork(
            tuple(file for file in files if file.source == name), pieces[name].files if name in unproven else None
        )
        for name in names
    }


def _firsts(options: Mapping[str, str], source: ListedSource, files: Sequence[TakenFile]) -> Sequence[int | None]:
    from job_engine.sources.folder.first_arrivals import first_arrivals  # slow to load, and rarely needed

    return first_arrivals(options, source, files)
