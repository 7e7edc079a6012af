"""Rows that are mappings of names to values: from JSON, YAML, or a list in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.reading.formats.raw_table import Describe, RawTable, Unreadable, as_json


@dataclass(frozen=True, slots=True)
class NotARow:
    """A record that could not be parsed, in a list of rows."""

    reason: str


def of_mappings(rows: Sequence[Any], name: str) -> RawTable:
    """A table of rows without places of their own: `row 3`."""
    return of_rows(rows, name, lambda number: (f"row {number}", as_json(rows[number - 1])))


def of_rows(rows: Sequence[Any], name: str, describe: Describe) -> RawTable:
    """Columns of the rows that are mappings; all other rows are unreadable."""
    unreadable = []
    good: list[Mapping[str, Any]] = []
    numbers = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Mapping):
            good.append(row)
            numbers.append(number)
        else:
            reason = row.reason if isinstance(row, NotARow) else "not a mapping of names to values"
            unreadable.append(Unreadable(number, describe(number)[0], reason, describe(number)[1]))
    names = dict.fromkeys(str(key) for row in good for key in row)
    columns = {key: column_of([row.get(key) for row in good]) for key in names}
    table = pa.table(columns) if columns else pa.table({"": pa.nulls(len(good))})
    return RawTable(name, table, np.array(numbers, np.int64), describe, unreadable)


def column_of(values: Sequence[Any]) -> pa.Array:
    """One type if all values have it (integers among floats become floats), else text."""
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1 or types == {int, float}:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    return pa.array([_text_of(value) for value in values], pa.string())


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return as_json(value) if isinstance(value, bool | list | dict) else str(value)
