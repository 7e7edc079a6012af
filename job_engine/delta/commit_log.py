"""The log of a Delta table as files: what each commit did.

Its content may be damaged, or somebody else's who means no good: each action is read in its shape.
Imports are few, because the process that lists inputs has to start fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, NotRequired, TypedDict

from job_engine.places.place import Place, names_in
from runtime.json_reader import DamagedJson, read_json, read_json_lines
from runtime.json_shapes import Count

LOG = "_delta_log"
"""The folder in a table that its log is in."""

MOST_BYTES = 1 << 30
"""Of a commit: one of some million data files."""

REPAIR = "Restore it from a copy, or let whoever writes the table repair it"


class Add(TypedDict):
    """A data file that is there from here on; `stats` may be damaged, and says nothing then."""

    path: str
    size: Count
    dataChange: NotRequired[bool]
    partitionValues: NotRequired[dict[str, str | None] | None]
    stats: NotRequired[Any]
    deletionVector: NotRequired[dict[str, Any] | None]


class Remove(TypedDict):
    """A data file that is not there any more."""

    path: str
    dataChange: NotRequired[bool]


class Metadata(TypedDict):
    """What a table is from here on."""

    id: str
    schemaString: str
    configuration: NotRequired[dict[str, str | None] | None]


class Protocol(TypedDict):
    """What the table asks of readers."""

    minReaderVersion: NotRequired[Count]
    readerFeatures: NotRequired[list[str] | None]


class Txn(TypedDict):
    """What an application has written."""

    appId: str
    version: int


class Action(TypedDict):
    """One line of a commit: one of these, or something that readers of rows can leave alone."""

    add: NotRequired[Add | None]
    remove: NotRequired[Remove | None]
    metaData: NotRequired[Metadata | None]
    protocol: NotRequired[Protocol | None]
    txn: NotRequired[Txn | None]
    commitInfo: NotRequired[Any]


READABLE = frozenset(
    {
        *("timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"),
        *("typeWidening", "typeWidening-preview"),
    }
)
"""Features that readers of data files can leave alone. Those with deletion vectors, and tables with
column mapping, are refused where they are met."""

_COMMIT = re.compile(r"(0{2}[0-9]{18})\.json")
_CHECKPOINT = re.compile(r"(0{2}[0-9]{18})\.checkpoint\..*parquet")


def is_table(path: Place) -> bool:
    """Whether a folder has a log."""
    return (path / LOG).is_dir()


def tables_below(path: Place) -> Iterator[Place]:
    """The tables in a folder, and in the folders below it; the folder itself may be one."""
    if is_table(path):
        yield path
    else:
        for name in sorted(names_in(path)):
            if (path / name).is_dir():
                yield from tables_below(path / name)


def commit_file(table: Place, version: int) -> Place:
    """The file of a commit."""
    return table / LOG / f"{version:020d}.json"


def read_commit(table: Place, version: int) -> list[Action] | None:
    """What a commit did; None = it does not exist, or not any more. Raises DamagedJson."""
    try:
        return read_json_lines(commit_file(table, version), Action, way_out=REPAIR, largest=MOST_BYTES)
    except FileNotFoundError:
        return None


def commits(table: Place) -> list[int]:
    """The versions whose commits are files, ascending: old ones are removed now and then."""
    return sorted(int(found[1]) for name in names_in(table / LOG) if (found := _COMMIT.fullmatch(name)))


class _LastCheckpoint(TypedDict):
    version: Annotated[int, range(10**18)]


def last_checkpoint(table: Place) -> int | None:
    """The version that the newest checkpoint of the log has; None = there is none."""
    file = table / LOG / "_last_checkpoint"
    try:
        return read_json(file, _LastCheckpoint, way_out="", largest=1 << 20)["version"]
    except (FileNotFoundError, DamagedJson):
        return None


def checkpoint_files(table: Place, until: int | None = None) -> tuple[int, list[Place]]:
    """The newest checkpoint in Parquet, which may have several parts; -1 = there is none.

    until: the last version that counts; None = all do
    """
    found = [(int(match[1]), name) for name in names_in(table / LOG) if (match := _CHECKPOINT.fullmatch(name))]
    newest = max((version for version, _ in found if until is None or version <= until), default=-1)
    return newest, [table / LOG / name for version, name in sorted(found) if version == newest]
