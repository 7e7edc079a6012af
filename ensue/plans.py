"""Plans for event tables: queries compiled for the columns that the tables have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ensue.data_options import DataOptions
from ensue.event_tables.table_paths import table_paths
from ensue.parameters import read_parameters
from ensue.queries import Queries
from querylang.errors import InputError, QueryErrors
from querylang.formatter.definition_text import definitions
from querylang.logger import warn
from querylang.parameters.given_values import NOTHING, Given
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan
from runtime.columns.arrivals import RecordKind
from runtime.reading.column_names import TYPE, ColumnNames
from runtime.reading.formats.frames import held
from runtime.reading.inference.remarks import truncating_divisions
from runtime.reading.inference.schema import infer
from runtime.reading.inference.types import with_nested
from runtime.reading.tables import iter_arrivals

_UNTYPED = "; or define the event types: then each table has the only one whose fields it has"
"""The way out where tables of several event types have no column of types."""


def as_tables(events: Any) -> list[Any]:
    """One table or several: a list of mappings is one table, any other list holds tables.

    Paths of folders and patterns become the files that they mean. What can be read once is read.
    """
    events = held(events)
    if not isinstance(events, list | tuple) or (events and isinstance(events[0], Mapping)):
        events = [events]
    return [table for item in events for table in _files_of(item)]


def _files_of(table: Any) -> list[Any]:
    return table_paths(table) if isinstance(table, str | Path) else [held(table)]


def plan_for(queries: Queries, tables: Sequence[Any], columns: ColumnNames, parameters: Given = NOTHING) -> Plan:
    """The plan for these tables, every query an instance; raises QueryErrors, InputError."""
    return with_instances(template_for(queries, tables, columns), parameters)


def template_for(queries: Queries, tables: Sequence[Any], columns: ColumnNames) -> Plan:
    """The plan for these tables, which say the fields of types that nothing defines."""
    if not queries.open_types:
        return queries.template()
    inputs = queries.input_types
    event = inputs[0] if len(inputs) == 1 else ""
    inferred = infer(*tables, names=columns, event=event)
    schemas = inferred.schemas
    if not schemas and not event:
        raise InputError(_without_types(tables, columns, inputs))
    for remark in inferred.remarks:
        warn(remark)
    try:
        plan = queries.template(with_nested(schemas, queries.open_types))
    except QueryErrors:
        for remark in inferred.without_values:
            warn(remark)
        if schemas:
            warn(f"by what the data shows: {definitions(schemas)}")
        raise
    for remark in truncating_divisions(plan, schemas):
        warn(remark)
    return plan


def _without_types(tables: Sequence[Any], columns: ColumnNames, inputs: Sequence[str]) -> str:
    """Why nothing says which of these event types a row has, and the ways out."""
    name = columns.type or TYPE
    column = f"add one, or name it, `--type NAME`{_UNTYPED}"
    shown = " ".join(text for table in tables for text in _shown_by(table, columns, inputs))
    return (
        f"no table has rows with {name!r}, and the queries need {', '.join(inputs)}; {column}"
        f"{f'. By what the data shows: {shown}' if shown else ''}"
    )


def _shown_by(table: Any, columns: ColumnNames, inputs: Sequence[str]) -> Iterator[str]:
    """The definition that fits a table; a file has the event type of its name, if there is one."""
    stem = Path(table).name.split(".")[0] if isinstance(table, str | Path) else ""
    event = next((name for name in inputs if name.casefold() == stem.casefold()), "NAME")
    with suppress(InputError):
        yield definitions(infer(table, names=columns, event=event).schemas)


def any_row_is_read(queries: Queries, paths: Sequence[Path], options: DataOptions) -> bool:
    """Whether some row of these files can be read, or they have none."""
    plan = plan_for(queries, paths, options.columns, read_parameters(options.parameters))
    has_rows = False
    for path in paths:
        for part in iter_arrivals(path, plan, options.columns):
            if (part.system("kind") != RecordKind.MALFORMED).any():
                return True
            has_rows = has_rows or bool(len(part))
    return not has_rows
