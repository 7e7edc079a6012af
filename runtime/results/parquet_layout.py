"""How the columns of results are stored in Parquet: small and quick to write, for any reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_RANDOM_TEXT = "match_id"
"""Identities are hashes: a dictionary of them, or compression, costs time and saves nothing."""


def parquet_settings(schema: pa.Schema) -> dict[str, Any]:
    """Arguments for `ParquetWriter`.

    Times and numbers are stored as differences, which are smaller than a dictionary of them and
    quicker to make. Text that repeats has a dictionary.
    """
    columns = dict(_leaves(schema))
    numbers = [path for path, type_ in columns.items() if _is_whole_number(type_)]
    texts = [path for path, type_ in columns.items() if pa.types.is_string(type_) and path != _RANDOM_TEXT]
    return {
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "compression": {path: "none" if path == _RANDOM_TEXT else "snappy" for path in columns},
    }


def _is_whole_number(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) or pa.types.is_int64(type_) or pa.types.is_int32(type_)


def _leaves(fields: Any, above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """What is stored by itself, by its path in Parquet."""
    for field in fields:
        path, type_ = f"{above}{field.name}", field.type
        if pa.types.is_struct(type_):
            yield from _leaves(type_, f"{path}.")
        elif pa.types.is_map(type_):
            entry = [pa.field("key", type_.key_type), pa.field("value", type_.item_type)]
            yield from _leaves(entry, f"{path}.key_value.")
        elif pa.types.is_list(type_):
            yield from _leaves([pa.field("element", type_.value_type)], f"{path}.list.")
        else:
            yield path, type_
