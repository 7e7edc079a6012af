"""Plans for event tables: queries compiled for the columns that the tables have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ensue.data_options import DataOptions, read_parameters
from ensue.event_tables import table_paths
from ensue.queries import Queries
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, QueryErrors
from querylang.formatter.formatting import definitions
from querylang.load import Schemas
from querylang.parameters import NOTHING, Given, with_instances
from querylang.plan.model import Plan
from querylang.printable import warn
from runtime import reading
from runtime.columns.arrivals import RecordKind
from runtime.replay import source_names

_UNTYPED = "; or define the event types: then each table has the only one whose fields it has"
"""The way out where tables of several event types have no column of types."""


def as_tables(events: Any) -> list[Any]:
    """One table or several: a list of mappings is one table, any other list holds tables.

    Paths of folders and patterns become the files that they mean. What can be read once is read.
    """
    events = reading.held(events)
    if not isinstance(events, list | tuple) or (events and isinstance(events[0], Mapping)):
        events = [events]
    return [table for item in events for table in _files_of(item)]


def _files_of(table: Any) -> list[Any]:
    return table_paths(table) if isinstance(table, str | Path) else [reading.held(table)]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Queries that are compiled for tables.

    template: the plan, whose parameters have no values yet
    columns: by table: how it is read
    schemas: the fields of event types that nothing defines
    """

    template: Plan
    columns: tuple[reading.ColumnNames, ...]
    schemas: Schemas

    def plan(self, parameters: Given = NOTHING) -> Plan:
        """Every query an instance. Raises QueryErrors."""
        return with_instances(self.template, parameters)


def fitted(queries: Queries, tables: Sequence[Any], columns: reading.ColumnNames) -> Fitted:
    """Compile for these tables, which say the fields of types that nothing defines.

    What may surprise is logged. Raises QueryErrors, InputError.
    """
    columns = queries.columns(columns)
    decided = decide(queries, tables, columns)
    if len(tables) > 1:
        elsewhere = reading.TablesElsewhere(tables, columns)
        decided = replace(decided, columns=tuple(replace(own, elsewhere=elsewhere) for own in decided.columns))
    if not queries.open_types:
        return Fitted(queries.template(), decided.columns, {})
    template, schemas, read = _of_data(queries, tables, columns, decided.columns)
    whole = decided.with_read(read)
    for remark in whole.remarks[len(decided.remarks) :]:
        warn(remark)
    return Fitted(template, whole.columns, schemas)


def decide(
    queries: Queries, tables: Sequence[Any], columns: reading.ColumnNames, *, is_whole: bool = True
) -> reading.Decided:
    """Which columns of tables are ours, by what they hold and by definitions; logs remarks.

    is_whole: as in `decide_meanings`

    Raises InputError.
    """
    known, sources = queries.checked, source_names(tables)
    plan = Plan(known.events, known.queries)
    have_own_times = bool(list(plan.time_sources()))
    types = queries.known_types
    meanings = reading.decide_meanings(
        tables, sources, columns, types, have_own_times=have_own_times, is_whole=is_whole
    )
    _refuse_open_types(queries, tables, meanings, columns)
    reading.refuse_untyped(tables, meanings, plan, columns)
    decided = reading.decide_places(tables, sources, meanings.columns, plan)
    for remark in (*meanings.remarks, *decided.remarks):
        warn(remark)
    return decided


def _refuse_open_types(
    queries: Queries, tables: Sequence[Any], decided: reading.Decided, columns: reading.ColumnNames
) -> None:
    """Raise InputError if neither a column of types nor a definition says what the rows are."""
    inputs = queries.input_types
    if len(inputs) < 2 or len(decided.untyped) < len(tables) or not set(inputs) <= set(queries.open_types):
        return
    name, source, shown = columns.of(reading.TYPE) or reading.TYPE, decided.sources[0], decided.untyped[0]
    told = reading.no_types(source, name, shown, inputs, "and nothing defines these types")
    raise InputError(f"{told}{_UNTYPED}{_shown(tables, decided.columns, inputs)}")


