"""Manifests: what one micro-batch reads, on record before Spark knows of it.

Spark's offset is the number of a manifest. One that Spark's offset log has is never written again,
so a repeated micro-batch reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

from job_engine.job_file import JobFile, numbers_in
from job_engine.places.place import Place
from job_engine.sources.kinds import FORMATS, Part, SourcePlanning, planning_of
from job_engine.sources.listing.command_folder import Command
from job_engine.sources.listing.places import RESTORE_ALL, DamagedManifest, inputs_folder
from job_engine.sources.listing.unread import Unread
from job_engine.sources.old_lists import old_parts
from runtime.json_reader import DamagedJson, shaped
from runtime.json_shapes import ROW, Count

MANIFEST_VERSION = 3
"""Versions 1 and 2 have what each kind of source reads in keys of its own: `old_lists`."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one micro-batch reads.

    number: its number, from 1
    by_source: of all sources of which something is known
    signal: sent to every bucket; None = none
    last_signal: of the last manifest that has records or a signal; None = it had records only
    reports: what was found while listing, as `job_engine.wire.reports` has it in plain form
    commands: those that it brings; then it has no records
    unread: what is left of what was listed after it, by source; None = nothing is any more. Only of
        sources of which something waits, before or after
    """

    number: int
    by_source: Mapping[str, Part] = field(default_factory=dict)
    signal: str | None = None
    last_signal: str | None = None
    reports: tuple[tuple[str, str, int, str], ...] = ()
    commands: tuple[Command, ...] = ()
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


class PartRow(TypedDict):
    """What a file has of one source."""

    format: str
    piece: object


class _Common(TypedDict):
    """What manifests of all versions have."""

    number: Count
    signal: str | None
    last_signal: str | None
    reports: tuple[tuple[str, str, Count, str], ...]
    commands: NotRequired[tuple[Command, ...]]
    unread: NotRequired[Mapping[str, Annotated[Unread, ROW] | None]]


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
        file = self._file(number)
        data = file.needed()
        with damaged_as_manifest(file):
            return _of_plain(data)

    def numbers(self) -> list[int]:
        """The numbers of the manifests that are there, ascending."""
        return numbers_in(self.path)

    def remove(self, numbers: Iterator[int]) -> None:
        """Remove manifests that nobody asks for any more."""
        for number in numbers:
            self._file(number).remove()

    def _file(self, number: int) -> JobFile[dict[str, Any]]:
        file, versions = self.path / f"{number:010d}.json", range(1, MANIFEST_VERSION + 1)
        return JobFile(file, dict[str, Any], RESTORE_ALL, versions, DamagedManifest)


@contextmanager
def damaged_as_manifest(file: JobFile[Any]) -> Iterator[None]:
    """Say of the file what is wrong with a part of it; raises DamagedManifest."""
    try:
        with file.checking():
            yield
    except DamagedJson as error:
        raise DamagedManifest(str(error)) from error


def _to_plain(manifest: Manifest) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "version": MANIFEST_VERSION,
        "number": manifest.number,
        "sources": {
            source: {"format": part.format, "piece": planning_of(part.format).piece_to_plain(part.piece)}
            for source, part in manifest.by_source.items()
        },
        "signal": manifest.signal,
        "last_signal": manifest.last_signal,
        "reports": manifest.reports,
    }
    if manifest.commands:
        plain["commands"] = [command.to_plain() for command in manifest.commands]
    if manifest.unread:
        plain["unread"] = {source: left and astuple(left) for source, left in manifest.unread.items()}
    return plain


def _of_plain(data: dict[str, Any]) -> Manifest:
    own = {key: data.pop(key) for key in _Common.__annotations__ if key in data}
    common = shaped(own, _Common)
    by_source = _parts(data["sources"]) if "sources" in data else old_parts(data)
    return Manifest(
        number=common["number"],
        by_source=by_source,
        signal=common["signal"],
        last_signal=common["last_signal"],
        reports=common["reports"],
        commands=common.get("commands", ()),
        unread=common.get("unread", {}),
    )


def _parts(plain: object) -> dict[str, Part]:
    rows = shaped(plain, dict[str, PartRow])
    return {
        source: Part(row["format"], known_planning(source, row["format"]).piece_of(source, row["piece"]))
        for source, row in rows.items()
    }


def known_planning(source: str, format_: str) -> SourcePlanning:
    """What is asked of the format that a file names; raises DamagedJson."""
    if format_ not in FORMATS:
        raise DamagedJson(f"{source!r} has the format {format_!r}, which this release does not know")
    return planning_of(format_)
