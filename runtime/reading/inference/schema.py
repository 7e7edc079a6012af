"""Infer the fields of event types without a definition, from the tables that have their events."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.errors import InputError, listed
from querylang.plan.expression import NUMBERS, Type
from querylang.plan.library import LARGEST_INTEGER
from querylang.plan.model import Plan
from runtime.file_forms import COMMA, POINT
from runtime.instants import NO_TIME
from runtime.reading.column_names import ARRIVAL, STANDARD, STANDARD_NAMES, TYPE, ColumnNames, with_names
from runtime.reading.formats.encodings import without_broken_text
from runtime.reading.formats.raw_table import RawTable, text_column
from runtime.reading.inference.types import (
    TOO_LARGE,
    EventsOfStructs,
    Fields,
    TextType,
    has_padded,
    nested_name,
    parts_without_type,
    type_of_mixed,
    type_of_text,
)
from runtime.reading.plan_needs import fields_divided
from runtime.reading.tables import read_raw
from runtime.timestamps import given_times, is_text

# The type of a field that several tables show.


class Shown(NamedTuple):
    """What one table shows of a field.

    table: its name
    is_by_value: the type comes from the values, not from a schema: text can be read in its place
    has_values: some cell has a value; otherwise the type says nothing
    mostly: as of `TextType`
    """

    type: Type
    table: str
    is_by_value: bool
    has_values: bool
    mostly: Type | None = None


def joined_type(event: str, field: str, shown: Sequence[Shown]) -> tuple[Type, str | None]:
    """The type that holds what all tables show, and the remark about it, if any.

    An integer here and a float there is a float. Text in one file is text in all of them, as it
    would be in one file. Raises InputError for any other difference.
    """
    first, *others = [item for item in shown if item.has_values] or shown[:1]
    type_, told = first.type, None
    can_be_text = first.is_by_value and first.type.is_scalar
    for item in others:
        if item.type == type_:
            pass
        elif {item.type, type_} == {Type.INTEGER, Type.FLOAT}:
            type_ = Type.FLOAT
        elif item.type == Type.STRING and can_be_text:
            told = f"{item.table}: {field} is text here and {type_} before; it is read as text everywhere"
            type_ = Type.STRING
        elif not (type_ == Type.STRING and item.is_by_value and item.type.is_scalar):
            raise InputError(f"{item.table}: field {field!r} of {event!r} is {item.type} here and {type_} before")
        elif told is None:
            told = f"{item.table}: {field} is {item.type} here and text before; it is read as text everywhere"
        can_be_text = can_be_text and item.is_by_value
    return type_, told


def mostly_number(shown: Sequence[Shown]) -> Type | None:
    """The type of numbers that most cells are in all tables; None = they are not, or all are."""
    types = {item.mostly or item.type for item in shown if item.has_values}
    if not any(item.mostly for item in shown) or not types <= {Type.INTEGER, Type.FLOAT}:
        return None
    return Type.INTEGER if types == {Type.INTEGER} else Type.FLOAT


@dataclass(slots=True)
class Inferred:
    """What tables say of event types.

    schemas: by event type: its fields; those of structs follow
    remarks: what is not plain, a line each: why a column is text, and which columns are not read
    without_values: columns that say nothing of their type, a line each
    mostly: by event type: the fields that are text, though most of their cells are numbers
    """

    schemas: Mapping[str, Fields]
    remarks: tuple[str, ...] = ()
    without_values: tuple[str, ...] = ()
    mostly: Mapping[str, Fields] = field(default_factory=dict)

    def with_most(self, schemas: Mapping[str, Fields]) -> Mapping[str, Fields]:
        """These of the schemas, with the numbers that most cells are."""
        return {event: {**fields, **self.mostly.get(event, {})} for event, fields in schemas.items()}


def infer_schemas(
    *tables: Any, names: ColumnNames = STANDARD, event: str = "", fields: Collection[str] = ()
) -> Mapping[str, Fields]:
    """As `infer`, without remarks."""
    return infer(*tables, names=names, event=event, fields=fields).schemas


def infer(
    *tables: Any, names: ColumnNames | Sequence[ColumnNames] = STANDARD, event: str = "", fields: Collection[str] = ()
) -> Inferred:
    """The event types in the tables.

    names: how the tables are read, of all or by table
    event: the event type of the rows of tables without a column of types; empty = these are skipped
    fields: columns that are fields whatever else they are, in lower case

    A column is a field of a type if some row of the type has a value in it. Timestamps are float
    seconds. Raises InputError if two tables disagree on the type of a field.
    """
    found = _Found(set())
    by_table = [names] * len(tables) if isinstance(names, ColumnNames) else names
    for table, own in zip(tables, by_table, strict=True):
        types = own.of(TYPE)
        found.reserved = not_fields(own) - set(fields)
        renamed = [name for name in own.of_roles if name == types or name not in fields]
        raw = own.as_written(with_names(read_raw(table, None, own.asked()), renamed))
        raw, _ = without_broken_text(raw, raw.names, () if types is None else (types,))
        if raw.unreadable and not len(raw):
            first = raw.unreadable[0]
            found.remarks[f"{raw.name}: no row can be read; {first.place}: {first.reason}"] = None
        if not raw.names:  # it says nothing of the events
            continue
        if not raw.has_types and types in raw.names:
            found.padded = {name for name in raw.names if has_padded(raw.column(name))}
        timed = _have_times(raw, own)
        for name, rows in _rows_by_type(raw, types, event):
            found.add(raw, name, rows if timed is None else rows & timed)
        found.padded = set()
    shown = found.fields()
    schemas = {**found.structs.found, **shown}
    ordered = {name: schemas[name] for name in [*shown, *found.structs.found]}
    return Inferred(ordered, tuple(found.remarks), (*found.without_values, *found.empty_texts()), found.mostly())


def without_unread(
    schemas: Mapping[str, Fields],
    events: Collection[str],
    read: Collection[str],
    fields: Collection[str],
    columns: Iterable[ColumnNames],
) -> Mapping[str, Fields]:
    """The schemas without columns that are ours, and that no query reads as fields.

    events: the event types that nothing defines
    read: names that queries read of them, in lower case
    fields: as of `infer`
    columns: how the tables are read
    """
    others = {name for own in columns for name in STANDARD_NAMES if name not in own.of_roles}
    unread = set(fields) - set(read) - others
    return {
        event: {name: type_ for name, type_ in own.items() if event not in events or name.casefold() not in unread}
        for event, own in schemas.items()
    }


def _rows_by_type(raw: RawTable, column: str | None, event: str) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    if column is None or column not in raw.names:
        if event:
            yield event, np.ones(len(raw.columns), np.bool_)
        return
    names = pc.utf8_trim_whitespace(text_column(raw.column(column)))
    for name in pc.unique(names).to_pylist():
        if name and "(" not in name:
            yield name, pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False)


def _have_times(raw: RawTable, names: ColumnNames) -> NDArray[np.bool_] | None:
    """By row: whether it has an arrival, where there are arrivals; other rows decide no type.

    None = all have, or types do not depend on values.
    """
    arrival = names.of(ARRIVAL)
    if arrival not in raw.names or (raw.has_types and not any(_is_by_value(raw, name) for name in raw.names)):
        return None
    timed = given_times(raw.values(arrival), names.times).micros != NO_TIME
    return None if timed.all() or not timed.any() else timed


def _is_by_value(raw: RawTable, name: str) -> bool:
    return name not in raw.declared and (is_text(raw.columns.schema.field(name).type) or name in raw.nested)


def not_fields(names: ColumnNames) -> set[str]:
    """The columns that are not fields unless a definition says so.

    A column that users name for arrival times is not a field; those that they name for what else it
    says may be.
    """
    standard = {role for role in STANDARD_NAMES if names.given(role) is None}
    arrival = names.of(ARRIVAL)
    return standard if arrival is None else standard | {arrival}


_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas names an index in a Parquet file: a table that was sorted or filtered has one."""


