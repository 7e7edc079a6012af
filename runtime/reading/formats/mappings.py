"""Rows that are mappings of names to values: from JSON, YAML, or a list in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.errors import InputError
from runtime.interpreter.written_values import NOT_TEXT, is_unicode
from runtime.reading.formats.asked import EVERYTHING, MOST_NAMES, Asked, shortened
from runtime.reading.formats.raw_table import Describe, RawTable, Unreadable, as_json
from runtime.reading.python_values import Cells, cells_of

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
        cells = _cells(good, name, asked)
    except UnicodeEncodeError:
        checked = [NotARow(NOT_TEXT) if isinstance(row, Mapping) and not _is_text(row) else row for row in rows]
        return of_rows(checked, name, describe, asked, first)
    return of_cells(cells, name, np.array(numbers, np.int64), describe, unreadable)


def of_cells(
    cells: Mapping[str, Cells],
    name: str,
    numbers: NDArray[np.int64],
    describe: Describe,
    unreadable: Sequence[Unreadable] = (),
) -> RawTable:
    """A table of these columns, by name; `numbers`: of their rows."""
    columns = {column: own.column for column, own in cells.items()}
    return RawTable(
        name,
        pa.table(columns) if columns else pa.table({"": pa.nulls(len(numbers))}),
        numbers,
        describe,
        unreadable,
        nested={column: numbers[list(own.nested)].tolist() for column, own in cells.items() if own.nested},
        unknown={column: own.unknown for column, own in cells.items() if own.unknown is not None},
    )


def _is_text(row: Mapping[str, Any]) -> bool:
    """Whether all text of a row is Unicode, without halves of surrogate pairs."""
    return is_unicode(json.dumps(row, default=str, ensure_ascii=False))


def _cells(rows: Sequence[Mapping[str, Any]], name: str, asked: Asked) -> dict[str, Cells]:
    names = _names(rows, name, asked)
    return {str(key): cells_of([row.get(key) for row in rows], f"{name}: column {str(key)!r}") for key in names}


def _names(rows: Sequence[Mapping[str, Any]], name: str, asked: Asked) -> list[str]:
    """The names that become columns: all of them, or those that are needed, if they are too many.

    A table has a cell for every row and name. A hostile one may have new names in each row.
    """
    names = dict.fromkeys(key for row in rows for key in row)
    if asked.only is not None:
        return [key for key in names if str(key).casefold() in asked.only]
    cells, values = len(names) * len(rows), sum(map(len, rows))
    if len(names) <= MOST_NAMES and (cells <= _CELLS_PER_VALUE * values or cells <= 1_000_000):
        return list(names)
    if asked.wanted is None:
        raise InputError(
            f"{name}: its {len(rows):,} rows have {len(names):,} different names;"
            f" with more than {MOST_NAMES:,}, or with so few in common, define the event types"
        )
    return [key for key in names if str(key).casefold() in asked.wanted]
