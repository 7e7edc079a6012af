"""The kinds of sinks that a job can write to, and what the rest of the house asks of each.

A kind is a package with three modules. A new kind is such a package, and a line in FORMATS for each
format that it writes. Nobody else knows which kinds there are.

- `settings`, with KIND, a `SinkKind`: how a deployment file says such a sink. Loads neither Spark
  nor Arrow
- `writing`, with WRITING, a `Writing`: what tasks do with results, on workers, without a session
- `publishing`, with PUBLISHING, a `Publishing`: what the driver does before, in and beside a run

Exactly once. Tasks write drafts, and the driver publishes them once all tasks have ended, so that
attempts that failed leave nothing visible. A micro-batch may be repeated after a crash; the
repeated one must replace what the interrupted one published.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from job_engine.durable_files import remove
from job_engine.place import Place, asked_again, place_of_plain, place_to_plain
from querylang.dataclass import dataclass, fields, replace
from querylang.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from job_engine.setting_values import Folders, Stream
    from job_engine.yaml_document import Node

MATCHES = "matches"
SINKS = (MATCHES, "output", "discarded", "ledger")
"""The names of sinks, each for one kind of result."""

_FOLDER, _TABLE, _TOPICS = (f"job_engine.sinks.{name}" for name in ("folder", "table", "topics"))

FORMATS: dict[str, str] = {
    "parquet": _FOLDER,
    "json": _FOLDER,
    "csv": _FOLDER,
    "delta": _TABLE,
    "kafka": _TOPICS,
}
"""By the name that a deployment file uses, the package of the kind."""


class Layout(StrEnum):
    """How matches are divided among tables."""

    QUERY = "query"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Sink:
    """Where one kind of result goes.

    format: one of FORMATS
    own: what only its kind has, and looks into: a frozen dataclass
    place: the folder that it is in; None = it is in no folder, or a catalog says in which
    table: its name in a catalog; "" = it has none, or `place` says where it is
    shared: whether other jobs may write there, too
    layout: whether each query has a table of its matches, or all have one
    kind: the package of its kind; "" = FORMATS has it
    """

    format: str
    own: Any
    place: Place | None = None
    table: str = ""
    shared: bool = False
    layout: Layout = Layout.QUERY
    kind: str = ""

    @property
    def package(self) -> str:
        """The package of its kind."""
        return self.kind or FORMATS[self.format]

    @property
    def folder(self) -> Place:
        """Its place, of a sink that has one."""
        assert self.place is not None, f"a sink of {self.format} is in no folder"
        return self.place

    def asked_again(self, retry: float | None) -> Sink:
        """The same, which asks again for so many seconds what does not answer; None = as usual."""
        own = sink_kind(self.format).asked_again(self.own, retry)
        return replace(self, own=own, place=None if self.place is None else asked_again(self.place, retry))

    def to_plain(self) -> dict[str, Any]:
        """What workers need of it, as JSON can hold it; they may not have FORMATS of the driver."""
        return {
            "format": self.format,
            "kind": self.package,
            "own": writing(self).to_plain(self.own),
            "place": None if self.place is None else place_to_plain(self.place),
            "layout": self.layout,
        }

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Sink:
        """The inverse of `to_plain`."""
        return Sink(
            data["format"],
            _loaded(data["kind"], "writing").WRITING.of_plain(data["own"]),
            None if data["place"] is None else place_of_plain(data["place"]),
            layout=Layout(data["layout"]),
            kind=data["kind"],
        )


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """A sink as a deployment file has it.

    name: `matches` and others of SINKS, or that of a channel
    found: its keys
    layout, shared: what they say
    """

    name: str
    format: str
    node: Node
    found: Mapping[str, Node]
    folders: Folders
    layout: Layout = Layout.QUERY
    shared: bool = False
    is_channel: bool = False

    def sink(self, own: Any, place: Place | None = None, table: str = "") -> Sink:
        """The sink; arguments as in `Sink`."""
        return Sink(self.format, own, place, table, self.shared, self.layout)

    def place(self) -> Place | None:
        """The folder that `path` says, which no other setting may have; None = there is none."""
        from job_engine.setting_values import FolderKind, store_options

        if "path" not in self.found:
            return None
        node = self.found["path"]
        place = self.folders.place(node, store_options(self.found))
        self.folders.add(FolderKind.CHANNEL if self.is_channel else FolderKind.SINK, self.name, place, node)
        return place


class SinkKind(ABC):
    """How a deployment file says sinks of one kind.

    keys: those that such a sink may have beside `format` and `options`, each with the name that
        messages give its owner: 'topic' is a setting of Kafka
    needs: those of them of which one has to be there
    """

    keys: Mapping[str, str]
    needs: tuple[str, ...] = ()

    @abstractmethod
    def read(self, entry: SinkEntry) -> Sink:
        """The sink; mistakes are reported."""

    def asked_again(self, own: Any, retry: float | None) -> Any:  # noqa: ARG002
        """The same, which asks again for so many seconds what does not answer beside its place."""
        return own

    def stream(self, own: Any) -> Stream | None:  # noqa: ARG002
        """The messages that it writes; None = what it writes is in a folder or a table."""
        return None

    def in_words(self, format_: str) -> str:
        """What a sink of a format is, as messages say it."""
        return format_

    def shown(self, sink: Sink) -> str:
        """Where its results are, as messages say it."""
        return self.in_words(sink.format) if sink.place is None else str(sink.place)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a checkpoint.

    identity: of the checkpoint, 12 digits
    """

    identity: str
    number: int

    @property
    def name(self) -> str:
        """What the names of its files begin with, and no others."""
        return f"{self.identity}-{self.number:08d}-"


