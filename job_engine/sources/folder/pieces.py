"""What a micro-batch reads of a folder of files, and what was read of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from job_engine.sources.folder.listing import FileStamp
from querylang.dataclass import astuple, dataclass, field, replace
from runtime.json_reader import shaped
from runtime.json_shapes import ROW, Count


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file that a micro-batch reads.

    source: name of its source
    number: its place among the files of its source, from 1
    path: below the source's folder
    """

    source: str
    number: int
    path: str
    stamp: FileStamp


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A file that was listed together with others, and is read later.

    first: the least arrival time of its records, µs; NO_TIME = not known
    """

    file: TakenFile
    first: int

    @property
    def order(self) -> tuple[int, int]:
        """The order in which listed files are read: those first that hold up the others."""
        return self.first, self.file.number


@dataclass(frozen=True, slots=True)
class SourceCount:
    """How far a source has been read.

    files: number of files that have got a number: those that were read, and those that wait
    largest: the largest of their paths in natural order; "" = none
    """

    files: int = 0
    largest: str = ""


@dataclass(frozen=True, slots=True)
class FolderPiece:
    """What a manifest has of a source.

    count: behind it
    files: in order
    changed: files that have changed since they were read, with their new stamps
    waiting: files that were listed for it, and are read later
    dropped: paths of files that have waited and were removed
    """

    count: SourceCount = SourceCount()
    files: tuple[TakenFile, ...] = ()
    changed: tuple[TakenFile, ...] = ()
    waiting: tuple[WaitingFile, ...] = ()
    dropped: tuple[str, ...] = ()


_Inode = Annotated[int, range(2**64)]
StampRow = tuple[str, Count, int, _Inode]
"""A file and its stamp, as `stamps_to_plain` gives it."""
StampRows = list[StampRow]
_FileRow = tuple[Count, str, Count, int, _Inode]
_WaitingRow = tuple[Count, str, Count, int, _Inode, int]
_NumberedRow = tuple[str, Count, int, _Inode, Count]
"""A file that was read, its stamp and its number; 0 = as it is in the list."""


class _PieceRow(TypedDict):
    """A piece as its file has it."""

    count: Annotated[SourceCount, ROW]
    files: NotRequired[list[_FileRow]]
    changed: NotRequired[list[_FileRow]]
    waiting: NotRequired[list[_WaitingRow]]
    dropped: NotRequired[tuple[str, ...]]


def piece_to_plain(piece: FolderPiece) -> dict[str, Any]:
    """A piece as JSON can hold it; names that are not UTF-8 too."""
    plain: dict[str, Any] = {
        "count": astuple(piece.count),
        "files": list(map(_file_to_plain, piece.files)),
        "changed": list(map(_file_to_plain, piece.changed)),
        "waiting": [[*_file_to_plain(item.file), item.first] for item in piece.waiting],
        "dropped": piece.dropped,
    }
    return {key: value for key, value in plain.items() if value}


def piece_of(source: str, plain: Any) -> FolderPiece:
    """The inverse of `piece_to_plain`; raises DamagedJson."""
    data = shaped(plain, _PieceRow)
    return FolderPiece(
        data["count"],
        tuple(_file_of(source, row) for row in data.get("files", ())),
        tuple(_file_of(source, row) for row in data.get("changed", ())),
        tuple(WaitingFile(_file_of(source, row[:-1]), row[-1]) for row in data.get("waiting", ())),
        data.get("dropped", ()),
    )


def stamps_to_plain(files: Mapping[str, FileStamp]) -> list[list[Any]]:
    """Files and stamps as JSON can hold them; names that are not UTF-8 too."""
    return [[path, stamp.size, stamp.modified, stamp.inode] for path, stamp in files.items()]


def stamps_of_plain(rows: StampRows) -> dict[str, FileStamp]:
    """The inverse of `stamps_to_plain`."""
    return {path: FileStamp(size, modified, inode) for path, size, modified, inode in rows}


def _file_to_plain(file: TakenFile) -> list[Any]:
    return [file.number, file.path, file.stamp.size, file.stamp.modified, file.stamp.inode]


def _file_of(source: str, row: _FileRow) -> TakenFile:
    number, path, *stamp = row
    return TakenFile(source, number, path, FileStamp(*stamp))


@dataclass(frozen=True, slots=True)
class Waited:
    """A file that waits; `since`: number of the manifest that it was listed for, 0 = long ago."""

    item: WaitingFile
    since: int


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read.

    stamp: when it was read
    seen: when it was looked at last; it differs if the file has changed, which was reported
    manifest: number of its manifest; 0 = long ago
    number: its place among the files of its source; 0 = as it is in the list
    waited: what it was while it waited; None = it did not
    """

    stamp: FileStamp
    seen: FileStamp
    manifest: int
    number: int = 0
    waited: Waited | None = None