def is_field(name: str, reserved: Collection[str]) -> bool:
    """Whether a column is a field unless a definition says so; `reserved`: as of `not_fields`."""
    return bool(name) and name not in reserved and _INDEX.fullmatch(name) is None


@dataclass(slots=True)
class _Found:
    """What was found so far.

    reserved: columns that are not fields
    padded: columns of the table in which some event type has numbers with zeros in front
    shown: by event type and field: what each table shows of it
    remarks: in order, each once
    without_values: as of `Inferred`, each once
    """

    reserved: set[str]
    padded: set[str] = field(default_factory=set)
    shown: dict[str, dict[str, list[Shown]]] = field(default_factory=dict)
    structs: EventsOfStructs = field(default_factory=EventsOfStructs)
    remarks: dict[str, None] = field(default_factory=dict)
    without_values: dict[str, None] = field(default_factory=dict)

    def add(self, raw: RawTable, event: str, rows: NDArray[np.bool_]) -> None:
        """Add the columns of a table that rows of this event type have values in."""
        is_all = bool(rows.all())
        shown = self.shown.setdefault(event, {})
        for name in raw.columns.column_names:
            if not is_field(name, self.reserved):
                continue
            column = raw.column(name)
            column = column if is_all else column.filter(pa.array(rows))
            if not is_all and column.null_count == len(column):
                continue
            if name in raw.unknown:
                self.remarks[unread_column(raw.name, name, raw.unknown[name])] = None
                continue
            if _is_too_large(column):
                self._tell_too_large(raw, name, column, raw.numbers[rows])
                continue
            type_, mostly = self._type_of(raw, name, column, nested_name(event, name), rows)
            if type_ is None and pa.types.is_null(column.type) and not len(column):
                type_ = Type.STRING  # as in a CSV file without rows
            self._tell_parts(raw, name, column)
            if type_ is None:
                continue
            is_typed = raw.has_types and name not in raw.keys
            has_values = is_typed or column.null_count < len(column)
            found = Shown(type_, raw.name, name not in raw.declared, has_values, mostly)
            shown.setdefault(name, []).append(found)

    def fields(self) -> dict[str, Fields]:
        """By event type: the fields that all tables together show. Raises InputError."""
        return {event: self._fields_of(event) for event in self.shown}

    def empty_texts(self) -> Iterator[str]:
        """Columns of text, as of CSV, that are empty in all tables, a line each."""
        for fields in self.shown.values():
            for name, shown in fields.items():
                if not any(item.has_values for item in shown):
                    told = "has no value, so it is read as text; define the event"
                    yield f"{shown[0].table}: column {name!r} {told}"

    def mostly(self) -> dict[str, Fields]:
        """As of `Inferred`."""
        found = {
            event: {name: type_ for name, shown in fields.items() if (type_ := mostly_number(shown)) is not None}
            for event, fields in self.shown.items()
        }
        return {event: fields for event, fields in found.items() if fields}

    def _fields_of(self, event: str) -> Fields:
        fields = {}
        for name, shown in self.shown[event].items():
            fields[name], told = joined_type(event, name, shown)
            if told is not None:
                self.remarks[told] = None
        return fields

    def _type_of(
        self, raw: RawTable, name: str, column: pa.Array, nested: str, rows: NDArray[np.bool_]
    ) -> tuple[Type | None, Type | None]:
        """The narrowest type that holds all cells; None = no type does. And `mostly` of `Shown`.

        Where objects or lists are mixed with others, it is the type of most.

        nested: the name of the event type that a struct becomes
        rows: of the column
        """
        if is_text(column.type) and name not in raw.declared:
            if raw.nested.get(name):
                objects = column.filter(pa.array(raw.are_nested(name)[rows]))
                if 2 * len(objects) > len(column) - column.null_count:
                    return type_of_mixed(objects, nested, self.structs), None
            is_typed = raw.has_types and name not in raw.keys
            found = type_of_text(
                raw.with_points(column), is_csv=not raw.has_types, decimal=COMMA if raw.has_comma else POINT
            )
            if not is_typed or found.is_doubtful:
                self._tell_reason(raw, name, column, found, raw.numbers[rows])
            if not is_typed:
                is_padded = name in self.padded and found.type in NUMBERS
                return Type.STRING if is_padded else found.type, None if name in self.padded else found.mostly
            if found.type in NUMBERS and not rows.all():  # rows that are discarded made it text
                found = type_of_text(raw.column(name))
            return Type.STRING, found.mostly
        type_ = self.structs.type_of(column.type, nested)
        if type_ == Type.FLOAT and pa.types.is_decimal(column.type):
            self.remarks[rounded_column(raw.name, name, str(column.type))] = None
        return type_, None

    def _tell_reason(
        self, raw: RawTable, name: str, column: pa.Array, found: TextType, numbers: NDArray[np.int64]
    ) -> None:
        """Say why a column of text has its type, if that is not plain."""
        if found.row is not None:
            place, _ = raw.describe(int(numbers[found.row]))
            type_ = "text" if found.type == Type.STRING else found.type
            self.remarks[f'{raw.name}: {name} is {type_}: {place} has "{column[found.row].as_py()}"{found.reason}'] = (
                None
            )

    def _tell_too_large(self, raw: RawTable, name: str, column: pa.Array, numbers: NDArray[np.int64]) -> None:
        row = pc.index(pc.greater(column, pa.scalar(LARGEST_INTEGER, pa.uint64())), True).as_py()
        place, _ = raw.describe(int(numbers[row]))
        told = f"{place} has {column[row].as_py()}{TOO_LARGE}; make it text"
        self.remarks[f"{raw.name}: column {name!r} is not read: {told}"] = None

    def _tell_parts(self, raw: RawTable, name: str, column: pa.Array) -> None:
        """Say which parts of a column have no type."""
        for part, kind in parts_without_type(column.type, name):
            if not pa.types.is_null(kind):
                self.remarks[unread_column(raw.name, part, str(kind))] = None
            elif len(column):
                told = f"{raw.name}: column {part!r} has no value, so its type is not known; define the event"
                self.without_values[told] = None


