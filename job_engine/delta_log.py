"""The log of a Delta table: what commits and checkpoints say, and what readers have to know.

Its content may be damaged, or somebody else's who means no good: each action is read in its shape.
Imports are few, because the process that lists inputs has to start fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar
from urllib.parse import unquote

from job_engine.durable_files import sync
from job_engine.local_path import LocalPath
from job_engine.place import (
    OutsidePath,
    Place,
    RemotePath,
    UnknownScheme,
    files_below,
    inside,
    is_within,
    local_copy,
    names_in,
    place_of,
)
from querylang.errors import InputError, is_passing, listed
from runtime.json_reader import DamagedJson, json_of_text, part_of, read_json, read_json_lines, shaped
from runtime.json_shapes import Count

if TYPE_CHECKING:
    from deltalake import DeltaTable


Found = TypeVar("Found")

LOG = "_delta_log"
"""The folder in a table that its log is in."""

LAST_CHECKPOINT = "_last_checkpoint"
"""The file in a log that names its newest checkpoint."""

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
    """The tables in a folder, and in the folders below it; the folder itself may be one.

    The table of a query has those of its instances below it if it runs without an instance, too.
    """
    if is_table(path):
        yield path
    for name in sorted(names_in(path)):
        is_part = "=" in name or name.startswith(("_", ".")) or name.endswith(".parquet")  # of the table itself
        if not is_part and (path / name).is_dir():
            yield from tables_below(path / name)


def files_of_table(table: Place) -> Iterator[Place]:
    """All files below a table, but those of other tables below it."""
    others = tuple(f"{other}/" for other in tables_below(table) if other != table)
    return (file for file in files_below(table) if not str(file).startswith(others))


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
    file = table / LOG / LAST_CHECKPOINT
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


# Checkpoints of the log of a Delta table: Parquet files, which may be damaged or hostile, too.

CHECKPOINT_WAY_OUT = "Restore it from a copy, or let whoever writes the table make a new checkpoint"

_SIDECAR = re.compile(r"[0-9A-Za-z.-]+[.]parquet")
"""Files beside a checkpoint have the names of UUIDs."""


def column_of_checkpoint(file: Place, name: str) -> Iterator[Any]:
    """The values of a column of actions; none if there is no such column. Raises DamagedJson."""
    import pyarrow as pa  # slow, and listers need it for few tables

    from runtime.reading import open_parquet

    with part_of(file, CHECKPOINT_WAY_OUT):
        try:
            with local_copy(file) as copy, open_parquet(copy) as parquet:
                if name not in parquet.schema_arrow.names:
                    return
                found = parquet.read([name]).column(name).to_pylist()
        except (FileNotFoundError, ConnectionError):
            raise
        except (OSError, pa.ArrowException, ArithmeticError) as error:
            if is_passing(error):
                raise
            raise DamagedJson(f"it cannot be read: {' '.join(str(error).split())[:200]}") from error
    yield from found


def remove_part_of_checkpoint(table: LocalPath) -> bool:
    """Remove the newest checkpoint if a power cut has left a part of it, and commits say the same.

    Of one that is missing the part is its name in `_last_checkpoint`. Gives whether there was one.
    """
    version, files = checkpoint_files(table)
    newest = last_checkpoint(table)
    if newest is not None and version < newest:
        told, parts = range(version + 1, newest + 1), list[Place]()
    elif any(map(_is_part, files)):
        before, _ = checkpoint_files(table, version - 1)
        told, parts = range(before + 1, version + 1), files
    else:
        return False
    if not {*told} <= {*commits(table)}:
        return False
    for file in (table / LOG / LAST_CHECKPOINT, *parts):
        file.unlink(missing_ok=True)
        sync(table / LOG)
    return True


def without_part(table: Place, ask: Callable[[], Found], refused: type[Exception]) -> Found:
    """What is asked of a table, without parts of checkpoints, which are removed as above.

    refused: what `ask` raises of them
    """
    while True:
        try:
            return ask()
        except refused:
            if isinstance(table, RemotePath) or not remove_part_of_checkpoint(table):
                raise


def _is_part(file: Place) -> bool:
    try:
        [*column_of_checkpoint(file, "txn")]
    except DamagedJson:
        return True
    return False


def has_deletion_vectors(table: Place, version: int) -> bool:
    """Whether a data file of a version has deleted rows; of the log, not of what it names."""
    begin, files = checkpoint_files(table, version)
    present = [number for number in commits(table) if begin < number <= version]
    if len(present) != version - begin:
        raise InputError(f"{table}: the log has no checkpoint in Parquet behind which all commits are there")
    marked: dict[str, bool] = {}
    for file in (*files, *_sidecars(table, files)):
        for add in column_of_checkpoint(file, "add"):
            if isinstance(add, dict) and isinstance(add.get("path"), str):
                marked[add["path"]] = bool(add.get("deletionVector"))
    for commit in present:
        actions = read_commit(table, commit) or []
        for remove in (found for action in actions if (found := action.get("remove"))):
            marked.pop(remove["path"], None)
        for own in (found for action in actions if (found := action.get("add"))):
            marked[own["path"]] = bool(own.get("deletionVector"))
    return any(marked.values())


def _sidecars(table: Place, files: list[Place]) -> Iterator[Place]:
    for file in files:
        for row in column_of_checkpoint(file, "sidecar"):
            path = row.get("path") if isinstance(row, dict) else None
            if path is None:
                continue
            if not isinstance(path, str) or not _SIDECAR.fullmatch(path):
                raise DamagedJson(f"{file}: is damaged: 'sidecar' does not name a file. {CHECKPOINT_WAY_OUT}")
            yield table / LOG / "_sidecars" / path


# Which micro-batches of which checkpoints a Delta table has: transaction ids in its log.

_APPLICATION = re.compile(r"ensue-([0-9a-f]{12})")


def application(identity: str) -> str:
    """The application of a checkpoint, as transactions name it."""
    return f"ensue-{identity}"


def identity_of(name: str) -> str | None:
    """The inverse of `application`; None = the application is somebody else's."""
    found = _APPLICATION.fullmatch(name)
    return None if found is None else found[1]


