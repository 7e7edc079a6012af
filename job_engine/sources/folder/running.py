"""What a driver asks of folders of files, before a job starts and beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from job_engine.clock import wall_ns
from job_engine.durable_files import AT_ONCE, make_folder
from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place, RemotePath, below, names_in, refuse_missing_bucket
from job_engine.sources.again import Again, PiecesAgain
from job_engine.sources.backlog import SourceBacklog
from job_engine.sources.crash_marks import living_parts
from job_engine.sources.folder.after_reading import SettledFile, forget_settled
from job_engine.sources.folder.file_order import first_files
from job_engine.sources.folder.files_again import file_pieces
from job_engine.sources.folder.first_arrivals import first_arrivals
from job_engine.sources.folder.listed_source import ListedSource
from job_engine.sources.folder.name_patterns import is_hidden, name_filter
from job_engine.sources.folder.pieces import FolderMemory
from job_engine.sources.folder.settings import ENDINGS
from job_engine.sources.folder.source_watch import watch_of
from job_engine.sources.kinds import FirstTables, SourceRunning
from job_engine.sources.source import Source
from querylang.errors import InputError
from runtime.partition_paths import FileBelow
from runtime.reading.column_names import ColumnNames
from runtime.reading.files import iter_raw
from runtime.reading.formats.asked import Asked
from runtime.threads import in_threads

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

    def begin(self, source: Source) -> None:
        """As `SourceRunning.begin`: the folder of a control stream is made."""
        assert source.place is not None
        make_folder(source.place)

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
