"""The kinds of sources that a job can read, and what the rest of the house asks of each.

A kind is a folder with four modules, each imported on first use. A new kind is such a folder, and a
line in FORMATS for each format that it reads. Nobody else knows which kinds there are.

- `settings`, with KIND: how a deployment file says such a source. Loads neither Spark nor Arrow
- `planning`, with PLANNING: what the lister asks, in a process that has to start fast
- `running`, with RUNNING: what the driver asks before a start and beside a run
- `reading`, with READING: what workers do
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from spark_backend.document.setting_keys import SOURCE_KEYS, Change

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from runtime.reading.column_names import ColumnNames
    from spark_backend.document.setting_values import Folders
    from spark_backend.document.yaml_document import Node
    from spark_backend.places.place import Place
    from spark_backend.sources.again import Again, PiecesAgain
    from spark_backend.sources.backlog import SourceBacklog
    from spark_backend.sources.crash_marks import CrashMarks
    from spark_backend.sources.listing.unread import Unread
    from spark_backend.sources.reading import Reading
    from spark_backend.sources.source import Source
    from spark_backend.wire.program import Program

_FOLDER, _TOPICS, _TABLE = (f"spark_backend.sources.{name}" for name in ("folder", "topics", "table"))

FORMATS: dict[str, str] = {
    "parquet": _FOLDER,
    "csv": _FOLDER,
    "json": _FOLDER,
    "arrow": _FOLDER,
    "kafka": _TOPICS,
    "delta": _TABLE,
}
"""By the name that a deployment file uses, the package of the kind.

