"""The log of a Delta table as a reader of rows sees it: one version, each commit, what waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, NotRequired, TypedDict
from urllib.parse import unquote

from job_engine.delta_log import READABLE, Action, Add, Metadata, Protocol, data_file, is_below
from job_engine.errors import SourceProblem
from job_engine.place import OutsidePath
from job_engine.sources.source import Unread
from job_engine.sources.table.pieces import ListedFile, TableFile, TableFirsts, TablePosition
from job_engine.sources.table.settings import DeltaSource
from querylang.dataclass import dataclass, replace
from runtime.file_forms import natural_key
from runtime.instants import EARLIEST, LATEST
from runtime.json_reader import DamagedJson, json_of_text, shaped
from runtime.json_shapes import Count

# The data files of a Delta table at one version, for a new job: in units, in order of arrival.
#
# Files whose arrival times overlap are one unit: their records are ordered by arrival together.
# That needs the log's statistics of the arrival column. Without them files are in order of
# modification.

MOST_FILES = 256
"""Files of one unit, whatever overlaps: they are read at once."""


class UnreadableTable(SourceProblem):
    """A table that cannot be read, or not any further; the text says why, and the way out."""


def position_at(source: DeltaSource, version: int | None, *, is_read: bool) -> TablePosition:
    """The position of a new job; `version`: None = the newest; `is_read`: nothing of it is left."""
    from job_engine.delta_log import fields_of, refuse_unreadable

    table = _opened(source, version)
    refuse_unreadable(source.place, table)
    columns = {field["name"]: json.dumps(field["type"]) for field in fields_of(table)}
    return TablePosition(str(table.metadata().id), table.version(), None if is_read else 0, columns)


def snapshot_units(source: DeltaSource, version: int) -> list[tuple[TableFile, ...]]:
    """The units of the table; the same for each call."""
    return [tuple(item.file for item in unit) for unit in listed_units(source, version)]


def listed_units(source: DeltaSource, version: int) -> list[tuple[ListedFile, ...]]:
    """As `snapshot_units`, with what the log says of each file."""
    import pyarrow as pa

    from job_engine.delta_log import has_deletion_vectors
    from job_engine.delta_package import delta_errors

    table = _opened(source, version)
    # the package would read them, wherever the log says that they are
    if "deletionVectors" in (table.protocol().reader_features or ()) and has_deletion_vectors(source.place, version):
        raise UnreadableTable(
            f"source '{source.name}': {source.folder}: version {version} has data files with deleted rows (deletion"
            " vectors), which cannot be read here. Rewrite them: REORG TABLE ... APPLY (PURGE)"
        )
    with delta_errors(source.place):
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    units = list(_units(rows, source.arrival))
    refuse_outside_files(source, [item.file for unit in units for item in unit])
    return units


def refuse_outside_files(source: DeltaSource, files: Sequence[TableFile]) -> None:
    """Raise UnreadableTable for a file outside of the table; links are resolved by its reader."""
    if source.outside_files:
        return
    for file in files:
        if not is_below(file.path):
            try:
                data_file(source.place, file.path)
            except OutsidePath as error:
                raise UnreadableTable(f"source '{source.name}': {error}") from error


def _opened(source: DeltaSource, version: int | None) -> Any:
    from job_engine.delta_package import open_table

    table = open_table(source.place, version)
    if table is None:
        raise UnreadableTable(f"source '{source.name}': {source.folder}: is not a Delta table")
    return table


def _units(rows: Sequence[Mapping[str, Any]], arrival: str) -> Iterator[tuple[ListedFile, ...]]:
    least, most = f"min.{arrival}", f"max.{arrival}"
    if any(row.get(least) is None or row.get(most) is None for row in rows):
        for row in sorted(rows, key=lambda row: (row["modification_time"], natural_key(row["path"]))):
            yield (_of_snapshot(row),)
        return
    unit: list[ListedFile] = []
    until: Any = None
    for row in sorted(rows, key=lambda row: (row[least], natural_key(row["path"]))):
        if unit and (row[least] >= until or len(unit) == MOST_FILES):
            yield tuple(unit)
            unit = []
        until = row[most] if not unit else max(until, row[most])
        unit.append(_of_snapshot(row))
    if unit:
        yield tuple(unit)


def _of_snapshot(row: Mapping[str, Any]) -> ListedFile:
    values = {name.removeprefix("partition."): value for name, value in row.items() if name.startswith("partition.")}
    least = {name.removeprefix("min."): value for name, value in row.items() if name.startswith("min.")}
    partition = {name: _text(value) for name, value in values.items()}
    file = TableFile(unquote(row["path"]), row["size_bytes"], row["num_records"], partition)
    return ListedFile(file, {name: value for name, value in (values | least).items() if value is not None})


def _text(value: object) -> str | None:
    """A partition's value as the log has it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime() | date():
            return value.isoformat()
        case _:
            return str(value)


# What one commit of a Delta table means to a reader of its rows. Pure, by the log's actions.

_VERSION_3 = 3


@dataclass(frozen=True, slots=True)
class CommitReading:
    """A commit for a reader.

    files: with new rows
    changes: whether it changes or deletes rows
    identity, columns: of the table from here on; None = as before
    problem: what makes the table unreadable from here on; None = nothing
    time: of the commit, ms since 1970; None = it does not say
    """

    files: tuple[ListedFile, ...]
    changes: bool
    identity: str | None
    columns: Mapping[str, str] | None
    problem: str | None
    time: int | None


