"""What one commit of a Delta table means to a reader of its rows. Pure, by the log's actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from spark_backend.delta.commit_log import READABLE, Action
from spark_backend.sources.delta.table_units import TableFile

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

    files: tuple[TableFile, ...]
    changes: bool
    identity: str | None
    columns: Mapping[str, str] | None
    problem: str | None
    time: int | None


def commit_reading(actions: Sequence[Action]) -> CommitReading:
    """What the actions of a commit mean."""
    adds = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    removes = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange")]
    metadata = next((action["metaData"] for action in actions if "metaData" in action), None)
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    times = [info.get("inCommitTimestamp", info.get("timestamp")) for info in infos]
    return CommitReading(
        files=tuple(map(file_of_add, adds)),
        changes=bool(removes) or any(add.get("deletionVector") for add in adds),
        identity=None if metadata is None else metadata["id"],
        columns=None if metadata is None else columns_of(json.loads(metadata["schemaString"])["fields"]),
        problem=_problem(actions, metadata),
        time=next((time for time in times if time is not None), None),
    )


def columns_of(fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Types by column, as JSON text."""
    return {field["name"]: json.dumps(field["type"]) for field in fields}


def file_of_add(add: Mapping[str, Any]) -> TableFile:
    """A data file of the log."""
    statistics = json.loads(add["stats"]) if add.get("stats") else {}
    return TableFile(unquote(add["path"]), add["size"], statistics.get("numRecords"), add.get("partitionValues") or {})


def _problem(actions: Sequence[Action], metadata: Mapping[str, Any] | None) -> str | None:
    for action in actions:
        protocol = action.get("protocol", {})
        unknown = sorted(set(protocol.get("readerFeatures") or ()) - READABLE)
        if unknown:
            return f"gives the table {', '.join(unknown)}, which a source cannot read"
        if protocol.get("minReaderVersion", 1) > _VERSION_3:
            return f"gives the table reader version {protocol['minReaderVersion']}, which a source cannot read"
    mode = "none" if metadata is None else (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    return None if mode == "none" else "gives the table column mapping (columnMapping), which a source cannot read"