@dataclass(slots=True)
class FolderMemory:
    """The files that were read of a source: a compact list, no longer than what the folder holds.

    files: by path
    gone: files that were gone when the list was written last
    waiting: files that were listed and are not read, by path
    """

    source: str
    files: dict[str, ReadFile] = field(default_factory=dict)
    count: SourceCount = SourceCount()
    gone: set[str] = field(default_factory=set)
    waiting: dict[str, Waited] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.files)

    def add(self, number: int, piece: FolderPiece) -> None:
        """As `Memory.add`."""
        for item in piece.waiting:
            self.waiting[item.file.path] = Waited(item, number)
        for path in piece.dropped:
            self.waiting.pop(path, None)
        for file in piece.files:
            waited = self.waiting.pop(file.path, None)
            self.files[file.path] = ReadFile(file.stamp, file.stamp, number, file.number, waited)
        for file in piece.changed:
            if file.path in self.files:
                self.files[file.path] = replace(self.files[file.path], seen=file.stamp)
        self.count = piece.count

    def still(self) -> FolderPiece:
        """As `Memory.still`."""
        return FolderPiece(self.count)

    def drop_gone(self, present: set[str]) -> None:
        """Drop files that do not exist now and did not the last time.

        Once is not enough: while a folder is not mounted, it is empty.
        """
        gone = self.files.keys() - present
        for path in gone & self.gone:
            del self.files[path]
        self.gone = gone

    def to_plain(self, until: int, piece: FolderPiece) -> dict[str, Any]:
        """As `Memory.to_plain`."""
        old = {path: item for path, item in self.files.items() if item.manifest <= until}
        waiting = list(self._waiting_at(until))
        plain: dict[str, Any] = {
            "count": astuple(piece.count),
            "files": [[path, *astuple(item.stamp), item.number] for path, item in old.items()],
            "gone": sorted(self.gone),
            "waiting": [[*_file_to_plain(item.file), item.first] for item in waiting],
        }
        return {key: value for key, value in plain.items() if value}

    def _waiting_at(self, until: int) -> Iterator[WaitingFile]:
        """The files that waited after a manifest."""
        later = (item.waited for item in self.files.values() if item.manifest > until)
        yield from (item.item for item in (*self.waiting.values(), *later) if item is not None and item.since <= until)


class _MemoryRow(TypedDict):
    """A memory as its file has it."""

    count: Annotated[SourceCount, ROW]
    files: NotRequired[list[_NumberedRow]]
    gone: NotRequired[set[str]]
    waiting: NotRequired[list[_WaitingRow]]


def memory_of(source: str, plain: Any) -> FolderMemory:
    """The inverse of `FolderMemory.to_plain`; raises DamagedJson."""
    data = shaped(plain, _MemoryRow)
    waiting = [WaitingFile(_file_of(source, row[:-1]), row[-1]) for row in data.get("waiting", ())]
    return FolderMemory(
        source,
        {row[0]: read_long_ago(*row[1:]) for row in data.get("files", ())},
        data["count"],
        data.get("gone", set()),
        {item.file.path: Waited(item, 0) for item in waiting},
    )


def read_long_ago(size: int, modified: int, inode: int, number: int = 0) -> ReadFile:
    """A file of the list's own file."""
    stamp = FileStamp(size, modified, inode)
    return ReadFile(stamp, stamp, 0, number)


@dataclass(frozen=True, slots=True)
class FolderWork:
    """What one task reads of a source.

    files: in order
    earlier: all files of its micro-batch, if the source has not brought a record before; None = it
        has
    is_archived: whether they are in the archive
    """

    files: tuple[TakenFile, ...]
    earlier: tuple[TakenFile, ...] | None = None
    is_archived: bool = False


# Divide the files of a micro-batch among tasks: equal sizes, large files first.

OPENING = 1 << 16
"""Bytes that reading could cover in the time that it takes to open a file."""


def split(files: Sequence[TakenFile], tasks: int) -> list[list[TakenFile]]:
    """At most `tasks` lists, none empty, each in the order of `files`."""
    shares: list[list[int]] = [[] for _ in range(min(tasks, len(files)))]
    loads = [0] * len(shares)
    for place in sorted(range(len(files)), key=lambda place: (-files[place].stamp.size, place)):
        least = loads.index(min(loads))
        shares[least].append(place)
        loads[least] += files[place].stamp.size + OPENING
    return [[files[place] for place in sorted(share)] for share in shares]
