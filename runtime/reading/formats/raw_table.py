"""A table as its source has it: column names and cells, before a plan gives them a meaning."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is not a row.

    number: the record's number in the table, from 1
    place: where it is, for people: `line 7`
    reason: why it is not a row
    raw: the record as the file has it
    """

    number: int
    place: str
    reason: str
    raw: str


Describe = Callable[[int], tuple[str, str]]
"""Place and raw text of the row with this number. Called only for rows that cannot be read."""


@dataclass(frozen=True, slots=True)
class RawTable:
    """One table, or one part of it.

    name: the source's name, for messages and for rows that name no source
    columns: Arrow columns as the source has them
    numbers: by row: its number in the whole table, from 1
    describe: place and raw text of a row
    unreadable: records that are not rows
    has_types: False = all cells are text, whatever they mean
    declared: columns whose type comes from a schema, not from their values
    """

    name: str
    columns: pa.Table
    numbers: NDArray[np.int64]
    describe: Describe
    unreadable: Sequence[Unreadable] = field(default=())
    has_types: bool = True
    declared: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        names: list[str] = self.columns.column_names
        return names

    def column(self, name: str) -> pa.Array:
        """A column as one array, dictionaries decoded."""
        column = self.columns.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            return pc.cast(column, column.type.value_type)
        return column

    def cell(self, name: str, row: int) -> Any:
        """A cell as a Python value; `row` counts from 0."""
        return cell_of(self.columns, name, row)


def cell_of(columns: pa.Table, name: str, row: int) -> Any:
    """A cell as a Python value; a date that Python cannot represent as text."""
    cell = columns.column(name)[row]
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        return cell.cast(pa.string()).as_py()


def of_columns(name: str, columns: pa.Table, declared: frozenset[str] = frozenset(), first: int = 1) -> RawTable:
    """A table all of whose records are rows; `first`: the number of its first row."""
    numbers = np.arange(first, first + len(columns))
    return RawTable(name, columns, numbers, _describe_rows(columns, first), declared=declared)


def joined(parts: Sequence[RawTable]) -> RawTable:
    """All rows of all parts of a table."""
    if len(parts) == 1:
        return parts[0]
    columns = pa.concat_tables([part.columns for part in parts], promote_options="permissive")
    return of_columns(parts[0].name, columns, parts[0].declared)


def _describe_rows(columns: pa.Table, first: int) -> Describe:
    def describe(number: int) -> tuple[str, str]:
        row = {name: cell_of(columns, name, number - first) for name in columns.column_names}
        return f"row {number}", as_json(row)

    return describe


def as_json(value: Any) -> str:
    """A value as JSON, for people: what JSON does not have is shown as text."""
    return json.dumps(value, default=str, ensure_ascii=False)


def one_line(error: Exception) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())
