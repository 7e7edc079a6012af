"""Whether results fit into a Delta table that exists: its columns, types and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from job_engine.delta.features import fields_of, fields_of_text
from job_engine.places.place import Place
from querylang.errors import InputError, listed

if TYPE_CHECKING:
    from deltalake import DeltaTable


def new_columns(path: Place, table: DeltaTable, wanted: pa.Schema, partition_by: Sequence[str]) -> list[str]:
    """The columns that the table does not have yet; raises InputError if it does not fit.

    wanted: the columns of the results, those of partitions too
    """
    from deltalake import Schema

    before = list(table.metadata().partition_columns)
    if before != list(partition_by):
        raise InputError(f"{path}: the Delta table is partitioned {_by(before)}, and the sink {_by(partition_by)}")
    present = {field["name"]: field for field in fields_of(table)}
    ours = {field["name"]: field for field in fields_of_text(Schema.from_arrow(wanted).to_json())}
    mistakes = [
        f"column '{name}' is {_shown(present[name]['type'])}, and would be {_shown(field['type'])}"
        for name, field in ours.items()
        if name in present and not _fits(field["type"], present[name]["type"])
    ]
    mistakes += [
        f"column '{name}' must not be null" for name, field in present.items() if not field.get("nullable", True)
    ]
    folded = {name.casefold(): name for name in present}
    mistakes += [
        f"column '{name}' would be there beside '{folded[name.casefold()]}'"
        for name in ours
        if name not in present and name.casefold() in folded
    ]
    if mistakes:
        raise InputError(f"{path}: the Delta table has another schema: {'; '.join(mistakes)}. Choose another folder")
    return [name for name in ours if name not in present]


def _by(columns: Sequence[str]) -> str:
    return f"by {listed(list(columns))}" if columns else "by nothing"


def _fits(ours: Any, present: Any) -> bool:
    """Whether values of our type fit the column's; a struct there may have more fields."""
    if isinstance(ours, str) or isinstance(present, str):
        return bool(ours == present)
    if ours["type"] != present["type"]:
        return False
    match ours["type"]:
        case "struct":
            fields = {field["name"]: field["type"] for field in present["fields"]}
            return all(
                field["name"] in fields and _fits(field["type"], fields[field["name"]]) for field in ours["fields"]
            )
        case "array":
            return _fits(ours["elementType"], present["elementType"])
        case _:
            return _fits(ours["keyType"], present["keyType"]) and _fits(ours["valueType"], present["valueType"])


def _shown(type_: Any) -> str:
    """A type in few words: those of the fields of structs too."""
    if isinstance(type_, str):
        return type_
    match type_["type"]:
        case "struct":
            fields = [f"{field['name']}: {_shown(field['type'])}" for field in type_["fields"]]
            return f"struct<{', '.join(fields)}>"
        case "array":
            return f"array<{_shown(type_['elementType'])}>"
        case _:
            return f"map<{_shown(type_['keyType'])}, {_shown(type_['valueType'])}>"
