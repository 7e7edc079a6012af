"""The files that a job has read, to be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from job_engine.sources.again import Again, PieceAgain, PiecesAgain
from job_engine.sources.folder.folder_planner import FirstArrivals, unread_of
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.pieces import FolderMemory, FolderWork, ReadFile, TakenFile, WaitingFile
from querylang.errors import counted, listed
from runtime.instants import NO_TIME
from runtime.json_reader import shaped
from runtime.timestamps import format_time

MOST_BYTES = 32 << 20
"""Of files of a source in one piece."""

MOST_FILES = 200


def file_pieces(source: ListedSource, memory: FolderMemory, asked: Again, firsts: FirstArrivals | None) -> PiecesAgain:
    """The pieces of a source, and what is missing.

    asked: `before` has the paths of files
    firsts: tells when the records of files arrive; None = their order says nothing
    """
    known = frozenset(() if asked.before is None else shaped(asked.before, list[str]))
    files = memory.files
    waiting = [item.item for item in memory.waiting.values()]
    count = memory.count.files - len(waiting) if memory.count.files else len(files)
    first = count - len(files) + 1  # those that the list has forgotten were the first ones, or so
    dropped = max(0, first - 1) if not known else 0
    missing: list[tuple[str, ReadFile]] = []
    there: list[tuple[TakenFile, bool]] = []
    for number, (path, file) in enumerate(files.items(), max(1, first)):
        if path in known:
            continue
        where = _where(source, path, file)
        if where and not there and asked.has_table:
            # what came before it the table has: arrival does not go back along a source; if it
            # begins too late, that is a gap by itself
            missing, dropped = [], 0
        taken = TakenFile(source.name, file.number or number, path, file.stamp)
        there.append((taken, where == "archive")) if where else missing.append((path, file))
    if firsts is None or not source.has_clock or (not waiting and len(list(_grouped(source.name, there))) < 2):
        return PiecesAgain(list(_grouped(source.name, there)), _gap(source, missing, dropped))
    ordered = _by_arrival(source, there, memory, firsts)
    pieces = _grouped(source.name, [(item.file, is_archived) for item, is_archived in ordered])
    return PiecesAgain(_with_unread(pieces, [item for item, _ in ordered], waiting), _gap(source, missing, dropped))


def _by_arrival(
    source: ListedSource, there: Sequence[tuple[TakenFile, bool]], memory: FolderMemory, firsts: FirstArrivals
) -> list[tuple[WaitingFile, bool]]:
    """The files in the order of their first records: all of them are there, as for a replay."""
    found: list[tuple[WaitingFile, bool]] = []
    archived = source if source.archive is None else replace(source, folder=source.archive)
    before = NO_TIME
    for file, is_archived in there:
        waited = memory.files[file.path].waited
        (first,) = firsts(archived if is_archived else source, [file]) if waited is None else (waited.item.first,)
        before = before if first is None else first
        found.append((WaitingFile(file, before), is_archived))
    return sorted(found, key=lambda item: item[0].order)


def _with_unread(
    pieces: Iterable[PieceAgain], ordered: Sequence[WaitingFile], waiting: Sequence[WaitingFile]
) -> list[PieceAgain]:
    """The pieces, each with what is left behind it; `waiting`: files that the job has not read."""
    found: list[PieceAgain] = []
    done = 0
    for piece in pieces:
        done += len(piece.work.files)
        left = unread_of(sorted((*ordered[done:], *waiting), key=lambda item: item.order))
        found.append(replace(piece, unread={piece.source: left}))
    return found


def _where(source: ListedSource, path: str, file: ReadFile) -> str | None:
    """Where a file is as it was when it was read; None = nowhere."""
    places = {"folder": source.file(path)}
    if source.archive is not None:
        places["archive"] = source.archived(path)
    for name, place in places.items():
        try:
            found = place.stat()
        except OSError:
            continue
        if found.st_size == file.stamp.size and (name == "archive" or found.st_mtime_ns == file.stamp.modified):
            return name
    return None


def _gap(source: ListedSource, missing: Sequence[tuple[str, ReadFile]], dropped: int) -> list[str]:
    if not missing and not dropped:
        return []
    count = counted(len(missing) + dropped, "file")
    if not missing:
        return [f"source '{source.name}': {count} that the job has read {_are(dropped)} gone"]
    times = [file.stamp.modified // 1000 for _, file in missing]
    names = listed(f"'{path}'" for path, _ in missing[:3]) + (", …" if len(missing) > 3 else "")
    bounds = f"written from {format_time(min(times))} to {format_time(max(times))}"
    return [
        (
            f"source '{source.name}': {count} that the job has read {_are(len(missing) + dropped)} gone or changed:"
            f" {names}, {bounds}"
        )
    ]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _grouped(source: str, files: Sequence[tuple[TakenFile, bool]]) -> Iterator[PieceAgain]:
    """Pieces of files that are read together."""
    own: list[TakenFile] = []
    place, size = False, 0
    for file, is_archived in files:
        if own and (is_archived != place or size >= MOST_BYTES or len(own) == MOST_FILES):
            yield PieceAgain(source, size, FolderWork(tuple(own), is_archived=place))
            own, size = [], 0
        own.append(file)
        place, size = is_archived, size + file.stamp.size
    if own:
        yield PieceAgain(source, size, FolderWork(tuple(own), is_archived=place))