def _of_data(
    queries: Queries, tables: Sequence[Any], given: reading.ColumnNames, columns: Sequence[reading.ColumnNames]
) -> tuple[Plan, Schemas, set[str]]:
    """The plan whose open event types have the tables' fields, these, and what it reads of them.

    A column of a role is a field of them, too, if a query reads it.
    """
    inputs = queries.input_types
    event = inputs[0] if len(inputs) == 1 else ""
    named = queries.words(reading.STANDARD_NAMES)
    inferred = reading.infer(*tables, names=columns, event=event, fields=named)
    if not inferred.schemas and not event:
        raise InputError(_without_types(tables, given, columns, inputs))
    for remark in inferred.remarks:
        warn(remark)
    schemas: Schemas = reading.with_nested(inferred.schemas, queries.open_types)
    plan, schemas = _compiled(queries, schemas, inferred)
    if not named:
        return _told(plan, schemas), schemas, set()
    read = {name.casefold() for name in reading.fields_read(plan, queries.open_types)}
    whole, schemas = schemas, reading.without_unread(schemas, queries.open_types, read, named, columns)
    if schemas != whole:
        plan, schemas = _compiled(queries, schemas, inferred)
    return _told(plan, schemas), schemas, read


def _told(plan: Plan, schemas: Schemas) -> Plan:
    """The plan; what is not plain about inferred types is logged."""
    for remark in reading.truncating_divisions(plan, schemas):
        warn(remark)
    return plan


def _compiled(queries: Queries, schemas: Schemas, inferred: reading.Inferred) -> tuple[Plan, Schemas]:
    """The plan, and the schemas that it is for: numbers where a query needs them and most are."""
    try:
        return queries.template(schemas), schemas
    except QueryErrors:
        most = inferred.with_most(schemas)
        if most != schemas:
            with suppress(QueryErrors):
                plan = queries.template(most)
                for remark in _read_as_numbers(schemas, most):
                    warn(remark)
                return plan, most
        for remark in inferred.without_values:
            warn(remark)
        if schemas:
            warn(f"by what the data shows: {definitions(inferred.schemas)}")
        raise


def _read_as_numbers(schemas: Schemas, most: Schemas) -> Iterator[str]:
    for event, fields in most.items():
        for name, type_ in fields.items():
            if type_ != schemas[event][name]:
                yield f"{name} of {event} is read as {type_}, as most rows have it; rows with other text are malformed"


def _without_types(
    tables: Sequence[Any], given: reading.ColumnNames, columns: Sequence[reading.ColumnNames], inputs: Sequence[str]
) -> str:
    """Why nothing says which of these event types a row has, and the ways out."""
    name = given.of(reading.TYPE) or reading.TYPE
    column = f"add one, or name it, `--type NAME`{_UNTYPED}"
    shown = _shown(tables, columns, inputs)
    return f"no table has rows with {name!r}, and the queries need {', '.join(inputs)}; {column}{shown}"


def _shown(tables: Sequence[Any], columns: Sequence[reading.ColumnNames], inputs: Sequence[str]) -> str:
    """The end of a message: the definitions that fit the tables, if they have any."""
    pairs = zip(tables, columns, strict=True)
    shown = " ".join(text for table, own in pairs for text in _shown_by(table, own, inputs))
    return f". By what the data shows: {shown}" if shown else ""


def _shown_by(table: Any, columns: reading.ColumnNames, inputs: Sequence[str]) -> Iterator[str]:
    """The definition that fits a table; a file has the event type of its name, if there is one."""
    stem = Path(table).name.split(".")[0] if isinstance(table, str | Path) else ""
    event = next((name for name in inputs if name.casefold() == stem.casefold()), "NAME")
    with suppress(InputError):
        yield definitions(reading.infer(table, names=columns, event=event).schemas)


def any_row_is_read(queries: Queries, paths: Sequence[Path], options: DataOptions) -> bool:
    """Whether some row of these files can be read, or they have none."""
    ready = fitted(queries, paths, options.columns)
    plan = ready.plan(read_parameters(options.parameters))
    has_rows = False
    for path, columns in zip(paths, ready.columns, strict=True):
        for part in reading.iter_arrivals(path, plan, columns):
            kinds = part.system("kind")
            if ((kinds != RecordKind.MALFORMED) & (kinds != RecordKind.UNKNOWN_TYPE)).any():
                return True
            has_rows = has_rows or bool(len(part))
    return not has_rows
