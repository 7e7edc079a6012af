"""The files that were read: a compact list, no longer than what the folders hold.

The manifests are its journal. Now and then all but the last of them are put into one file, so that
a micro-batch writes only its own files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict

from runtime.json_reader import DamagedJson, read_json
from runtime.json_shapes import Count
from spark_backend.durable_files import write_durably
from spark_backend.places.place import Place
from spark_backend.sources.delta.table_units import (
    TablePosition,
    table_positions_to_plain,
)
from spark_backend.sources.kafka.offsets import Positions, positions_to_plain
from spark_backend.sources.listing.folder_listing import FileStamp
from spark_backend.sources.listing.manifests import (
    RESTORE,
    Counts,
    DamagedManifest,
    Manifest,
    ManifestFolder,
    SourceCount,
    StampRows,
    counts_to_plain,
    stamps_of_plain,
    stamps_to_plain,
)

KEPT = 100
"""Number of manifests that stay whatever happens: Spark, too, keeps a hundred micro-batches."""

LIST_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read.

    stamp: when it was read
    seen: when it was looked at last; it differs if the file has changed, which was reported
    manifest: number of its manifest; 0 = long ago
    """

    stamp: FileStamp
    seen: FileStamp
    manifest: int


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

    def of(self, source: str) -> dict[str, ReadFile]:
        """The files of a source by path."""
        return self.files.setdefault(source, {})

    def add(self, manifest: Manifest) -> None:
        """Advance to the next manifest."""
        for file in manifest.files:
            self.of(file.source)[file.path] = ReadFile(file.stamp, file.stamp, manifest.number)
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
            source: {path: item.stamp for path, item in files.items() if item.manifest <= until}
            for source, files in self.files.items()
        }
        plain = {
            "version": LIST_VERSION,
            "number": until,
            "counts": counts_to_plain(last.counts),
            "last_signal": last.last_signal,
            "files": {source: stamps_to_plain(files) for source, files in old.items()},
            "gone": {source: sorted(paths) for source, paths in self.gone.items()},
        }
        if last.offsets.positions:
            plain["positions"] = positions_to_plain(last.offsets.positions)
        if last.tables.positions:
            plain["tables"] = table_positions_to_plain(last.tables.positions)
        taken = {number for number, manifest in self.commands.items() if manifest <= until}
        if taken & set(pending):
            plain["commands"] = sorted(taken & set(pending))
        write_durably(file, json.dumps(plain))
        self.compacted = until
        manifests.remove(number for number in manifests.numbers() if number <= until)


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


class _Plain(TypedDict):
    """The list as its file has it."""

    number: Count
    counts: Counts
    last_signal: str | None
    files: dict[str, StampRows]
    gone: dict[str, set[str]]
    positions: NotRequired[Positions]
    tables: NotRequired[Mapping[str, TablePosition]]
    commands: NotRequired[list[Count]]


def _load_list(file: Place) -> ReadFiles:
    try:
        data = read_json(file, _Plain, versions=(LIST_VERSION,), way_out=RESTORE)
    except FileNotFoundError:
        return ReadFiles()
    except DamagedJson as error:
        raise DamagedManifest(str(error)) from error
    files = {
        source: {path: ReadFile(stamp, stamp, 0) for path, stamp in stamps_of_plain(rows).items()}
        for source, rows in data["files"].items()
    }
    number, counts = data["number"], dict(data["counts"])
    positions, tables = data.get("positions", {}), data.get("tables", {})
    commands = dict.fromkeys(data.get("commands", ()), 0)
    return ReadFiles(number, files, counts, data["last_signal"], number, data["gone"], positions, tables, commands)