def transactions(table: Place) -> dict[str, int]:
    """The last version of each application. A part of a checkpoint is removed."""
    return without_part(table, lambda: _transactions(table), DamagedJson)


def _transactions(table: Place) -> dict[str, int]:
    version, files = checkpoint_files(table)
    found = {name: number for file in files for name, number in _in_checkpoint(file)}
    for commit in commits(table):
        if commit > version:
            found |= dict(_in_commit(read_commit(table, commit) or []))
    return found


def _in_checkpoint(file: Place) -> Iterator[tuple[str, int]]:
    for row in column_of_checkpoint(file, "txn"):
        if row is not None:
            with part_of(file, CHECKPOINT_WAY_OUT):
                txn = shaped(row, Txn)
            yield txn["appId"], txn["version"]


def _in_commit(actions: list[Action]) -> Iterator[tuple[str, int]]:
    return ((txn["appId"], txn["version"]) for action in actions if (txn := action.get("txn")))


def committed_files(table: Place, application: str, version: int) -> set[str] | None:
    """The data files of a transaction, below the table; None = the log has it no longer."""
    for commit in reversed(commits(table)):
        actions = read_commit(table, commit) or []
        if (application, version) in _in_commit(actions) and not any("remove" in action for action in actions):
            return {unquote(add["path"]) for action in actions if (add := action.get("add"))}
    return None


def added_behind(table: Place, application: str, version: int) -> list[Mapping[str, Any]] | None:
    """The data files of the transactions behind one, as the log names them.

    None = the log does not reach back to that one.
    """
    found: list[Mapping[str, Any]] = []
    present = commits(table)
    for commit in reversed(present):
        actions = read_commit(table, commit) or []
        own = dict(_in_commit(actions)).get(application)
        if own is not None and own <= version:
            return found
        if own is not None:
            found += [add for action in actions if (add := action.get("add"))]
    return found if present[:1] == [0] else None


# Where the data files of a Delta table are, as its log names them.
#
# A log may be somebody else's. It names files in the table's folder; others only where the user has
# allowed it, and credentials go only to the store of the table itself.

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/))?(/.*)", re.DOTALL | re.IGNORECASE)


