"""Matches as CSV can hold them: a column for each part of the key and each field."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from querylang.printable import json_text
from runtime.results.for_users import RowOf, cells, flat_matches, plain_value


def csv_matches(matches: pa.Table, row_of: RowOf) -> pa.Table:
    """The matches of one query, flat. Moments are text as in JSON, lists and objects are JSON."""
    flat = flat_matches(matches, row_of)
    return pa.table([_plain(column.combine_chunks()) for column in flat.columns], names=flat.column_names)


def _plain(column: pa.Array) -> pa.Array:
    """The cells as CSV can hold them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(pc.cast(column, pa.string()), " ", "T", max_replacements=1)
    if pa.types.is_nested(kind):
        texts = [None if cell is None else json_text(plain_value(cell)) for cell in cells(column)]
        return pa.array(texts, pa.string())
    return column