def _is_too_large(column: pa.Array) -> bool:
    """Whether it has unsigned integers that no integer of the language holds."""
    return bool(pa.types.is_uint64(column.type) and (pc.max(column).as_py() or 0) > LARGEST_INTEGER)


def rounded_column(table: str, name: str, kind: str) -> str:
    """That decimals are read as floats, because they have too many digits."""
    return f"{table}: {name} is float: {kind} has more digits than a decimal holds; make it text if all digits count"


def unread_column(table: str, name: str, kind: str) -> str:
    """That a column has no counterpart in the language, and the way out."""
    way_out = "a number of seconds" if "duration" in kind or "interval" in kind else "text or a number"
    return f"{table}: column {name!r} is not read: no type of the language holds {kind}; make it {way_out}"


Schemas = Mapping[str, Mapping[str, Type]]
"""By event type: its fields and their types."""


def truncating_divisions(plan: Plan, schemas: Schemas) -> Iterator[str]:
    """The queries that divide integers whose types are inferred: a line each."""
    inferred = {(event, name) for event, own in schemas.items() for name, type_ in own.items() if type_ == Type.INTEGER}
    for query in plan.queries if inferred else ():
        names = dict.fromkeys(name for event, name in fields_divided(plan, query) if (event, name) in inferred)
        if names:
            are = "is an integer" if len(names) == 1 else "are integers"
            yield (
                f"query {query.title}: `/` truncates, because {listed(names)} {are} by what the data shows;"
                f" for fractions write `.toFloat()`, or define the event type"
            )
