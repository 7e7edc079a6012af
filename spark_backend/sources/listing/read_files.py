"""The files that were read: a compact list, no longer than what the folders hold.

The manifests are its journal. Now and then all but the last of them are put into one file, so that
a micro-batch writes only its own files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired, TypedDict

from runtime.json_shapes import Count
from spark_backend.job_file import JobFile
from spark_backend.places.place import Place
from spark_backend.sources.delta.table_units import (
    TablePosition,
    table_positions_to_plain,
)
from spark_backend.sources.kafka.offsets import Positions, positions_to_plain
from spark_backend.sources.listing.folder_listing import FileStamp
from spark_backend.sources.listing.manifests import (
    RESTORE_ALL,
    Counts,
    DamagedManifest,
    Manifest,
    ManifestFolder,
    SourceCount,
    StampRow,
    WaitingFile,
    WaitingRow,
    counts_to_plain,
    inputs_folder,
    stamps_to_plain,
    waiting_of_plain,
    waiting_to_plain,
)
from spark_backend.sources.listing.spark_log import committed_manifest

KEPT = 100
"""Number of manifests that stay whatever happens: Spark, too, keeps a hundred micro-batches."""

LIST_VERSION = 2
"""Of a list whose files have numbers, because some wait or have waited; others have version 1."""


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

    @property
    def has_waited(self) -> bool:
        """Whether it has waited, or is in a list with others that have."""
        return self.waited is not None or (self.number > 0 and not self.manifest)


@dataclass(slots=True)
class ReadFiles:
    """What was read up to a manifest.

    number: of that manifest
    files: by source and path
    counts: by source
    last_signal: as in `Manifest`
    compacted: number of the manifest up to which the list's own file reaches
    gone: by source, files that were gone when the list was written last
    positions: of Kafka sources
    tables: positions of Delta sources
    commands: the numbers of those that were taken, and of the manifests that have them
    waiting: files that were listed and are not read, by source and path
    """

    number: int = 0
    files: dict[str, dict[str, ReadFile]] = field(default_factory=dict)
    counts: dict[str, SourceCount] = field(default_factory=dict)
    last_signal: str | None = None
    compacted: int = 0
    gone: dict[str, set[str]] = field(default_factory=dict)
    positions: Positions = field(default_factory=dict)
    tables: Mapping[str, TablePosition] = field(default_factory=dict)
    commands: dict[int, int] = field(default_factory=dict)
    waiting: dict[str, dict[str, Waited]] = field(default_factory=dict)

    def waiting_of(self, source: str) -> dict[str, Waited]:
        """The files of a source that wait, by path."""
        return self.waiting.setdefault(source, {})

    def of(self, source: str) -> dict[str, ReadFile]:
        """The files of a source by path."""
        return self.files.setdefault(source, {})

    def add(self, manifest: Manifest) -> None:
        """Advance to the next manifest."""
        for item in manifest.waiting:
            self.waiting_of(item.file.source)[item.file.path] = Waited(item, manifest.number)
        for source, path in manifest.dropped:
            self.waiting_of(source).pop(path, None)
        for file in manifest.files:
            waited = self.waiting_of(file.source).pop(file.path, None)
            read = ReadFile(file.stamp, file.stamp, manifest.number, file.number, waited)
            self.of(file.source)[file.path] = read
        for file in manifest.changed:
            if file.path in self.of(file.source):
                known = self.of(file.source)[file.path]
                self.of(file.source)[file.path] = replace(known, seen=file.stamp)
        self.counts = dict(manifest.counts)
        self.last_signal = manifest.last_signal
        self.positions = manifest.offsets.positions
        self.tables = manifest.tables.positions
        self.commands.update({command.number: manifest.number for command in manifest.commands})
        self.number = manifest.number

    def is_long(self) -> bool:
        """Whether it is worth writing the list again: many manifests came since."""
        size = sum(map(len, self.files.values()))
        return self.number - KEPT - self.compacted >= max(KEPT, size // 64)

    def drop_gone(self, present: Mapping[str, set[str]]) -> None:
        """Drop files that do not exist now and did not the last time.

        Once is not enough: while a folder is not mounted, it is empty.
        """
        for source, names in present.items():
            gone = self.of(source).keys() - names
            for path in gone & self.gone.get(source, set()):
                del self.of(source)[path]
            self.gone[source] = gone

    def compact(self, file: Place, manifests: ManifestFolder, pending: Collection[int]) -> None:
        """Write the list as it was KEPT manifests ago, and remove the manifests before that.

        pending: the numbers of commands whose files are there, so that they could be taken again
        """
        until = self.number - KEPT
        last = manifests.read(until)
        old = {
            source: {path: item for path, item in files.items() if item.manifest <= until}
            for source, files in self.files.items()
        }
        waiting = list(self._waiting_at(until))
        is_numbered = bool(waiting) or any(item.has_waited for files in old.values() for item in files.values())
        plain = {
            "version": LIST_VERSION if is_numbered else 1,
            "number": until,
            "counts": counts_to_plain(last.counts),
            "last_signal": last.last_signal,
            "files": {source: _rows_of(files, is_numbered=is_numbered) for source, files in old.items()},
            "gone": {source: sorted(paths) for source, paths in self.gone.items()},
        }
        if is_numbered:
            plain["waiting"] = [waiting_to_plain(item) for item in waiting]
        if last.offsets.positions:
            plain["positions"] = positions_to_plain(last.offsets.positions)
        if last.tables.positions:
            plain["tables"] = table_positions_to_plain(last.tables.positions)
        taken = {number for number, manifest in self.commands.items() if manifest <= until}
        if taken & set(pending):
            plain["commands"] = sorted(taken & set(pending))
        _list_file(file).write(plain)
        self.compacted = until
        manifests.remove(number for number in manifests.numbers() if number <= until)

    def _waiting_at(self, until: int) -> Iterator[WaitingFile]:
        """The files that waited after a manifest."""
        for source, waiting in self.waiting.items():
            later = (item.waited for item in self.of(source).values() if item.manifest > until)
            yield from (item.item for item in (*waiting.values(), *later) if item is not None and item.since <= until)


def _rows_of(files: Mapping[str, ReadFile], *, is_numbered: bool) -> list[list[Any]]:
    rows = stamps_to_plain({path: item.stamp for path, item in files.items()})
    return [[*row, item.number] for row, item in zip(rows, files.values(), strict=True)] if is_numbered else rows


def list_place(checkpoint: Place) -> Place:
    """Where the list of a checkpoint is."""
    return inputs_folder(checkpoint) / "read.json"


def what_was_read(checkpoint: Place) -> ReadFiles:
    """What committed micro-batches have read; raises DamagedManifest."""
    file, manifests = list_place(checkpoint), ManifestFolder.of(checkpoint)
    for _ in range(_ATTEMPTS - 1):
        with suppress(DamagedManifest):
            return load_read_files(file, manifests, committed_manifest(checkpoint))
    return load_read_files(file, manifests, committed_manifest(checkpoint))


_ATTEMPTS = 3
"""A job that runs may put manifests together while they are read here."""


def load_read_files(file: Place, manifests: ManifestFolder, number: int) -> ReadFiles:
    """What was read up to a manifest; raises DamagedManifest."""
    found = _load_list(file)
    if found.number > number:
        raise DamagedManifest(
            f"{file}: reaches to manifest {found.number}, Spark's checkpoint only to {number}; restore both from one copy"
        )
    for next_ in range(found.number + 1, number + 1):
        found.add(manifests.read(next_))
    return found


_NumberedRow = tuple[str, Count, int, Annotated[int, range(2**64)], Count]
"""A file, its stamp and its number."""


class _Plain(TypedDict):
    """The list as its file has it."""

    number: Count
    counts: Counts
    last_signal: str | None
    files: dict[str, list[StampRow | _NumberedRow]]
    gone: dict[str, set[str]]
    positions: NotRequired[Positions]
    tables: NotRequired[Mapping[str, TablePosition]]
    commands: NotRequired[list[Count]]
    waiting: NotRequired[list[WaitingRow]]


def _load_list(file: Place) -> ReadFiles:
    data = _list_file(file).read()
    if data is None:
        return ReadFiles()
    files = {source: {row[0]: _read_file(*row[1:]) for row in rows} for source, rows in data["files"].items()}
    number, counts = data["number"], dict(data["counts"])
    positions, tables = data.get("positions", {}), data.get("tables", {})
    commands = dict.fromkeys(data.get("commands", ()), 0)
    waiting: dict[str, dict[str, Waited]] = {}
    for item in map(waiting_of_plain, data.get("waiting", ())):
        waiting.setdefault(item.file.source, {})[item.file.path] = Waited(item, 0)
    return ReadFiles(
        number, files, counts, data["last_signal"], number, data["gone"], positions, tables, commands, waiting
    )


def _list_file(file: Place) -> JobFile[_Plain]:
    return JobFile(file, _Plain, RESTORE_ALL, (1, LIST_VERSION), DamagedManifest)


def _read_file(size: int, modified: int, inode: int, number: int = 0) -> ReadFile:
    stamp = FileStamp(size, modified, inode)
    return ReadFile(stamp, stamp, 0, number)
