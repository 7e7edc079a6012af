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
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from job_engine.setting_keys import CONTROL_KEYS, SOURCE_KEYS, Change
from querylang.dataclass import asdict, dataclass, field
from querylang.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from job_engine.place import Place
    from job_engine.setting_values import Folders, Stream
    from job_engine.sources.crash_marks import CrashMarks
    from job_engine.sources.reading import Reading
    from job_engine.sources.source import Again, PiecesAgain, Source, SourceBacklog, Unread
    from job_engine.wire.program import Program
    from job_engine.yaml_document import Node
    from runtime.file_forms import CsvForm
    from runtime.reading import ColumnNames

_FOLDER, _TOPICS, _TABLE = (f"job_engine.sources.{name}" for name in ("folder", "topics", "table"))

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
class SourceEntry:
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
    """What a kind has read of a source; fields as in `Source`. `csv`: None = as is usual."""

    own: Any
    place: Place | None = None
    table: str = ""
    csv: CsvForm | None = None


class SourceKind(ABC):
    """How a deployment file says sources of one kind.

    title: such sources, as messages call them
    keys: those that such a source may have beside those of all sources
    options: what its `options` may have and documents list
    needed: what it must have of those, in words of JSON Schema
    usual: values of fixed keys that are the same as none
    control_keys: those of `keys` that the control stream may have; None = it cannot be one of these
    tells_arrival: whether each record tells when it arrived, and no column does
    is_log: whether it has partitions whose records are numbered in the order in which they arrived,
        as messages of topics are. Then arrival is the running maximum along each partition, the
        place of a record says which topic it is of, readers refuse what arrives too far ahead, and
        `--skip` names a record. Else records that are read together are merged by arrival
    """

    title: str
    keys: Mapping[str, Change] = {}
    options: Mapping[str, Change] = {}
    needed: Mapping[str, Any] = {}
    usual: Mapping[str, str] = {}
    control_keys: tuple[str, ...] | None = None
    tells_arrival = False
    is_log = False

    @abstractmethod
    def read(self, entry: SourceEntry) -> KindSettings:
        """The settings; mistakes are reported."""

    def placed(self, own: Any, place: Place) -> Any:  # noqa: ARG002 # of those that are in a folder
        """The same source at another place, or at the same one reached in another way."""
        return own

    def asked_again(self, own: Any, retry: float | None) -> Any:  # noqa: ARG002
        """The same, which asks again for so many seconds what does not answer; None = as usual."""
        return own

    def limits(self, own: Any) -> Mapping[str, int | None]:  # noqa: ARG002
        """Options that say how much a micro-batch reads at most; None = as much as there is."""
        return {}

    def stream(self, own: Any) -> Stream | None:  # noqa: ARG002
        """The messages that it reads; None = what it reads is in a folder or a table."""
        return None

    def shown(self, source: Source) -> str:
        """Where its records are, in words."""
        return self.title if source.place is None else str(source.place)


Report = Callable[[str, str, str], None]
"""Takes cause, source and an example."""


class Memory(Protocol):
    """What was read of one source: the sum of its pieces."""

    def __len__(self) -> int:
        """How many entries it has."""

    def add(self, number: int, piece: Any) -> None:
        """Add the piece of the next manifest, which has that number."""

    def to_plain(self, until: int, piece: Any) -> Any:
        """What it was behind the manifest of that number, as JSON can hold it; `piece`: of that."""

    def still(self) -> Any:
        """A piece that reads nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a manifest has of one source.

    format: of the source
    piece: what its kind has planned
    """

    format: str
    piece: Any


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the list of what was read has of one source; `format`: as in `Part`."""

    format: str
    memory: Memory


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
    most_followed: partitions whose records the planner may take itself as they come, if a source
        has no more (`KindPlanner.taken`); those of one may come before earlier ones of another.
        None = any number
    """

    checkpoint: Place
    now: Callable[[], int]
    accepts_loss: bool = False
    firsts: Mapping[str, str] | None = None
    most_followed: int | None = 0


