"""Rows of typed tables that are longer than the limit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.reading.formats.asked import Asked
from runtime.reading.formats.raw_table import RawTable, Unreadable


def without_long_rows(raw: RawTable, asked: Asked) -> RawTable:
    """Rows that are longer than the limit are unreadable."""
    if raw.columns.nbytes <= asked.max_record:
        return raw
    lengths = np.zeros(len(raw), np.int64)
    for column in raw.columns.columns:
        if is_bytes_or_text(column.type):
            lengths += pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0).to_numpy()
    is_long = lengths > asked.max_record
    if not is_long.any():
        return raw
    unreadable = [
        Unreadable(number, f"row {number}", asked.too_long, f"{length:,} bytes")
        for number, length in zip(raw.numbers[is_long].tolist(), lengths[is_long].tolist(), strict=True)
    ]
    columns = raw.columns.filter(pa.array(~is_long))
    return RawTable(raw.name, columns, raw.numbers[~is_long], raw.describe, unreadable, declared=raw.declared)


def is_bytes_or_text(kind: pa.DataType) -> bool:
    """Whether the cells of a column of this type are of any length."""
    return any(
        is_one(kind)
        for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )
