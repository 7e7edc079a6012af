"""Refuse saved state whose content cannot be, before kernels read it without looking at bounds.

A checksum finds damage. These checks find what was written wrongly, or on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.arrow_types import has_column


def fitted(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """A saved table with the columns that it has to have; ValueError for others."""
    if sorted(table.column_names) != sorted(schema.names):
        raise ValueError(f"'{name}' has the columns {table.column_names}, not {schema.names}")
    return table.select(schema.names).cast(schema)


def integer(value: object) -> int:
    """A saved time; TypeError or ValueError for anything that is not one of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a time")
    return int(np.int64(value))


def refuse_nulls(table: pa.Table, columns: Iterable[str], name: str) -> None:
    """ValueError for a null in one of these columns, which kernels read as numbers."""
    for column in columns:
        if has_column(table, column) and table.column(column).null_count:
            raise ValueError(f"'{name}' has a null in '{column}'")


def refuse_outside(table: pa.Table, column: str, least: int, most: int, name: str) -> None:
    """ValueError for a number in the column that is not from `least` to `most`."""
    if len(table):
        found = pc.min_max(table.column(column)).as_py()
        if found["min"] < least or found["max"] > most:
            raise ValueError(f"'{name}' has a number in '{column}' that is not from {least} to {most}")


def refuse_other_waits(members: pa.Table, terms: int) -> None:
    """ValueError if pending matches are not numbered from 0, each with one latest event."""
    refuse_outside(members, "_term", 0, terms - 1, "waits")
    refuse_outside(members, "_wait", 0, len(members) - 1, "waits")
    wait = members.column("_wait").to_numpy()
    latest = wait[members.column("_is_latest").to_numpy(zero_copy_only=False)]
    numbers = np.unique(wait)
    if not np.array_equal(numbers, np.arange(len(numbers))) or not np.array_equal(numbers, np.unique(latest)):
        raise ValueError("'waits' has a pending match without a number or without a latest event")
