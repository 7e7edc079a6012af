"""What a Delta table asks of its readers and writers beyond the basics: refused by name.

Data files are written and read here, not by the package. So only what needs nothing of data files
is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from job_engine.delta.commit_log import READABLE
from job_engine.places.place import Place
from querylang.errors import InputError, listed
from runtime.json_reader import json_of_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
        raise InputError(f"{path}: the Delta table has {listed(found)}, which a source cannot read")


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
