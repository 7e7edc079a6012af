"""Infer the fields of event types without a definition, from the tables that have their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import InputError
from querylang.plan.library import DECIMAL_PLACES
from querylang.plan.value_types import Kind, Type
from runtime.arrow_types import arrow_type
from runtime.columns.timestamps import is_text
from runtime.reading.broken_text import without_broken_text
from runtime.reading.column_names import ARRIVAL, PLACES, SOURCE_TIME, STANDARD, TYPE, ColumnNames, with_names
from runtime.reading.conversion import NO_PLAN, convert, is_time
from runtime.reading.files import read_raw
from runtime.reading.formats.asked import Asked
from runtime.reading.formats.raw_table import RawTable, text_column

_WHOLE_DIGITS = 38 - DECIMAL_PLACES


def infer_schemas(*tables: Any, names: ColumnNames = STANDARD, event: str = "") -> Mapping[str, Mapping[str, Type]]:
    """By event type in the tables: its fields and their types.

    names: names of columns, instead of `at`, `event`, `ts`
    event: the event type of the rows of tables without a column of types; empty = these are skipped

    A column is a field of a type if some row of the type has a value in it. Timestamps are float
    seconds. Raises InputError if two tables disagree on the type of a field.
    """
    found: dict[str, dict[str, Type]] = {}
    declared = _declared({ARRIVAL: names.arrival, TYPE: names.type, SOURCE_TIME: names.source_time})
    for table in tables:
        raw = with_names(read_raw(table, None, Asked(max_record=names.max_record)), names.of_roles)
        raw, _ = without_broken_text(raw, raw.names, (names.type or TYPE,))
        for name, rows in _rows_by_type(raw, names.type or TYPE, event):
            fields = found.setdefault(name, {})
            for field, type_ in _inferred(raw, rows, declared):
                if fields.setdefault(field, type_) != type_:
                    raise InputError(
                        f"{raw.name}: field {field!r} of {name!r} is {type_} here and {fields[field]} before"
                    )
    return found


def _rows_by_type(raw: RawTable, column: str, event: str) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    if column not in raw.columns.column_names:
        if event:
            yield event, np.ones(len(raw.columns), np.bool_)
        return
    names = pc.utf8_trim_whitespace(text_column(raw.column(column)))
    for name in pc.unique(names).to_pylist():
        if name and "(" not in name:
            yield name, pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False)


def _declared(named: Mapping[str, str | None]) -> set[str]:
    """The columns that are not fields: the standard ones for which no other column is named."""
    return {standard for standard, other in named.items() if other is None} | set(PLACES)


def _inferred(raw: RawTable, rows: NDArray[np.bool_], declared: set[str]) -> Iterator[tuple[str, Type]]:
    is_all = bool(rows.all())
    for name in raw.columns.column_names:
        if name and name not in declared:
            column = raw.column(name)
            column = column if is_all else column.filter(pa.array(rows))
            type_ = _type_of(column, raw.has_types)
            if type_ is not None and (is_all or column.null_count < len(column)):
                yield name, type_


def _type_of(column: pa.Array, has_types: bool) -> Type | None:
    """The narrowest type that holds all cells; None = no type does."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _type_of(pc.cast(column, kind.value_type), has_types)
    if is_text(kind):
        narrow = () if has_types or column.null_count == len(column) else (Type.INTEGER, Type.FLOAT, Type.BOOLEAN)
        return next((type_ for type_ in narrow if convert(column, type_).bad is None), Type.STRING)
    return type_of_kind(kind)


def type_of_kind(kind: pa.DataType) -> Type | None:
    """The type whose values a column of this Arrow type holds; None = there is none.

    A struct is not an event, because it does not name a type. Decimals with more digits than ours
    are floats.
    """
    if pa.types.is_dictionary(kind):
        return type_of_kind(kind.value_type)
    if is_text(kind):
        return Type.STRING
    if pa.types.is_boolean(kind):
        return Type.BOOLEAN
    if pa.types.is_integer(kind):
        return Type.INTEGER
    if pa.types.is_decimal(kind) and kind.scale <= DECIMAL_PLACES and kind.precision - kind.scale <= _WHOLE_DIGITS:
        return Type.DECIMAL
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or is_time(kind):
        return Type.FLOAT
    if pa.types.is_map(kind):
        return _container(Kind.DICTIONARY, kind.key_type, kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _container(Kind.SEQUENCE, kind.value_type)
    is_location = kind == arrow_type(Type.LOCATION, NO_PLAN)
    return Type.LOCATION if is_location else None


def _container(kind: Kind, *inner: pa.DataType) -> Type | None:
    types = tuple(map(type_of_kind, inner))
    return None if None in types else Type(kind, tuple(type_ for type_ in types if type_ is not None))
