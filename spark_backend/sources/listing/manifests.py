"""Manifests: what one micro-batch reads, on record before Spark knows of it.

Spark's offset is the number of a manifest. One that Spark's offset log has is never written again,
so a repeated micro-batch reads the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

from querylang.errors import InputError
from runtime.json_shapes import ROW, Count
from spark_backend.job_file import JobFile, numbers_in
from spark_backend.places.place import Place
from spark_backend.sources.delta.table_units import TableReads
from spark_backend.sources.kafka.offsets import Offsets
from spark_backend.sources.listing.command_folder import Command
from spark_backend.sources.listing.folder_listing import FileStamp
from spark_backend.sources.listing.unread import Unread

MANIFEST_VERSION = 2
"""Of a manifest with files that wait; others have version 1, as all of earlier releases."""

RESTORE_ALL = "Restore the whole checkpoint from a copy"
"""What to do about a damaged file of the list."""


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
class Manifest:
    """What one micro-batch reads.

    number: its number, from 1
    counts: after it, by source
    signal: sent to every bucket; None = none
    last_signal: of the last manifest that has files or a signal; None = it had files only
    reports: what was found while listing, as `spark_backend.wire.reports` has it in plain form
    changed: files that have changed since they were read, with their new stamps
    offsets: of Kafka sources
    tables: of Delta sources
    commands: those that it brings; then it has no records
    waiting: files that were listed for it, and are read later
    dropped: files that have waited and were removed, by source and path
    unread: what is left of listed files after it, by source; None = nothing is any more. Only of
        sources of which files wait, before or after
    """

    number: int
    files: tuple[TakenFile, ...] = ()
    counts: Mapping[str, SourceCount] = field(default_factory=dict)
    signal: str | None = None
    last_signal: str | None = None
    reports: tuple[tuple[str, str, int, str], ...] = ()
    changed: tuple[TakenFile, ...] = ()
    offsets: Offsets = field(default_factory=Offsets)
    tables: TableReads = field(default_factory=TableReads)
    commands: tuple[Command, ...] = ()
    waiting: tuple[WaitingFile, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


_Inode = Annotated[int, range(2**64)]
_FileRow = tuple[str, Count, str, Count, int, _Inode]
StampRow = tuple[str, Count, int, _Inode]
"""A file and its stamp, as `stamps_to_plain` gives it."""
StampRows = list[StampRow]
WaitingRow = tuple[str, Count, str, Count, int, _Inode, int]
"""A file that waits, as `waiting_to_plain` gives it."""
Counts = Mapping[str, Annotated[SourceCount, ROW]]
"""What was counted by source, as `counts_to_plain` gives it."""


class _Plain(TypedDict):
    """A manifest as its file has it."""

    number: Count
    files: list[_FileRow]
    counts: Counts
    signal: str | None
    last_signal: str | None
    reports: tuple[tuple[str, str, Count, str], ...]
    changed: list[_FileRow]
    offsets: NotRequired[Offsets]
    tables: NotRequired[TableReads]
    commands: NotRequired[tuple[Command, ...]]
    waiting: NotRequired[list[WaitingRow]]
    dropped: NotRequired[tuple[tuple[str, str], ...]]
    unread: NotRequired[Mapping[str, Annotated[Unread, ROW] | None]]


class DamagedManifest(InputError):
    """A file of the list of what was read is missing or damaged; the text says which."""


def inputs_folder(checkpoint: Place) -> Place:
    """Where the list of inputs is, inside a checkpoint."""
    return checkpoint / "ensue" / "inputs"


@dataclass(frozen=True, slots=True)
class ManifestFolder:
    """The folder that manifests are in."""

    path: Place

    @staticmethod
    def of(checkpoint: Place) -> ManifestFolder:
        """That of a checkpoint."""
        return ManifestFolder(inputs_folder(checkpoint) / "manifests")

    def write(self, manifest: Manifest) -> None:
        """Write a manifest; afterwards it survives a power cut."""
        self._file(manifest.number).write(_to_plain(manifest))

    def read(self, number: int) -> Manifest:
        """The manifest of that number; raises DamagedManifest."""
        return _of_plain(self._file(number).needed())

    def numbers(self) -> list[int]:
        """The numbers of the manifests that are there, ascending."""
        return numbers_in(self.path)

    def remove(self, numbers: Iterator[int]) -> None:
        """Remove manifests that nobody asks for any more."""
        for number in numbers:
            self._file(number).remove()

    def _file(self, number: int) -> JobFile[_Plain]:
        file, versions = self.path / f"{number:010d}.json", (1, MANIFEST_VERSION)
        return JobFile(file, _Plain, RESTORE_ALL, versions, DamagedManifest)


def stamps_to_plain(files: Mapping[str, FileStamp]) -> list[list[Any]]:
    """Files and stamps as JSON can hold them; names that are not UTF-8 too."""
    return [[path, stamp.size, stamp.modified, stamp.inode] for path, stamp in files.items()]


def stamps_of_plain(rows: StampRows) -> dict[str, FileStamp]:
    """The inverse of `stamps_to_plain`."""
    return {path: FileStamp(size, modified, inode) for path, size, modified, inode in rows}


def counts_to_plain(counts: Mapping[str, SourceCount]) -> dict[str, list[Any]]:
    """The counts as JSON can hold them."""
    return {source: [count.files, count.largest] for source, count in counts.items()}


def _to_plain(manifest: Manifest) -> dict[str, Any]:
    own: dict[str, Any] = {} if not manifest.offsets.positions else {"offsets": manifest.offsets.to_plain()}
    if manifest.tables.positions:
        own["tables"] = manifest.tables.to_plain()
    if manifest.commands:
        own["commands"] = [command.to_plain() for command in manifest.commands]
    if manifest.unread:
        own["waiting"] = list(map(waiting_to_plain, manifest.waiting))
        own["dropped"] = manifest.dropped
        own["unread"] = {source: left and astuple(left) for source, left in manifest.unread.items()}
    return own | {
        "version": MANIFEST_VERSION if manifest.unread else 1,
        "number": manifest.number,
        "files": list(map(_file_to_plain, manifest.files)),
        "counts": counts_to_plain(manifest.counts),
        "signal": manifest.signal,
        "last_signal": manifest.last_signal,
        "reports": manifest.reports,
        "changed": list(map(_file_to_plain, manifest.changed)),
    }


def _of_plain(data: _Plain) -> Manifest:
    return Manifest(
        number=data["number"],
        files=tuple(map(_file_of_plain, data["files"])),
        counts=data["counts"],
        signal=data["signal"],
        last_signal=data["last_signal"],
        reports=data["reports"],
        changed=tuple(map(_file_of_plain, data["changed"])),
        offsets=data.get("offsets", Offsets()),
        tables=data.get("tables", TableReads()),
        commands=data.get("commands", ()),
        waiting=tuple(map(waiting_of_plain, data.get("waiting", ()))),
        dropped=data.get("dropped", ()),
        unread=data.get("unread", {}),
    )


def waiting_to_plain(item: WaitingFile) -> list[Any]:
    """A file that waits as JSON can hold it."""
    return [*_file_to_plain(item.file), item.first]


def waiting_of_plain(row: WaitingRow) -> WaitingFile:
    """The inverse of `waiting_to_plain`."""
    source, number, path, size, modified, inode, first = row
    return WaitingFile(TakenFile(source, number, path, FileStamp(size, modified, inode)), first)


def _file_to_plain(file: TakenFile) -> list[Any]:
    return [file.source, file.number, file.path, file.stamp.size, file.stamp.modified, file.stamp.inode]


def _file_of_plain(row: _FileRow) -> TakenFile:
    source, number, path, *stamp = row
    return TakenFile(source, number, path, FileStamp(*stamp))
