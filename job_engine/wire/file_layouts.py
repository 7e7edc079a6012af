"""Rewrite tables of results so that Parquet, CSV or JSON can hold them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.arrow_types import one_chunk
from runtime.results.json_objects import Plain, cells, plain_value

_FORMULA = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"


def flattened(table: pa.Table) -> pa.Table:
    """For CSV: fields of structs become columns `column.field`, lists and maps become JSON text."""
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return pa.table([_text_of_nested(column) for column in table.columns], names=table.column_names)


def _text_of_nested(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_nested(column.type):
        return column
    texts = [None if cell is None else json.dumps(plain_value(cell), ensure_ascii=False) for cell in cells(column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def without_formulas(table: pa.Table) -> pa.Table:
    """For CSV that spreadsheets open: text that begins like a formula gets a `'` before it.

    Names of columns too. What begins so: `= + - @`, a tab, a line end, and their wide forms.
    """

    def escaped(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        is_text = pa.types.is_string(text.type) or pa.types.is_large_string(text.type)
        return pc.replace_substring_regex(text, _FORMULA, r"'\0") if is_text else text

    names = escaped(pa.array(table.column_names, pa.string())).to_pylist()
    return pa.table([escaped(column) for column in table.columns], names=names)


def json_rows(table: pa.Table) -> list[Plain]:
    """For JSON: values as in `runtime.results.json_objects`, times as ISO 8601 text."""
    columns = [_with_text_times(one_chunk(column)) for column in table.columns]
    rows: list[Plain] = pa.table(columns, names=table.column_names).to_pylist(maps_as_pydicts="lossy")
    return [_plain(row) for row in rows]


def _plain(row: dict[str, Any]) -> Plain:
    return {name: plain_value(value) for name, value in row.items()}


def _with_text_times(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return pa.compute.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_struct(column.type) and column.type.num_fields:
        names = [field.name for field in column.type]
        fields = [_with_text_times(part) for part in column.flatten()]
        return pa.StructArray.from_arrays(fields, names, mask=column.is_null())
    if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
        counts = column.value_lengths().fill_null(0).to_numpy()
        ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return pa.ListArray.from_arrays(ends, _with_text_times(column.flatten()), mask=column.is_null())
    return column
