"""What one commit of a Delta table means to a reader of its rows. Pure, by the log's actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict
from urllib.parse import unquote

from job_engine.delta.log import READABLE, Action, Add, Metadata, Protocol
from job_engine.sources.table.table_units import ListedFile, TableFile
from runtime.instants import EARLIEST, LATEST
from runtime.json_reader import DamagedJson, json_of_text, shaped
from runtime.json_shapes import Count

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
        files=tuple(map(_listed, adds)),
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


def _listed(add: Add) -> ListedFile:
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
