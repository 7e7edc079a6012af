"""Plans for event tables: queries compiled for the columns that the tables have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.queries import Queries
from ensue.table_paths import table_paths
from querylang.errors import InputError
from querylang.parameters.given_values import NOTHING, Given
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan
from runtime.reading.column_names import ColumnNames
from runtime.reading.schema_inference import infer_schemas


def as_tables(events: Any) -> list[Any]:
    """One table or several: a list of mappings is one table, any other list holds tables.

    Paths of folders and patterns become the files that they mean.
    """
    if not isinstance(events, list | tuple) or (events and isinstance(events[0], Mapping)):
        events = [events]
    return [table for item in events for table in _files_of(item)]


def _files_of(table: Any) -> list[Any]:
    return table_paths(Path(table)) if isinstance(table, str | Path) else [table]


def plan_for(queries: Queries, tables: Sequence[Any], columns: ColumnNames, parameters: Given = NOTHING) -> Plan:
    """The plan for these tables, every query an instance; raises QueryErrors, InputError."""
    return with_instances(template_for(queries, tables, columns), parameters)


def template_for(queries: Queries, tables: Sequence[Any], columns: ColumnNames) -> Plan:
    """The plan for these tables, which say the fields of types that nothing defines."""
    if not queries.open_types:
        return queries.template()
    inputs = queries.input_types
    event = inputs[0] if len(inputs) == 1 else ""
    schemas = infer_schemas(*tables, names=columns, event=event)
    if not schemas and not event:
        raise InputError(
            f"no table has rows with {columns.type or 'event'!r}, and the queries need {', '.join(inputs)}"
        )
    return queries.template({name: fields for name, fields in schemas.items() if name in queries.open_types})
