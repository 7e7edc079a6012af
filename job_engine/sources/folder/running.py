"""What a driver asks of folders of files, before a job starts and beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from job_engine.clock import wall_ns
from job_engine.durable_files import AT_ONCE, make_folder
from job_engine.local_path import LocalPath
from job_engine.place import Place, RemotePath, below, names_in, refuse_missing_bucket
from job_engine.sources.crash_marks import living_parts
from job_engine.sources.folder.after_reading import SettledFile, forget_settled, move_back
from job_engine.sources.folder.listing import is_hidden, name_filter, watch_of
from job_engine.sources.folder.pieces import FolderMemory, FolderWork, ReadFile, TakenFile, WaitingFile
from job_engine.sources.folder.planning import FirstArrivals, first_files, unread_of
from job_engine.sources.folder.reading import first_arrivals
from job_engine.sources.folder.settings import ENDINGS, ListedSource
from job_engine.sources.kinds import FirstTables, MovedSince, SourceRunning
from job_engine.sources.source import Again, PieceAgain, PiecesAgain, Source, SourceBacklog
from querylang.errors import InputError, counted, is_passing, listed
from runtime.file_forms import Asked, FileBelow
from runtime.instants import NO_TIME
from runtime.json_reader import shaped
from runtime.reading import ColumnNames, iter_raw
from runtime.threads import in_threads
from runtime.timestamps import format_time

# The files that a job has read, to be read again.

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
    count = _read_count(memory)
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
        except OSError as error:
            if is_passing(error):
                raise
            continue
        if found.st_size == file.stamp.size and (name == "archive" or found.st_mtime_ns == file.stamp.modified):
            return name
    return None


def moved_since(source: ListedSource, memory: FolderMemory, before: FolderMemory, way: str) -> MovedSince:
    """The files that were read behind a point and are not in the folder any more.

    memory, before: of what was read until now, and until that point; files that were settled are
        still in both, as long as the manifests that name them are kept
    """
    known = {path: file.stamp for path, file in before.files.items()}
    new = {path: file for path, file in memory.files.items() if known.get(path) != file.stamp}
    places = {path: _where(source, path, file) for path, file in new.items()}
    return MovedSince(
        way,
        [path for path, place in places.items() if place == "archive"],
        [path for path, place in places.items() if place is None],
        max(0, _read_count(memory) - _read_count(before) - len(new)),
    )


def _read_count(memory: FolderMemory) -> int:
    """How many files were read: those that only wait have a number, too."""
    return memory.count.files - len(memory.waiting) if memory.count.files else len(memory.files)


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


_TRIED = 4
"""So many parts of a file are tried before the job reads it; a file below 64 MB is one part."""


_UNTYPED = ("csv", "json")
"""Formats whose files do not say the types of their columns."""


class RunningFolder(SourceRunning):
    """Folders of files; see `SourceRunning`."""

    def refuse_unreadable(self, source: Source) -> None:
        """As `SourceRunning.refuse_unreadable`: a folder that has files, but none of the format."""
        own: ListedSource = source.own
        refuse_missing_bucket(own.place)
        if own.creates and not own.place.exists():
            return
        files = [file.name for file in own.place.iterdir() if not is_hidden(file.name) and file.is_file()]
        if files and own.pattern is None and not watch_of(own).names():
            raise InputError(
                f"{own.folder}: no file of the source '{own.name}' ends in {' or '.join(ENDINGS[source.format])};"
                f" found '{min(files)}'"
            )

    def notes(self, source: Source, *, is_new: bool) -> Iterator[str]:  # noqa: ARG002
        """As `SourceRunning.notes`."""
        if isinstance(source.place, RemotePath) and not source.place.exists():
            yield f"source {source.name}: nothing is in {source.place} yet"
        own: ListedSource = source.own
        is_local = own.creates and not isinstance(own.place, RemotePath)
        if is_local and not (own.place.exists() and any(own.place.iterdir())):
            yield f"source {source.name}: nothing is in {own.folder} yet; the job waits for files"

    def begin(self, source: Source) -> None:
        """As `SourceRunning.begin`: the folder of a control stream is made, or with `create`."""
        own: ListedSource = source.own
        if own.creates or not own.has_clock:
            make_folder(own.place)

    def first_tables(self, source: Source, names: ColumnNames, copies: Path, most: int | None) -> FirstTables:
        """As `SourceRunning.first_tables`: its first files."""
        own: ListedSource = source.own
        tables = _readable(_living(_local(first_files(own), own, copies, most), names), names)
        return FirstTables(
            tables, tables, [f"{source.name}: {table.name}" for table in tables], source.format not in _UNTYPED
        )

    def place_of_new(self, source: Source, name: str) -> Place:
        """As `SourceRunning.place_of_new`."""
        own: ListedSource = source.own
        if name in names_in(own.place):
            raise InputError(f"{own.place / name}: these records have been put back before; nothing was put back")
        if not name_filter(own)(name):
            raise InputError(f"the source '{source.name}' does not read files named {name}; nothing was put back")
        return own.place / name

    def backlog(self, own: ListedSource, memory: FolderMemory, checkpoint: Place) -> SourceBacklog:
        """As `SourceRunning.backlog`."""
        forget_settled({own.name: memory}, SettledFile.of(checkpoint).read())
        try:
            new = watch_of(own).new_files(memory.files.__contains__, wall_ns()).files
        except FileNotFoundError:
            return SourceBacklog(own.name, files=0, bytes=0)  # a control stream's folder is made by its job
        return SourceBacklog(own.name, files=len(new), bytes=sum(stamp.size for stamp in new.values()))

    def done(self, memory: FolderMemory) -> list[str]:
        """As `SourceRunning.done`: the paths of its files."""
        return sorted(memory.files)

    def again(self, own: ListedSource, memory: FolderMemory, asked: Again) -> PiecesAgain:
        """As `SourceRunning.again`."""
        firsts = None if asked.firsts is None else partial(first_arrivals, asked.firsts)
        return file_pieces(own, memory, asked, firsts)

    def moved_since(self, own: ListedSource, memory: FolderMemory | None, before: FolderMemory) -> MovedSince | None:
        """As `SourceRunning.moved_since`: a run settles files only if its source says so."""
        way = own.after if own.archive is None else f"{own.after} {own.archive}"
        if memory is None:
            return None if own.after == "keep" else MovedSince(way, unnamed=None)
        return moved_since(own, memory, before, way)

    def move_back(self, own: ListedSource, paths: Sequence[str]) -> None:
        """As `SourceRunning.move_back`."""
        move_back(own, paths)


RUNNING = RunningFolder()


def _local(files: Sequence[Place], source: ListedSource, copies: Path, most: int | None) -> list[Path]:
    """Files of a source on this machine, whose folders may be keys.

    copies: the folder for those in a store
    most: most bytes of a file in a store that is copied; None = no limit
    """
    folder = source.place
    if not isinstance(folder, RemotePath):
        return [FileBelow.of(LocalPath(source.folder), LocalPath(str(file))) for file in files]
    remote = [file for file in files if isinstance(file, RemotePath) and (most is None or file.stat().st_size <= most)]
    names = [file.path.removeprefix(folder.path).lstrip("/") for file in remote]
    local = [LocalPath(str(below(LocalPath.of(copies), name))) for name in names]
    for copy in local:
        copy.parent.mkdir(parents=True, exist_ok=True)
    in_threads(lambda pair: pair[0].download(pair[1]), zip(remote, local, strict=True), AT_ONCE)
    return [FileBelow.of(copies, copy) for copy in local]


def _living(tables: Sequence[Path], names: ColumnNames) -> Sequence[Path]:
    """The tables that end no process which reads them: a child tries, since this one is the job."""

    def attempt(first: int, last: int) -> None:
        for table in tables[first:last]:
            with suppress(InputError):
                _begin(table, names)

    parts = living_parts(len(tables), attempt) if tables else []
    return [table for part in parts if part.problem is None for table in tables[part.first : part.last]]


def _readable(tables: Sequence[Path], names: ColumnNames) -> Sequence[Path]:
    """The tables that the job will not discard as a whole; all of them if it will discard each."""

    def is_readable(table: Path) -> bool:
        try:
            _begin(table, names)
        except InputError:
            return False
        return True

    return [table for table in tables if is_readable(table)] or tables


def _begin(table: Path, names: ColumnNames) -> None:
    """Read the first parts of a table."""
    for _ in islice(iter_raw(table, asked=Asked(max_record=names.max_record, csv=names.csv)), _TRIED):
        pass
