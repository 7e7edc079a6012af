"""The kinds of sources that a job can read, and what the rest of the house asks of each.

A kind is a folder with three modules. A new kind is such a folder, and a line in FORMATS for each
format that it reads. Nobody else knows which kinds there are.

- `settings`, with KIND: how a deployment file says such a source. Loads neither Spark nor Arrow
- `planning`, with PLANNING: what the lister asks, in a process that has to start fast
- `running`, with RUNNING: what the driver asks before a start and beside a run, and what workers do
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark_backend.document.fixed_settings import FixedValue
from spark_backend.document.setting_keys import SOURCE_KEYS, Change
from spark_backend.document.setting_values import Folders
from spark_backend.document.yaml_document import Node
from spark_backend.places.place import Place
from spark_backend.sources.source import Source

if TYPE_CHECKING:
    from runtime.reading.column_names import ColumnNames
    from spark_backend.sources.backlog import SourceBacklog
    from spark_backend.sources.listing.read_files import ReadFiles

_FOLDER, _TOPICS, _TABLE = (f"spark_backend.sources.{name}" for name in ("folder", "kafka", "delta"))

FORMATS: dict[str, str] = {
    "parquet": _FOLDER,
    "csv": _FOLDER,
    "json": _FOLDER,
    "arrow": _FOLDER,
    "kafka": _TOPICS,
    "delta": _TABLE,
}
"""By the name that a deployment file uses, the package of the kind."""


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
    """What a kind has read of a source; fields as in `Source`.

    arrival: the column of arrival times, where the kind has one
    fixed: settings that may not change on a checkpoint and whose values are not those in the file
    """

    own: Any
    place: Place | None = None
    table: str = ""
    arrival: str | None = None
    fixed: Mapping[str, FixedValue] = field(default_factory=dict)


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

    def backlog(self, own: Any, read: ReadFiles) -> SourceBacklog:
        """What the job would read next if nothing limited it; raises OSError and Unanswered."""


def running_of(source: Source) -> SourceRunning:
    """What a driver asks of the kind of a source."""
    running: SourceRunning = importlib.import_module(f"{FORMATS[source.format]}.running").RUNNING
    return running


def kind_of(format_: str) -> SourceKind:
    """The kind that reads a format."""
    kind: SourceKind = importlib.import_module(f"{FORMATS[format_]}.settings").KIND
    return kind


@cache
def _known(packages: tuple[str, ...]) -> tuple[SourceKind, ...]:
    return tuple(importlib.import_module(f"{package}.settings").KIND for package in dict.fromkeys(packages))


def kinds() -> tuple[SourceKind, ...]:
    """All kinds, in the order of FORMATS."""
    return _known(tuple(FORMATS.values()))


def source_keys() -> dict[str, Change]:
    """All keys that a source may have, of whatever kind it is."""
    return {**SOURCE_KEYS, **{key: change for kind in kinds() for key, change in kind.keys.items()}}
