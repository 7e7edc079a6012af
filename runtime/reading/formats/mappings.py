"""Rows that are mappings of names to values: from JSON, YAML, or a list in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.errors import InputError
from runtime.interpreter.json_text import DEEPEST, NOT_TEXT, is_unicode
from runtime.reading.formats.asked import EVERYTHING, MOST_NAMES, Asked, shortened
from runtime.reading.formats.raw_table import Describe, RawTable, Unreadable, as_json, as_text

_CELLS_PER_VALUE = 50
"""Most cells of a table for each cell that has a value."""


@dataclass(frozen=True, slots=True)
class NotARow:
    """A record that could not be parsed, in a list of rows; `raw`: as it is written."""

    reason: str
    raw: str = ""


def of_mappings(rows: Sequence[Any], name: str, asked: Asked = EVERYTHING) -> RawTable:
    """A table of rows without places of their own: `row 3`. Raises InputError if none is a row."""
    if rows and not any(isinstance(row, Mapping | NotARow) for row in rows):
        raise InputError(f"{name}: row 1 is {type(rows[0]).__name__}; a row is a mapping of names to values")

    def describe(number: int) -> tuple[str, str]:
        row = rows[number - 1]
        return f"row {number}", shortened(row.raw if isinstance(row, NotARow) else as_json(row))

    return of_rows(rows, name, describe, asked)


def of_rows(rows: Sequence[Any], name: str, describe: Describe, asked: Asked = EVERYTHING, first: int = 1) -> RawTable:
    """Columns of the rows that are mappings; all other rows are unreadable.

    first: the number of the first row
    """
    unreadable = []
    good: list[Mapping[str, Any]] = []
    numbers = []
    for number, row in enumerate(rows, first):
        if isinstance(row, Mapping):
            good.append(row)
            numbers.append(number)
        else:
            reason = row.reason if isinstance(row, NotARow) else "not a mapping of names to values"
            unreadable.append(Unreadable(number, describe(number)[0], reason, describe(number)[1]))
    try:
        table = _table(good, name, asked)
    except UnicodeEncodeError:
        checked = [NotARow(NOT_TEXT) if isinstance(row, Mapping) and not _is_text(row) else row for row in rows]
        return of_rows(checked, name, describe, asked, first)
    cells = {column: [row.get(column) for row in good] for column in texts_of(table)}
    nested = {column: nested_rows(values, numbers) for column, values in cells.items()}
    return RawTable(name, table, np.array(numbers, np.int64), describe, unreadable, nested=nested)


def texts_of(table: pa.Table) -> list[str]:
    """The names of the columns of text."""
    return [field.name for field in table.schema if pa.types.is_string(field.type)]


def nested_rows(values: Sequence[Any], numbers: Sequence[int]) -> list[int]:
    """The numbers of the rows whose cell is a list or an object."""
    return [number for number, value in zip(numbers, values, strict=True) if isinstance(value, list | tuple | dict)]


def _is_text(row: Mapping[str, Any]) -> bool:
    """Whether all text of a row is Unicode, without halves of surrogate pairs."""
    return is_unicode(json.dumps(row, default=str, ensure_ascii=False))


def _table(rows: Sequence[Mapping[str, Any]], name: str, asked: Asked) -> pa.Table:
    names = _names(rows, name, asked)
    columns = {str(key): column_of([row.get(key) for row in rows], f"{name}: column {str(key)!r}") for key in names}
    return pa.table(columns) if columns else pa.table({"": pa.nulls(len(rows))})


def _names(rows: Sequence[Mapping[str, Any]], name: str, asked: Asked) -> list[str]:
    """The names that become columns: all of them, or those that are needed, if they are too many.

    A table has a cell for every row and name. A hostile one may have new names in each row.
    """
    names = dict.fromkeys(key for row in rows for key in row)
    cells, values = len(names) * len(rows), sum(map(len, rows))
    if len(names) <= MOST_NAMES and (cells <= _CELLS_PER_VALUE * values or cells <= 1_000_000):
        return list(names)
    if asked.wanted is None:
        raise InputError(
            f"{name}: its {len(rows):,} rows have {len(names):,} different names;"
            f" with more than {MOST_NAMES:,}, or with so few in common, define the event types"
        )
    return [key for key in names if str(key).casefold() in asked.wanted]


def column_of(values: Sequence[Any], place: str) -> pa.Array:
    """One type if all values have it (integers among floats become floats), else text.

    Raises InputError for a value that is nested too deeply; `place` says where.
    """
    types = {type(value) for value in values if value is not None}
    if types & {list, tuple, dict}:
        names: set[str] = set()
        if not all(_is_shallow(value, names, DEEPEST) for value in values):
            raise InputError(f"{place} has a value nested more than {DEEPEST} deep")
        if len(names) > MOST_NAMES:  # a struct would have a cell for every row and name
            return as_text(values)
    if len(types) <= 1 or types == {int, float}:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass  # no Arrow type holds them; an infinite Decimal is a TypeError
    return as_text(values)


def _is_shallow(value: Any, names: set[str], deepest: int) -> bool:
    """Whether a value is not nested too deeply; adds the names of its parts."""
    if isinstance(value, list | tuple):
        return deepest > 0 and all(_is_shallow(item, names, deepest - 1) for item in value)
    if isinstance(value, dict):
        names.update(map(str, value))
        return deepest > 0 and all(_is_shallow(item, names, deepest - 1) for item in value.values())
    return True
