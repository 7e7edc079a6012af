"""Columns without Arrow's views: kinds of text, bytes and lists that Polars and others give."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def without_views(columns: pa.Table) -> pa.Table:
    """The same values in the usual forms of text, bytes and lists, which all other code knows.

    Text need not be UTF-8 here.
    """
    for place, field in enumerate(columns.schema):
        kind = _plain(field.type)
        if kind != field.type:
            chunks = [_cast(chunk, kind) for chunk in columns.column(place).chunks]
            columns = columns.set_column(place, field.name, pa.chunked_array(chunks, kind))
    return columns


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, _cast(column.dictionary, kind.value_type))
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        return pa.array(column.to_pylist(), kind)  # Arrow's cast gives damaged lists (Arrow 26)
    try:
        return pc.cast(column, options=pc.CastOptions(kind, allow_invalid_utf8=True))
    except pa.ArrowNotImplementedError:  # such as a dictionary inside of a struct
        return pa.array(column.to_pylist(), kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The usual type of the same values."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        value = _plain(kind.value_type)
        return kind if value == kind.value_type else pa.dictionary(kind.index_type, value)
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_plain(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain(kind.value_type))
    return pa.list_(_plain(kind.value_type)) if pa.types.is_list(kind) else kind
