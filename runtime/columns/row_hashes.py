"""A stable hash of whole rows: it orders rows that nothing else tells apart."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.arrow_types import one_chunk
from runtime.columns.keys import hash_keys


def hash_rows(table: pa.Table) -> NDArray[np.uint64]:
    """By row a hash of its values, whatever the order of rows and columns."""
    columns: list[pa.Array] = []
    for name in sorted(table.column_names):
        column = _plain(one_chunk(table.column(name)))
        if column.null_count == len(column):
            continue  # a column that is not there and one without values are the same
        if column.null_count:
            is_known = column.is_valid()
            zero = "" if pa.types.is_string(column.type) else pa.scalar(0, pa.int8()).cast(column.type)
            columns += [pc.cast(is_known, pa.int8()), column.fill_null(zero)]
        else:
            columns.append(column)
    return hash_keys(columns) if columns else np.zeros(len(table), np.uint64)


def _plain(column: pa.Array) -> pa.Array:
    """The column as numbers or text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(pc.cast(column, kind.value_type))
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.int8())
    if pa.types.is_decimal(kind):
        return pc.cast(column, pa.string())
    if pa.types.is_nested(kind):
        return pa.array(_as_text(column.to_pylist()), pa.string())
    return pc.cast(column, pa.int8()) if pa.types.is_boolean(kind) else column


def _as_text(cells: Sequence[object]) -> list[str | None]:
    return [None if cell is None else json.dumps(cell, default=str, sort_keys=True) for cell in cells]
