"""What the lister asks of folders of files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from job_engine.place import Place
from job_engine.sources.folder.after_reading import Settled, SettledFile, forget_settled, settle
from job_engine.sources.folder.listing import FileStamp, SourceWatch, watch_of
from job_engine.sources.folder.pieces import (
    FolderMemory,
    FolderPiece,
    FolderWork,
    ReadFile,
    SourceCount,
    TakenFile,
    WaitingFile,
    memory_of,
    piece_of,
    piece_to_plain,
    split,
)
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.kinds import KindPlanner, Planned, PlannedRun, Report, SourcePlanning
from job_engine.sources.source import Unread
from querylang.errors import is_passing
from runtime.file_forms import natural_key
from runtime.instants import NO_TIME

# Notice that a file has changed since it was read: what was added is never read.

WATCHED = 1000
"""Number of files that are looked at before each micro-batch: those that were read last."""


class ChangeWatch:
    """The files of a source that were read last."""

    def __init__(self) -> None:
        self._watched: deque[tuple[str, int]] = deque(maxlen=WATCHED)

    def watch(self, files: Iterable[TakenFile]) -> None:
        """Look at these from now on."""
        self._watched.extend((file.path, file.number) for file in files)

    def watch_all(self, memory: FolderMemory) -> None:
        """Look at those that were read last before this run."""
        recent = [(item.manifest, path) for path, item in memory.files.items() if item.manifest]
        self._watched.extend((path, 0) for _, path in sorted(recent)[-WATCHED:])

    def found(self, watch: SourceWatch, memory: FolderMemory, report: Report) -> list[TakenFile]:
        """The files that have changed since they were looked at last, each reported."""
        changed: list[TakenFile] = []
        for path, number in self._watched:
            known = memory.files.get(path)
            if known is None:
                continue
            try:
                stamp = watch.stamp(path)
            except OSError:
                continue  # removed after it was read, which is nobody's loss
            if stamp != known.seen:
                is_same = stamp.inode != 0 and stamp.inode == known.seen.inode  # an object is only ever replaced
                is_grown = is_same and stamp.size > known.seen.size
                report("grown" if is_grown else "replaced", memory.source, path)
                memory.files[path] = ReadFile(known.stamp, stamp, known.manifest, known.number)
                changed.append(TakenFile(memory.source, number, path, stamp))
        return changed


# The order in which the files of a source are read, and how many of them at once.


def in_order(source: ListedSource, files: Mapping[str, FileStamp]) -> list[str]:
    """The paths in the source's order."""
    if source.order == "name":
        return sorted(files, key=natural_key)
    return sorted(files, key=lambda path: (files[path].modified, natural_key(path)))


def first_ones(source: ListedSource, paths: Sequence[str], files: Mapping[str, FileStamp]) -> Sequence[str]:
    """As many of the ordered paths as a micro-batch reads; at least one."""
    count = len(paths) if source.max_files is None else min(len(paths), source.max_files)
    if source.max_bytes is None:
        return paths[:count]
    size = 0
    for place, path in enumerate(paths[:count]):
        size += files[path].size
        if place and size > source.max_bytes:
            return paths[:place]
    return paths[:count]


_SAMPLE_FILES = 100
_SAMPLE_BYTES = 64 << 20
"""How much of a source is read for the types of its columns, but at least one file."""


def first_files(source: ListedSource) -> list[Place]:
    """The files that a new job reads first, in order, as many as a sample has."""
    if source.creates and not source.place.exists():
        return []  # it is made when the job begins
    found = watch_of(replace(source, min_age=0)).new_files(lambda _: False, 0)
    ordered = in_order(source, {path: stamp for path, stamp in found.files.items() if stamp.size})
    if not ordered:
        return []
    sample = replace(source, max_files=_SAMPLE_FILES, max_bytes=_SAMPLE_BYTES)
    return [source.file(path) for path in first_ones(sample, ordered, found.files)]


# Decide which files of one folder a micro-batch reads, in which order, and what waits.

FirstArrivals = Callable[[ListedSource, Sequence[TakenFile]], Sequence[int | None]]
"""Gives the least arrival time, µs, of the records of each file; None = it can bring none."""