class KindPlanner(ABC):
    """Plans what the sources of one kind read in one run. Reports go with the next manifest.

    settles: whether anything happens to what was read, once that is committed
    asks_nobody: whether what comes is found without asking anybody, most of the time

    Parameters `memories` and `pieces` have those of its sources, by source.
    """

    @property
    def settles(self) -> bool:
        """As above."""
        return False

    @property
    def asks_nobody(self) -> bool:
        """As above."""
        return False

    @abstractmethod
    def fix_end(self) -> None:
        """The run reads what is there now, and nothing that comes later."""

    def load(self, memories: Mapping[str, Any]) -> None:  # noqa: B027 # most have nothing to do
        """Take out of what was read what is not there any more."""

    def begin(self, memories: Mapping[str, Any]) -> None:  # noqa: B027
        """The run knows now what was read before it."""

    def advance(self, pieces: Mapping[str, Any]) -> None:  # noqa: B027
        """These pieces are read, and added to the memories."""

    def drop_gone(self, memories: Mapping[str, Any]) -> None:  # noqa: B027
        """Forget what will not come back, before what was read is put together."""

    @abstractmethod
    def next(self, memories: Mapping[str, Any], report: Report, *, has_ended: bool) -> Planned:
        """What follows; `has_ended`: all is read, so what else has changed is not reported."""

    def settle(self, memories: Mapping[str, Any], committed: int, report: Report) -> None:  # noqa: B027
        """Let it happen up to a manifest."""

    def taken(self, work: Any) -> list[bytes]:  # noqa: ARG002
        """What this process has taken already of a task's work, for `TaskRun.taken`."""
        return []

    def close(self) -> None:  # noqa: B027
        """The run has ended."""


class SourcePlanning(ABC):
    """What the lister asks of one kind.

    own_type: of the settings: a dataclass that `json_shapes` reads
    work_type: of what one task reads of a source, likewise
    news_type: of what every bucket has to hear of a source, likewise
    """

    own_type: type[Any]
    work_type: type[Any]
    news_type: type[Any] = type(None)

    @abstractmethod
    def memory(self, source: str) -> Memory:
        """That of a source of which nothing was read."""

    @abstractmethod
    def memory_of(self, source: str, plain: Any) -> Memory:
        """The inverse of `Memory.to_plain`; raises DamagedJson."""

    def piece_to_plain(self, piece: Any) -> Any:
        """A piece as JSON can hold it."""
        return asdict(piece)

    @abstractmethod
    def piece_of(self, source: str, plain: Any) -> Any:
        """The inverse of `piece_to_plain`; raises DamagedJson."""

    @abstractmethod
    def planner(self, sources: Sequence[Any], run: PlannedRun) -> KindPlanner:
        """That of one run; `sources`: the `own` of each."""

    def must_prove(self, own: Any) -> bool:  # noqa: ARG002
        """Whether what cannot be read stops the job until the source has brought a record."""
        return False

    @abstractmethod
    def tasks(
        self, pieces: Mapping[str, Any], sources: Mapping[str, Any], count: int, unproven: Collection[str]
    ) -> list[dict[str, Any]]:
        """What each task reads, by source: at most `count` tasks, or as many as a source wants.

        pieces: of a manifest, by source
        sources: the `own` of each
        unproven: the sources that have not brought a record before
        """

    def news(self, piece: Any) -> Any | None:  # noqa: ARG002
        """What every bucket has to hear of a piece; None = nothing."""
        return None

    def begun(self, before: Any | None, dropped: Sequence[Any]) -> Any | None:  # noqa: ARG002
        """A piece that reads nothing, and says where reading has begun; None = that is known.

        Where a job begins depends on what there is at that moment. What was there and has been lost
        since must not be passed over when its first pieces are planned anew.

        before: a piece that reads nothing, of what was read before; None = nothing was
        dropped: the pieces behind it that are planned anew, at least one
        """
        return None