def commit_reading(actions: Sequence[Action]) -> CommitReading:
    """What the actions of a commit mean."""
    adds = [add for action in actions if (add := action.get("add")) and add.get("dataChange")]
    removes = [remove for action in actions if (remove := action.get("remove")) and remove.get("dataChange")]
    metadata = next((found for action in actions if (found := action.get("metaData"))), None)
    times = [_time_of(action["commitInfo"]) for action in actions if "commitInfo" in action]
    return CommitReading(
        files=tuple(map(_of_log, adds)),
        changes=bool(removes) or any(add.get("deletionVector") for add in adds),
        identity=None if metadata is None else metadata["id"],
        columns=None if metadata is None else schema_columns(metadata["schemaString"]),
        problem=_problem(actions, metadata),
        time=next((time for time in times if time is not None), None),
    )


class _Field(TypedDict):
    name: str
    type: Any


class _Schema(TypedDict):
    fields: list[_Field]


class _Statistics(TypedDict):
    numRecords: NotRequired[Count | None]
    minValues: NotRequired[dict[str, Any] | None]


class _CommitInfo(TypedDict):
    inCommitTimestamp: NotRequired[Moment | None]
    timestamp: NotRequired[Moment | None]


Moment = Annotated[int, range(EARLIEST // 1000, LATEST // 1000 + 1)]
"""A shape: milliseconds since 1970, in the years 1 to 9999."""


def schema_columns(text: str) -> dict[str, str]:
    """Types by column, as JSON text; `text`: a schema, as logs have it. Raises DamagedJson."""
    return {field["name"]: json.dumps(field["type"]) for field in json_of_text(text, _Schema)["fields"]}


def _of_log(add: Add) -> ListedFile:
    """A data file of the log; the values of partitions are in all of its rows."""
    statistics, partition = _statistics(add.get("stats")), add.get("partitionValues") or {}
    least = {
        **{name: value for name, value in partition.items() if value is not None},
        **(statistics.get("minValues") or {}),
    }
    return ListedFile(TableFile(unquote(add["path"]), add["size"], statistics.get("numRecords"), partition), least)


def _statistics(text: Any) -> _Statistics:
    """What the log says of a file's rows; nothing if it is damaged."""
    if not isinstance(text, str):
        return {}
    try:
        return json_of_text(text, _Statistics)
    except DamagedJson:
        return {}


def _time_of(info: Any) -> int | None:
    """When a commit was made, ms; None = it does not say it, or is damaged."""
    try:
        found = shaped(info, _CommitInfo)
    except DamagedJson:
        return None
    return found.get("inCommitTimestamp", found.get("timestamp"))


def _problem(actions: Sequence[Action], metadata: Metadata | None) -> str | None:
    for action in actions:
        protocol: Protocol = action.get("protocol") or {}
        unknown = sorted(set(protocol.get("readerFeatures") or ()) - READABLE)
        if unknown:
            return f"gives the table {', '.join(unknown)}, which a source cannot read"
        if protocol.get("minReaderVersion", 1) > _VERSION_3:
            return f"gives the table reader version {protocol['minReaderVersion']}, which a source cannot read"
    mode = (
        "none" if metadata is None else (metadata.get("configuration") or {}).get("delta.columnMapping.mode") or "none"
    )
    return None if mode == "none" else "gives the table column mapping (columnMapping), which a source cannot read"


# What a Delta source has listed and not read: what of it can come before what was read.
#
# Commits are read in their order, but their records may arrive in another one. So that a limit per
# micro-batch changes nothing, time waits for all that is listed.

Units = Sequence[Sequence[ListedFile]]

Following = Callable[[TablePosition], tuple[Sequence[ListedFile], TablePosition] | None]
"""Gives the files of the commit behind a position, the position behind it; None = not listed."""

_WHOLE = 1 << 62
"""Behind all units of a version."""


@dataclass(frozen=True, slots=True)
class _Left:
    """The file of a unit that arrives first; `first`: as in `Unread`."""

    first: int
    path: str


class UnreadCommits:
    """What one run knows of a source: each commit is looked at once."""

    def __init__(self, source: DeltaSource, firsts: TableFirsts, following: Following) -> None:
        self._source = source
        self._firsts = firsts
        self._following = following
        self._left: dict[tuple[int, int], _Left] = {}
        self._listed: TablePosition | None = None

    def behind(self, position: TablePosition, units: Units, number: int) -> Unread | None:
        """What is listed behind a position; None = nothing that has records.

        units: those of the table at its version, if some of them are left
        number: of the file that is read next
        """
        if self._listed is None or self._listed.version < position.version:
            self._listed = self._with_units(position, units)
        self._list_commits()
        done = (position.version, _WHOLE if position.units_read is None else position.units_read)
        self._left = {place: left for place, left in self._left.items() if place >= done}
        first = min(self._left.values(), key=lambda left: left.first, default=None)
        return None if first is None else Unread(first.first, number, first.path)

    def _with_units(self, position: TablePosition, units: Units) -> TablePosition:
        """The position behind the table at its version, whose units are looked at."""
        for number, files in enumerate(units):
            self._look_at((position.version, number), files, position.columns)
        return replace(position, units_read=None)

    def _list_commits(self) -> None:
        assert self._listed is not None
        while True:
            try:
                found = self._following(self._listed)
            except UnreadableTable:
                return  # it stops the job once it is the next one
            if found is None:
                return
            files, self._listed = found
            self._look_at((self._listed.version, 0), files, self._listed.columns)

    def _look_at(self, place: tuple[int, int], files: Sequence[ListedFile], columns: Mapping[str, str]) -> None:
        firsts = zip(self._firsts(self._source, files, columns), files, strict=True) if files else ()
        known = [_Left(first, item.file.path) for first, item in firsts if first is not None]
        if known:
            self._left[place] = min(known, key=lambda left: left.first)
