"""What was read: a compact list, no longer than what the sources hold.

The manifests are its journal. Now and then all but the last of them are put into one file, so that
a micro-batch writes only its own files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from job_engine.job_file import JobFile
from job_engine.places.place import Place
from job_engine.sources.kinds import Remembered, planning_of
from job_engine.sources.listing.batch_log import committed_manifest
from job_engine.sources.listing.manifests import Manifest, ManifestFolder, damaged_as_manifest, known_planning
from job_engine.sources.listing.places import RESTORE_ALL, DamagedManifest, inputs_folder
from job_engine.sources.old_lists import old_memories
from runtime.json_reader import shaped
from runtime.json_shapes import Count

KEPT = 100
"""Number of manifests that stay whatever happens: Spark, too, keeps a hundred micro-batches."""

LIST_VERSION = 3
"""Versions 1 and 2 have what was read of each kind of source in keys of its own: `old_lists`."""


@dataclass(slots=True)
class ReadList:
    """What was read up to a manifest.

    number: of that manifest
    by_source: with the memory of each; of a source that is not there nothing was read
    last_signal: as in `Manifest`
    compacted: number of the manifest up to which the list's own file reaches
    commands: the numbers of those that were taken, and of the manifests that have them
    """

    number: int = 0
    by_source: dict[str, Remembered] = field(default_factory=dict)
    last_signal: str | None = None
    compacted: int = 0
    commands: dict[int, int] = field(default_factory=dict)

    def of(self, source: str, format_: str) -> Any:
        """What was read of a source; from now on the list has it."""
        if source not in self.by_source:
            self.by_source[source] = Remembered(format_, planning_of(format_).memory(source))
        return self.by_source[source].memory

    def memories(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """What was read of sources, by their names; `sources`: their formats."""
        return {name: self.of(name, format_) for name, format_ in sources.items()}

    def add(self, manifest: Manifest) -> None:
        """Advance to the next manifest."""
        for source, part in manifest.by_source.items():
            self.of(source, part.format).add(manifest.number, part.piece)
        self.last_signal = manifest.last_signal
        self.commands.update({command.number: manifest.number for command in manifest.commands})
        self.number = manifest.number

    def is_long(self) -> bool:
        """Whether it is worth writing the list again: many manifests came since."""
        size = sum(len(own.memory) for own in self.by_source.values())
        return self.number - KEPT - self.compacted >= max(KEPT, size // 64)

    def compact(self, file: Place, manifests: ManifestFolder, pending: Collection[int]) -> None:
        """Write the list as it was KEPT manifests ago, and remove the manifests before that.

        pending: the numbers of commands whose files are there, so that they could be taken again
        """
        until = self.number - KEPT
        last = manifests.read(until)
        plain: dict[str, Any] = {
            "version": LIST_VERSION,
            "number": until,
            "last_signal": last.last_signal,
            "sources": {
                source: {"format": part.format, "memory": self.by_source[source].memory.to_plain(until, part.piece)}
                for source, part in last.by_source.items()
            },
        }
        taken = {number for number, manifest in self.commands.items() if manifest <= until}
        if taken & set(pending):
            plain["commands"] = sorted(taken & set(pending))
        _list_file(file).write(plain)
        self.compacted = until
        manifests.remove(number for number in manifests.numbers() if number <= until)


def list_place(checkpoint: Place) -> Place:
    """Where the list of a checkpoint is."""
    return inputs_folder(checkpoint) / "read.json"


def what_was_read(checkpoint: Place) -> ReadList:
    """What committed micro-batches have read; raises DamagedManifest."""
    file, manifests = list_place(checkpoint), ManifestFolder.of(checkpoint)
    for _ in range(_ATTEMPTS - 1):
        with suppress(DamagedManifest):
            return load_list(file, manifests, committed_manifest(checkpoint))
    return load_list(file, manifests, committed_manifest(checkpoint))


_ATTEMPTS = 3
"""A job that runs may put manifests together while they are read here."""


def load_list(file: Place, manifests: ManifestFolder, number: int) -> ReadList:
    """What was read up to a manifest; raises DamagedManifest."""
    found = _load(file)
    if found.number > number:
        raise DamagedManifest(
            f"{file}: reaches to manifest {found.number}, Spark's checkpoint only to {number}; restore both from one copy"
        )
    for next_ in range(found.number + 1, number + 1):
        found.add(manifests.read(next_))
    return found


class _MemoryRow(TypedDict):
    format: str
    memory: object


class _Common(TypedDict):
    """What lists of all versions have."""

    number: Count
    last_signal: str | None
    commands: NotRequired[list[Count]]


def _load(place: Place) -> ReadList:
    file = _list_file(place)
    data = file.read()
    if data is None:
        return ReadList()
    with damaged_as_manifest(file):
        common = shaped({key: data.pop(key) for key in _Common.__annotations__ if key in data}, _Common)
        by_source = _memories(data["sources"]) if "sources" in data else old_memories(data)
        commands = dict.fromkeys(common.get("commands", ()), 0)
        return ReadList(common["number"], by_source, common["last_signal"], common["number"], commands)


def _memories(plain: object) -> dict[str, Remembered]:
    rows = shaped(plain, dict[str, _MemoryRow])
    return {
        source: Remembered(row["format"], known_planning(source, row["format"]).memory_of(source, row["memory"]))
        for source, row in rows.items()
    }


def _list_file(file: Place) -> JobFile[dict[str, Any]]:
    return JobFile(file, dict[str, Any], RESTORE_ALL, range(1, LIST_VERSION + 1), DamagedManifest)