@dataclass(frozen=True, slots=True)
class FirstTables:
    """What a source shows before a new job begins.

    tables: to infer the types of fields from; empty = there is no data yet
    judged: those whose columns can be looked at
    labels: their names in messages
    have_types: whether they say the types of their columns
    """

    tables: Sequence[Any]
    judged: Sequence[Any]
    labels: Sequence[str]
    have_types: bool = True


class SourceRunning(ABC):
    """What a driver asks before a job starts and beside it."""

    @abstractmethod
    def refuse_unreadable(self, source: Source) -> None:
        """Raise InputError if a job could read nothing of it."""

    def notes(self, source: Source, *, is_new: bool) -> Iterator[str]:  # noqa: ARG002
        """What users should know of it, a line each; `is_new`: whether the job is."""
        return iter(())

    def begin(self, source: Source) -> None:  # noqa: B027 # most need nothing
        """Make what a control stream needs, or what `create` of a source says."""

    def first_tables(
        self,
        source: Source,  # noqa: ARG002
        names: ColumnNames,  # noqa: ARG002
        copies: Path,  # noqa: ARG002
        most: int | None,  # noqa: ARG002
    ) -> FirstTables | None:
        """What it has now; None = that is not looked at.

        copies: a folder for copies of what is in a store
        most: most bytes of what is copied; None = no limit
        """
        return None

    def place_of_new(self, source: Source, name: str) -> Place:  # noqa: ARG002
        """Where a new file of that name is read; raises InputError."""
        raise InputError(f"records cannot be put back into the source '{source.name}'")

    @abstractmethod
    def backlog(self, own: Any, memory: Any, checkpoint: Place) -> SourceBacklog:
        """What the job would read next if nothing limited it; raises OSError and SourceProblem."""

    @abstractmethod
    def done(self, memory: Any) -> Any:
        """How far it is once all that was read has been read again, as JSON can hold it."""

    @abstractmethod
    def again(self, own: Any, memory: Any, asked: Again) -> PiecesAgain:
        """What was read, to be read again. Raises InputError if it cannot be asked for."""

    def moved_since(self, own: Any, memory: Any, before: Any) -> MovedSince | None:  # noqa: ARG002
        """What a job that goes back does not find where it was; None = a run says so by itself.

        memory: of what was read until now; None = that is not known
        before: of what was read where the job goes back to
        """
        return None

    def move_back(self, own: Any, paths: Sequence[str]) -> None:  # noqa: B027 # most have nothing to move
        """Let what was archived be where it was read, as far as it is not."""


@dataclass(frozen=True, slots=True)
class MovedSince:
    """Files that were read behind a point, and that are not in their source's folder any more.

    way: what the source does with files that it has read
    archived, gone: their paths
    unnamed: how many more there are, whose names the checkpoint does not keep; None = not known
    """

    way: str
    archived: Sequence[str] = ()
    gone: Sequence[str] = ()
    unnamed: int | None = 0


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What a worker has to know to read a source in a task.

    is_repeated: whether an earlier run may have read the same
    accepts_loss: whether what was removed or has changed is left out
    marks: of ranges that readers died on
    taken: what the driver has taken already, as `KindPlanner.taken` gives it
    """

    program: Program
    reading: Reading
    marks: CrashMarks
    taken: Sequence[bytes] = ()
    accepts_loss: bool = False
    is_repeated: bool = False


class SourceReading(ABC):
    """What workers do."""

    @abstractmethod
    def packed(self, own: Any, work: Any, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """The packed rows of a task's work; raises InputError for what is lost or has changed."""

    def news(self, own: Any, news: Any, run: TaskRun) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """What every bucket hears, packed."""
        return iter(())


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


def control_keys() -> tuple[str, ...]:
    """All keys that the control stream may have, of whatever kind it is."""
    return (*CONTROL_KEYS, *dict.fromkeys(key for kind in kinds() for key in kind.control_keys or ()))


def source_keys() -> dict[str, Change]:
    """All keys that a source may have, of whatever kind it is."""
    return {**SOURCE_KEYS, **{key: change for kind in kinds() for key, change in kind.keys.items()}}