def data_file(table: Place, path: str, *, outside: bool = False) -> Place:
    """The place of a data file.

    path: as the log has it, once its `%XX` are decoded
    outside: whether it may be outside of the table's folder

    Raises OutsidePath, which names the setting that allows it.
    """
    try:
        if not _URI.fullmatch(path) and not path.startswith("/") and not outside:
            return inside(table, path)
        place = _place(table, path)
    except (UnknownScheme, OutsidePath) as error:
        raise _refusal(table, path) from error
    if outside or is_within(place, table):
        return place
    raise _refusal(table, path)


def is_below(path: str) -> bool:
    """Whether a path as of `data_file` is one of those in the table, links not looked at."""
    return not _URI.fullmatch(path) and not path.startswith("/") and ".." not in path.split("/")


def _refusal(table: Place, path: str) -> InputError:
    return OutsidePath(
        f"{table}: its log names a data file outside of the table: {path!r}. With `outside_files: true` such"
        " files are read"
    )


def _place(table: Place, path: str) -> Place:
    local = _FILE.fullmatch(path)
    if local is not None:
        return LocalPath(local[1])
    if _URI.fullmatch(path):
        found = place_of(path)
        if isinstance(found, RemotePath):
            _refuse_steps_up(found, path)
            is_same = isinstance(table, RemotePath) and found.root == table.root
            return replace(found, options=table.options) if is_same and isinstance(table, RemotePath) else found
        return found
    if isinstance(table, RemotePath):
        place = replace(table, path=path.strip("/")) if path.startswith("/") else table / path
        _refuse_steps_up(place, path)
        return place
    return table / path


def _refuse_steps_up(place: RemotePath, path: str) -> None:
    """A store has no folders: what `..` means there depends on who sends the name."""
    if ".." in place.path.split("/"):
        raise OutsidePath(f"{place}: {path!r} has '..'")


# What a Delta table asks of its readers and writers beyond the basics: refused by name.
#
# Data files are written and read here, not by the package. So only what needs nothing of data files
# is allowed.

_WRITABLE = {
    *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "changeDataFeed"),
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "domainMetadata"),
}
"""Constraints, generated columns and the like, too, are refused where a table has them."""

_OF_COLUMNS = {
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
    "delta.invariants": "invariants of columns",
}

_VERSION_3 = 3
_VERSION_7 = 7


def refuse_unreadable(path: Place, table: DeltaTable) -> None:
    """Raise InputError if the table's data files are not plain tables of its columns."""
    protocol = table.protocol()
    asked = set(protocol.reader_features or ())
    too_new = [f"reader version {protocol.min_reader_version}"] * (protocol.min_reader_version > _VERSION_3)
    found = [*too_new, *sorted(asked - READABLE), *_mapping(table)]
    if found:
        raise InputError(f"{path}: the Delta table has {listed(found)}, which cannot be read here")


def refuse_unwritable(path: Place, table: DeltaTable) -> None:
    """Raise InputError if it takes more than adding plain data files to write to the table."""
    protocol, settings = table.protocol(), table.metadata().configuration
    asked = set(protocol.writer_features or ())
    too_new = [f"writer version {protocol.min_writer_version}"] * (protocol.min_writer_version > _VERSION_7)
    constraints = [f"the constraint '{key.split('.')[-1]}'" for key in settings if key.startswith("delta.constraints.")]
    found = [*too_new, *sorted(asked - _WRITABLE), *_mapping(table), *constraints, *_columns(fields_of(table))]
    if found:
        raise InputError(
            f"{path}: the Delta table has {listed(found)}, which a sink cannot write; choose another folder"
        )


class Field(TypedDict):
    """A column as the log has it; its type is text, or an object of one that has parts."""

    name: str
    type: Any
    nullable: NotRequired[bool]
    metadata: NotRequired[dict[str, Any]]


class _Schema(TypedDict):
    fields: list[Field]


def fields_of(table: DeltaTable) -> list[Field]:
    """The columns as the log has them."""
    return fields_of_text(table.schema().to_json())


def fields_of_text(text: str) -> list[Field]:
    """The columns of a schema's text; raises DamagedJson."""
    return json_of_text(text, _Schema)["fields"]


def _mapping(table: DeltaTable) -> list[str]:
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return [] if mode == "none" else ["column mapping (columnMapping)"]


def _columns(fields: list[Field]) -> Iterator[str]:
    kinds: Mapping[str, None] = {
        kind: None for field in fields for key, kind in _OF_COLUMNS.items() if key in field.get("metadata", {})
    }
    yield from kinds