class FolderPlanner:
    """Plans the files of one source in one run.

    firsts: tells when the records of files arrive; None = their order says nothing
    """

    def __init__(self, source: ListedSource, firsts: FirstArrivals | None) -> None:
        self._source = source
        self._firsts = firsts if source.has_clock else None
        self._watch = watch_of(source)
        self._pending: dict[str, FileStamp] = {}
        self._skipped: dict[str, str] = {}
        self._told: set[str] = set()
        self._changes = ChangeWatch()
        self._changed: list[TakenFile] = []
        self._device: int | None = None

    def find(self, memory: FolderMemory | None, now: int) -> None:
        """List the folder; `memory`: None = what was read is not known yet."""
        read: Mapping[str, object] = {} if memory is None else memory.files
        found = self._watch.new_files(lambda path: path in self._pending or path in read, now)
        self._pending.update(found.files)
        self._skipped.update(found.skipped)

    def begin(self, memory: FolderMemory) -> None:
        """Look from now on at the files that were read last before this run."""
        self._changes.watch_all(memory)

    def advance(self, piece: FolderPiece) -> None:
        """Look from now on at the files of a piece."""
        self._changes.watch(piece.files)

    def leave_out_read(self, memory: FolderMemory) -> None:
        """Take out files of an earlier run, found while the list was not loaded: they go now."""
        known = memory.files
        for path in [path for path, stamp in self._pending.items() if path in known and known[path].stamp == stamp]:
            del self._pending[path]

    def drop_gone(self, memory: FolderMemory) -> None:
        """Forget files that were removed, if the folder is on the device that the run has read.

        Otherwise files that are not there now may come back, and would be read again.
        """
        if _device(self._source) == self._device:
            memory.drop_gone(self._watch.names())

    def next(
        self, memory: FolderMemory, report: Report, *, has_ended: bool
    ) -> tuple[FolderPiece, Mapping[str, Unread | None]]:
        """The next files, with the stamps that they have now; and what waits behind them."""
        for path, problem in sorted(self._skipped.items()):
            if path not in self._told:
                self._told.add(path)
                report("not_a_file", self._source.name, f"{path}: {problem}")
        self._skipped = {}
        if not has_ended:
            self._changed += self._changes.found(self._watch, memory, report)
        piece, unread = self._taken(memory, report)
        piece = replace(piece, changed=tuple(self._changed))
        self._changed = []
        return piece, unread

    def _taken(self, memory: FolderMemory, report: Report) -> tuple[FolderPiece, Mapping[str, Unread | None]]:
        source, pending, waiting = self._source, self._pending, memory.waiting
        for path in [path for path in pending if path in memory.files or path in waiting]:
            del pending[path]  # of an earlier run: the list was not loaded when it was found
        ordered = in_order(source, pending)
        chosen = first_ones(source, ordered, pending)
        if not waiting and (len(chosen) == len(ordered) or self._firsts is None):
            files, count = self._numbered(chosen, memory.count, report)
            return FolderPiece(count, tuple(files)), {}
        known_before = [item.item for item in waiting.values()]
        old, again = self._looked_up_again(sorted(known_before, key=lambda item: item.order))
        numbered, count = self._numbered(ordered, memory.count, report)
        new = [*self._looked_up(numbered, old), *again]
        listed = sorted((*old, *new), key=lambda item: item.order)
        files, dropped = self._first_of(listed, report)
        gone = {file.path for file in files}.union(dropped)
        piece = FolderPiece(
            count,
            tuple(files),
            waiting=tuple(item for item in new if item.file.path not in gone),
            dropped=tuple(path for path in dropped if path in waiting),
        )
        return piece, {source.name: unread_of([item for item in listed if item.file.path not in gone])}

    def _numbered(
        self, paths: Sequence[str], count: SourceCount, report: Report
    ) -> tuple[list[TakenFile], SourceCount]:
        """These files in order, with their numbers, without those that were removed."""
        found: list[TakenFile] = []
        for path in paths:
            del self._pending[path]
            stamp = self._stamp(path, report)
            if stamp is not None:
                self._device = _device(self._source)
                count = self._counted(count, path, report)
                found.append(TakenFile(self._source.name, count.files, path, stamp))
        return found, count

    def _looked_up(self, files: Sequence[TakenFile], old: Sequence[WaitingFile]) -> list[WaitingFile]:
        """New files with their first arrivals; one that can bring no records has that before it.

        old: those that wait
        """
        together = {file.path: file.stamp for file in (*(item.file for item in old), *files)}
        if self._firsts is None or len(first_ones(self._source, list(together), together)) == len(together):
            return [WaitingFile(file, NO_TIME) for file in files]  # all of them are read now
        found: list[WaitingFile] = []
        before = NO_TIME
        for file, first in zip(files, self._firsts(self._source, files), strict=True):
            before = before if first is None else first
            found.append(WaitingFile(file, before))
        return found

    def _looked_up_again(self, waiting: Sequence[WaitingFile]) -> tuple[list[WaitingFile], list[WaitingFile]]:
        """Waiting files as they were, and those of the next ones that are to be looked up: which
        were written again, or have no known arrival.
        """
        if self._firsts is None:
            return list(waiting), []
        changed: dict[str, TakenFile] = {}
        for item in waiting[:WATCHED]:
            with suppress(OSError):  # one that was removed is reported when it would be read
                stamp = self._watch.stamp(item.file.path)
                if stamp != item.file.stamp or item.first == NO_TIME:
                    changed[item.file.path] = replace(item.file, stamp=stamp)
        firsts = self._firsts(self._source, list(changed.values())) if changed else ()
        again = zip(changed.values(), firsts, strict=True)
        return (
            [item for item in waiting if item.file.path not in changed],
            [WaitingFile(file, NO_TIME if first is None else first) for file, first in again],
        )

    def _first_of(self, listed: Sequence[WaitingFile], report: Report) -> tuple[list[TakenFile], list[str]]:
        """The listed files that a micro-batch reads, at least one, and the removed ones."""
        taken: list[TakenFile] = []
        dropped: list[str] = []
        size = 0
        for item in listed:
            if taken and len(taken) == self._source.max_files:
                break
            stamp = self._stamp(item.file.path, report)
            if stamp is None:
                dropped.append(item.file.path)
                continue
            size += stamp.size
            if taken and self._source.max_bytes is not None and size > self._source.max_bytes:
                break
            self._device = _device(self._source)
            taken.append(replace(item.file, stamp=stamp))
        return taken, dropped

    def _stamp(self, path: str, report: Report) -> FileStamp | None:
        """The file's stamp now; None = it was removed before it was read."""
        try:
            return self._watch.stamp(path)
        except OSError as error:
            if is_passing(error):  # it says nothing about the file
                raise
            report("lost", self._source.name, f"{path}: was removed before it was read: {error.strerror}")
            return None

    def _counted(self, count: SourceCount, path: str, report: Report) -> SourceCount:
        is_larger = not count.largest or natural_key(path) > natural_key(count.largest)
        if self._source.order == "name" and not is_larger:
            report("smaller_name", self._source.name, f"{path} after {count.largest}")
        return replace(count, files=count.files + 1, largest=path if is_larger else count.largest)


def unread_of(left: Sequence[WaitingFile]) -> Unread | None:
    """What is left, in order of arrival, as the clock has to know it."""
    if not left:
        return None
    return Unread(left[0].first, min(item.file.number for item in left), left[0].file.path)


def _device(source: ListedSource) -> int | None:
    """The number of the device that a source's folder is on; None = the folder is not there."""
    try:
        return source.place.stat().st_dev
    except OSError:
        return None


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

    def begun(self, before: FolderPiece | None, dropped: Sequence[FolderPiece]) -> FolderPiece | None:  # noqa: ARG002
        """As `SourcePlanning.begun`: what is planned anew waits, so a removed file is missed."""
        waiting = {file.path: WaitingFile(file, NO_TIME) for piece in dropped for file in piece.files}
        waiting |= {item.file.path: item for piece in dropped for item in piece.waiting}
        return FolderPiece(dropped[-1].count, waiting=tuple(waiting.values())) if waiting else None

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
    from job_engine.sources.folder.reading import first_arrivals  # slow to load, and rarely needed

    return first_arrivals(options, source, files)
