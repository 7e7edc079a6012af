"""What micro-batches read: a manifest of each, and the list that adds manifests up.

A manifest is on record before the driver knows of it: its number is the driver's offset. One that
the log of offsets has is never written again, so a repeated micro-batch reads the same. Now and
then all but the last manifests are put into the list's own file, so that a micro-batch writes only
its own files, and the list is no longer than what the sources hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from job_engine.durable_files import JobFile, numbers_in
from job_engine.place import Place
from job_engine.sources.kinds import FORMATS, Part, Remembered, SourcePlanning, planning_of
from job_engine.sources.listing.batch_log import RESTORE_ALL, DamagedManifest, committed_manifest, inputs_folder
from job_engine.sources.listing.command_folder import Command
from job_engine.sources.old_lists import old_memories, old_parts
from job_engine.sources.source import Unread
from querylang.dataclass import asdict, astuple, dataclass, field
from runtime.json_reader import DamagedJson, json_of_text, shaped
from runtime.json_shapes import ROW, Count

if TYPE_CHECKING:
    from job_engine.sources.reading import Reading
    from job_engine.wire.program import Program


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


class _ManifestFields(TypedDict):
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
    own = {key: data.pop(key) for key in _ManifestFields.__annotations__ if key in data}
    common = shaped(own, _ManifestFields)
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
            f"{file}: reaches to manifest {found.number}, the driver's log only to {number}; restore both from one copy"
        )
    for next_ in range(found.number + 1, number + 1):
        found.add(manifests.read(next_))
    return found


class _MemoryRow(TypedDict):
    format: str
    memory: object


class _ListFields(TypedDict):
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
        common = shaped({key: data.pop(key) for key in _ListFields.__annotations__ if key in data}, _ListFields)
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


# What one task of a micro-batch reads, as JSON text from the lister to a worker.

SOURCES = "secret_sources"
"""The option of our data source for its sources. Spark shows no value of such a name."""


@dataclass(frozen=True, slots=True)
class ToldSource:
    """A source as the lister and workers have to know it; `own`: what its kind has to know."""

    format: str
    own: Any


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads.

    work: by source
    news: by source, for every bucket
    is_repeated: whether an earlier run may have read the same
    signal: sent to every bucket; None = none
    reports: as in `Manifest`
    commands: for every bucket
    unread: as in `Manifest`, for every bucket
    """

    work: Mapping[str, Any] = field(default_factory=dict)
    news: Mapping[str, Any] = field(default_factory=dict)
    is_repeated: bool = False
    signal: str | None = None
    reports: tuple[tuple[str, str, int, str], ...] = ()
    commands: tuple[Command, ...] = ()
    unread: Mapping[str, Unread | None] = field(default_factory=dict)

    def to_text(self) -> str:
        """The task as JSON text."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_text(text: str, sources: Mapping[str, ToldSource]) -> Task:
        """The inverse of `to_text`."""
        task = json_of_text(text, Task)
        work = {name: shaped(own, planning_of(sources[name].format).work_type) for name, own in task.work.items()}
        news = {name: shaped(own, planning_of(sources[name].format).news_type) for name, own in task.news.items()}
        return Task(work, news, task.is_repeated, task.signal, task.reports, task.commands, task.unread)


def tasks_of(
    manifest: Manifest,
    count: int,
    sources: Mapping[str, ToldSource],
    *,
    unproven: Collection[str] = (),
    is_repeated: bool = False,
) -> list[Task]:
    """At most `count` tasks for each kind; what is for all buckets has one.

    unproven: the sources that have not brought a record before
    """
    tasks: list[Task] = []
    news: dict[str, Any] = {}
    for format_, names in by_kind(sources).items():
        planning = planning_of(format_)
        pieces = {name: manifest.by_source[name].piece for name in names if name in manifest.by_source}
        own = {name: sources[name].own for name in names}
        tasks += [Task(work, is_repeated=is_repeated) for work in planning.tasks(pieces, own, count, unproven)]
        news.update({name: told for name, piece in pieces.items() if (told := planning.news(piece)) is not None})
    if manifest.signal is not None or manifest.reports or news or manifest.commands or manifest.unread:
        tasks.append(
            Task(
                news=news,
                is_repeated=is_repeated,
                signal=manifest.signal,
                reports=manifest.reports,
                commands=manifest.commands,
                unread=manifest.unread,
            )
        )
    return tasks


def by_kind(sources: Mapping[str, ToldSource]) -> dict[str, list[str]]:
    """The names of sources of the same kind, by a format of that kind."""
    found: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for name, source in sources.items():
        found.setdefault(first.setdefault(FORMATS[source.format], source.format), []).append(name)
    return found


class _SourceRow(TypedDict):
    format: str
    own: object


def sources_to_text(sources: Mapping[str, ToldSource]) -> str:
    """Sources and kinds as JSON text; it may be secret."""
    own = {name: {"format": source.format, "own": asdict(source.own)} for name, source in sources.items()}
    return json.dumps({"kinds": FORMATS, "sources": own})


class _Sources(TypedDict):
    kinds: dict[str, str]
    sources: dict[str, _SourceRow]


def sources_of_text(text: str) -> dict[str, ToldSource]:
    """The inverse of `sources_to_text`; from then on this process knows the same kinds."""
    data = json_of_text(text, _Sources)
    FORMATS.update(data["kinds"])
    return {
        name: ToldSource(row["format"], shaped(row["own"], planning_of(row["format"]).own_type))
        for name, row in data["sources"].items()
    }


def reading_options(
    sources: Mapping[str, ToldSource],
    readings: Mapping[str, Reading],
    program: Program,
    *,
    accepts_loss: bool = False,
) -> dict[str, str]:
    """What whoever reads a task has to know; parameters as of `packed_stream`."""
    return {
        "program": program.to_text(),
        SOURCES: sources_to_text(sources),
        "readings": json.dumps({name: reading.to_text() for name, reading in readings.items()}),
        "accept_loss": str(accepts_loss).lower(),
    }