@dataclass(frozen=True, slots=True)
class Result:
    """What one micro-batch wrote to one place of a sink: its checkpoint's identity, its number."""

    identity: str
    batch: int
    place: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a task has written and nobody sees yet.

    path: the file that it is in; "" = it passes through the driver
    place: the place that it is for
    details: what its kind has to know of it to publish it
    data: its content, if it passes through the driver
    """

    path: str
    place: str
    details: str = ""
    data: bytes | None = None


class TaskWriter(Protocol):
    """The results of one task of one micro-batch for one sink, on a worker."""

    def write(self, part: str, table: pa.Table) -> str:
        """Add a table; `part`: the part of the sink that it belongs to, "" = the sink itself.

        Gives the name of the place that it will be in once it is published.
        """

    def finish(self) -> Sequence[Draft]:
        """Complete what was written, so that it survives a power cut; nobody sees it yet."""

    def abort(self) -> None:
        """Remove everything: nothing of it may become visible."""


class Writing(ABC):
    """What tasks do with sinks of one kind; `own`: the class of what only these have."""

    own: type[Any]

    def to_plain(self, own: Any) -> dict[str, Any]:
        """What workers need of it, as JSON can hold it: not what `repr` hides, as secrets are."""
        return {item.name: getattr(own, item.name) for item in fields(own) if item.repr}

    def of_plain(self, data: Mapping[str, Any]) -> Any:
        """The inverse of `to_plain`."""
        return self.own(**data)

    @abstractmethod
    def open(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> TaskWriter:
        """A writer for one task; the places of its drafts have the name of the micro-batch in them.

        task: its number among those of the micro-batch
        attempt: names it among all attempts at tasks
        """


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is compacted.

    identity: names the checkpoint whose files they are
    last: the last micro-batch whose files may be replaced
    target: bytes that a compacted file should have
    confirm: raises InputError if another compaction has begun
    """

    identity: str
    last: int
    target: int
    confirm: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of the files of a sink.

    replaced: number of files that were replaced, those of an interrupted compaction included
    written: number of files that replaced them
    left: number of files afterwards
    """

    replaced: int
    written: int
    left: int


class Publishing(ABC):
    """What the driver does with sinks of one kind."""

    @abstractmethod
    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        """Raise InputError if results cannot be written there; writes nothing.

        parts: the schemas of what is written, by part as in `TaskWriter.write`
        """

    def refuse_mixtures(  # noqa: B027  most kinds have nothing to refuse
        self, sink: Sink, parts: Iterable[tuple[str, Sequence[pa.Schema]]]
    ) -> None:
        """Raise InputError if results of several texts do not fit into one part; files need not.

        parts: schemas that may be written, by part as in `TaskWriter.write`
        """

    @abstractmethod
    def publish(self, batch: MicroBatch, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        """Make the drafts of a micro-batch visible; all sinks of the kind that have some."""

    @abstractmethod
    def results(self, sink: Sink) -> Iterator[Result]:
        """The results that a sink holds, whoever wrote them; none where nobody can tell."""

    def last_published(self, sink: Sink, identity: str) -> int:
        """The number of the last micro-batch of a checkpoint that it has results of; -1 = none.

        What a run before was still publishing is decided first. Raises InputError, Unreachable.
        """
        return max((found.batch for found in self.results(sink) if found.identity == identity), default=-1)

    def with_drafts(self, sink: Sink, folder: str) -> Sink:  # noqa: ARG002
        """The sink for a run whose tasks may put drafts into a folder of the driver's machine."""
        return sink

    def begin(self, identity: str, sinks: Sequence[Sink], newest: int) -> None:  # noqa: B027 # most do not connect
        """Connect for a run; raises InputError where the job may not write.

        newest: number of the newest micro-batch that the checkpoint knows; -1 = none
        """

    def end(self, identity: str) -> None:  # noqa: B027
        """End the connections of a job's run."""

    @abstractmethod
    def remove_leftovers(self, sink: Sink, batch: MicroBatch, written: Collection[str]) -> None:
        """Remove what interrupted attempts at a micro-batch left, except for `written`."""

    def table_of_one_query(self, sink: Sink) -> Place | None:  # noqa: ARG002
        """A place that has the matches of one query; None = there is none."""
        return None

    def rows(self, sink: Sink, folder: Place) -> Iterator[dict[str, Any]]:
        """What was written to a folder and to those below it, to be compared."""
        raise InputError(f"{folder}: matches in {sink.format} cannot be compared")

    def removable(self, name: str, sink: Sink, results: Sequence[Result], last: int) -> list[Place]:  # noqa: ARG002
        """The files of results behind micro-batch `last`, to be removed: the job writes them again.

        Raises InputError if they cannot be removed.
        """
        raise InputError(
            f"the sink '{name}' has results of micro-batch {results[-1].batch}, and the backup ends with {last}: they"
            " cannot be removed; choose a new one, and restore again"
        )

    def refuse_joined(self, results: Iterable[Result], last: int) -> None:  # noqa: B027
        """Raise InputError if one of the results was joined with earlier ones.

        last: the micro-batch before the first that the job repeats
        """

    def remove(self, sink: Sink, files: Sequence[Place], identity: str, last: int) -> None:  # noqa: ARG002
        """Remove the files that `removable` has given; all of it is on the disk then."""
        remove(files)

    def has_unfinished(self, sink: Sink, identity: str) -> bool:  # noqa: ARG002
        """Whether a compaction of a checkpoint's results was interrupted."""
        return False

    def finish(self, sink: Sink, identity: str) -> None:  # noqa: B027 # most have nothing to finish
        """Finish or undo it."""

    def compact(self, sink: Sink, compaction: Compaction) -> Compacted | str:  # noqa: ARG002
        """Let many small files become few, with the same rows; else says what does that, or ""."""
        return ""


def _loaded(package: str, module: str) -> Any:
    return importlib.import_module(f"{package}.{module}")


def sink_kind(format_: str) -> SinkKind:
    """The kind that writes a format."""
    kind: SinkKind = _loaded(FORMATS[format_], "settings").KIND
    return kind


def sink_kinds() -> list[SinkKind]:
    """All kinds, in the order of FORMATS."""
    return [_loaded(package, "settings").KIND for package in dict.fromkeys(FORMATS.values())]


def writing(sink: Sink) -> Writing:
    """What tasks do with a sink."""
    found: Writing = _loaded(sink.package, "writing").WRITING
    return found


def publishing(sink: Sink) -> Publishing:
    """What the driver does with a sink."""
    found: Publishing = _loaded(sink.package, "publishing").PUBLISHING
    return found