The driver sends this table to every process of a job, so a program may add a kind of its own.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A source as a deployment file has it.

    found: its keys
    is_control: whether it is the control stream
    """

    name: str
    format: str
    node: Node
    found: Mapping[str, Node]
    folders: Folders
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class KindSettings:
    """What a kind has read of a source; fields as in `Source`."""

    own: Any
    place: Place | None = None
    table: str = ""


class SourceKind(Protocol):
    """How a deployment file says sources of one kind."""

    @property
    def title(self) -> str:
        """Such sources, as messages call them."""

    @property
    def keys(self) -> Mapping[str, Change]:
        """The keys that such a source may have beside those of all sources."""

    @property
    def options(self) -> Mapping[str, Change]:
        """What its `options` may have and documents list."""

    @property
    def usual(self) -> Mapping[str, str]:
        """Values of fixed keys that are the same as none."""

    @property
    def takes_control(self) -> bool:
        """Whether such a source can be the control stream."""

    @property
    def tells_arrival(self) -> bool:
        """Whether each record tells when it arrived, and no column does."""

    @property
    def has_topics(self) -> bool:
        """Whether records have the number of a topic besides that of a partition."""

    def read(self, entry: Entry) -> KindSettings:
        """The settings; mistakes are reported."""

    def placed(self, own: Any, place: Place) -> Any:
        """The same source at another place, or at the same one reached in another way."""

    def asked_again(self, own: Any, retry: float | None) -> Any:
        """The same, which asks again for so many seconds what does not answer."""

    def shown(self, source: Source) -> str:
        """Where its records are, in words."""


Report = Callable[[str, str, str], None]
"""Takes cause, source and an example."""


class Memory(Protocol):
    """What was read of one source: the sum of its pieces."""

    def __len__(self) -> int:
        """How many entries it has."""

    def add(self, number: int, piece: Any) -> None:
        """Advance over the piece of the next manifest, which has that number."""

    def to_plain(self, until: int, piece: Any) -> Any:
        """What it was behind the manifest of that number, as JSON can hold it; `piece`: of that."""

    def still(self) -> Any:
        """A piece that reads nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a manifest, or the list of what was read, has of one source.

    format: of the source
    piece: what its kind has planned
    """

    format: str
    piece: Any


@dataclass(frozen=True, slots=True)
class Planned:
    """What sources of one kind read next.

    pieces: by source, of all of them
    has_records: whether anything is read
    is_due: whether a manifest is worth it, though nothing is read
    unread: as in `Manifest`
    """

    pieces: Mapping[str, Any] = field(default_factory=dict)
    has_records: bool = False
    is_due: bool = False
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """What planners have to know of a run.

    checkpoint: of the job
    now: the wall clock, ns since 1970
    accepts_loss: whether the job continues without what is lost
    firsts: options to look up when records arrive; None = their order says nothing
    """

    checkpoint: Place
    now: Callable[[], int]
    accepts_loss: bool = False
    firsts: Mapping[str, str] | None = None


class KindPlanner(Protocol):
    """Plans what the sources of one kind read in one run. Reports go with the next manifest."""

    def fix_end(self) -> None:
        """The run reads what is there now, and nothing that comes later."""

    def load(self, memories: Mapping[str, Any]) -> None:
        """Take out of what was read what is not there any more."""

    def begin(self, memories: Mapping[str, Any]) -> None:
        """The run knows now what was read before it."""

    def advance(self, pieces: Mapping[str, Any]) -> None:
        """These pieces are read."""

    def drop_gone(self, memories: Mapping[str, Any]) -> None:
        """Forget what will not come back, before what was read is put together."""

    def next(self, memories: Mapping[str, Any], report: Report, *, has_ended: bool) -> Planned:
        """What follows; `has_ended`: all is read, so what else has changed is not reported."""

    @property
    def settles(self) -> bool:
        """Whether anything happens to what was read, once that is committed."""

    def settle(self, memories: Mapping[str, Any], committed: int, report: Report) -> None:
        """Let it happen up to a manifest."""


class SourcePlanning(Protocol):
    """What the lister asks of one kind."""

    @property
    def own_type(self) -> type[Any]:
        """Of the settings: a dataclass that `json_shapes` reads."""

    @property
    def work_type(self) -> type[Any]:
        """Of what one task reads of a source, likewise."""

    @property
    def news_type(self) -> type[Any]:
        """Of what every bucket has to hear of a source, likewise."""

    def memory(self, source: str) -> Memory:
        """That of a source of which nothing was read."""

    def memory_of(self, source: str, plain: Any) -> Memory:
        """The inverse of `Memory.to_plain`; raises DamagedJson."""

    def piece_to_plain(self, piece: Any) -> Any:
        """A piece as JSON can hold it."""

    def piece_of(self, source: str, plain: Any) -> Any:
        """The inverse of `piece_to_plain`; raises DamagedJson."""

    def planner(self, sources: Sequence[Any], run: PlannedRun) -> KindPlanner:
        """That of one run."""

    def must_prove(self, own: Any) -> bool:
        """Whether what cannot be read stops the job until the source has brought a record."""

    def tasks(
        self, pieces: Mapping[str, Any], sources: Mapping[str, Any], count: int, unproven: Collection[str]
    ) -> list[dict[str, Any]]:
        """What each task reads, by source: at most `count` tasks, or as many as a source wants.

        unproven: the sources that have not brought a record before
        """

    def news(self, piece: Any) -> Any | None:
        """What every bucket has to hear of a piece; None = nothing."""


@dataclass(frozen=True, slots=True)
class FirstTables:
    """What a source shows before a new job begins.

    tables: to infer the types of fields from; empty = there is no data yet
    judged: those whose columns can be looked at
    labels: their names in messages
    """

    tables: Sequence[Any]
    judged: Sequence[Any]
    labels: Sequence[str]


class SourceRunning(Protocol):
    """What a driver asks before a job starts and beside it."""

    def refuse_unreadable(self, source: Source) -> None:
        """Raise InputError if a job could read nothing of it."""

    def notes(self, source: Source, *, is_new: bool) -> Iterator[str]:
        """What users should know of it, a line each; `is_new`: whether the job is."""

    def begin(self, source: Source) -> None:
        """Make what a control stream needs."""

    def first_tables(self, source: Source, names: ColumnNames, copies: Path, most: int | None) -> FirstTables | None:
        """What it has now; None = that is not looked at.

        copies: a folder for copies of what is in a store
        most: most bytes of what is copied; None = no limit
        """

    def place_of_new(self, source: Source, name: str) -> Place:
        """Where a new file of that name is read; raises InputError."""

    def backlog(self, own: Any, memory: Any, checkpoint: Place) -> SourceBacklog:
        """What the job would read next if nothing limited it; raises OSError and SourceProblem."""

    def done(self, memory: Any) -> Any:
        """How far it is once all that was read has been read again, as JSON can hold it."""

    def again(self, own: Any, memory: Any, asked: Again) -> PiecesAgain:
        """What was read, to be read again. Raises InputError if it cannot be asked for."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What a worker has to know to read a source in a task.

    is_repeated: whether an earlier run may have read the same
    accepts_loss: whether what was removed or has changed is left out
    marks: of ranges that readers died on
    """

    program: Program
    reading: Reading
    marks: CrashMarks
    accepts_loss: bool = False
    is_repeated: bool = False


class SourceReading(Protocol):
    """What workers do."""

    def packed(self, own: Any, work: Any, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """The packed rows of a task's work; raises InputError for what is lost or has changed."""

    def news(self, own: Any, news: Any, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """What every bucket hears, packed."""


def kind_of(format_: str) -> SourceKind:
    """How a deployment file says sources of a format."""
    kind: SourceKind = importlib.import_module(f"{FORMATS[format_]}.settings").KIND
    return kind


def planning_of(format_: str) -> SourcePlanning:
    """What the lister asks of sources of a format."""
    planning: SourcePlanning = importlib.import_module(f"{FORMATS[format_]}.planning").PLANNING
    return planning


def running_of(source: Source) -> SourceRunning:
    """What a driver asks of the kind of a source."""
    running: SourceRunning = importlib.import_module(f"{FORMATS[source.format]}.running").RUNNING
    return running


def reading_of(format_: str) -> SourceReading:
    """What workers do with sources of a format."""
    reading: SourceReading = importlib.import_module(f"{FORMATS[format_]}.reading").READING
    return reading


@cache
def _known(packages: tuple[str, ...]) -> tuple[SourceKind, ...]:
    return tuple(importlib.import_module(f"{package}.settings").KIND for package in dict.fromkeys(packages))


def kinds() -> tuple[SourceKind, ...]:
    """All kinds, in the order of FORMATS."""
    return _known(tuple(FORMATS.values()))


def source_keys() -> dict[str, Change]:
    """All keys that a source may have, of whatever kind it is."""
    return {**SOURCE_KEYS, **{key: change for kind in kinds() for key, change in kind.keys.items()}}
