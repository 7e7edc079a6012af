"""Decide which files of one folder a micro-batch reads, in which order, and what waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from job_engine.sources.folder.changed_files import WATCHED, ChangeWatch
from job_engine.sources.folder.file_order import first_ones, in_order
from job_engine.sources.folder.folder_listing import FileStamp
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.pieces import FolderMemory, FolderPiece, SourceCount, TakenFile, WaitingFile
from job_engine.sources.folder.source_watch import watch_of
from job_engine.sources.kinds import Report
from job_engine.sources.listing.unread import Unread
from runtime.instants import NO_TIME
from runtime.natural_names import natural_key

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
        """Waiting files as they were, and those of the next ones that were written again since."""
        if self._firsts is None:
            return list(waiting), []
        changed: dict[str, TakenFile] = {}
        for item in waiting[:WATCHED]:
            with suppress(OSError):  # one that was removed is reported when it would be read
                stamp = self._watch.stamp(item.file.path)
                if stamp != item.file.stamp:
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
        except ConnectionError:
            raise  # a store that is away says nothing about the file
        except OSError as error:
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
