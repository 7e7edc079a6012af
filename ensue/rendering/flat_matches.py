"""Matches as a table without structs: a column for each part of the key and each field."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from querylang.printable import json_text
from runtime.results.json_objects import RowOf, cells, plain_value

_PLACE = ("source", "partition", "offset")
_NESTED = ("key", "members", "selected", "points")


def flat_matches(matches: pa.Table, row_of: RowOf) -> pa.Table:
    """The matches of one query.

    The columns of the key, of selects and of waits have their own names. `low.v` is the field `v`
    of the event `low`; `low.time` is one of the event's own columns. A field with the name of such
    a column gets `_` behind its name. Moments are text as in JSON, lists and objects are JSON.
    """
    columns: list[tuple[str, pa.ChunkedArray | pa.Array]] = []
    for name in matches.column_names:
        column = matches.column(name).combine_chunks()
        if name == "members":
            for term in column.type:
                columns += _member(term.name, column.field(term.name), column.field(term.name).is_valid(), row_of)
        elif name in _NESTED:
            columns += [(part.name, column.field(part.name)) for part in column.type]
        else:
            columns.append((name, column))
    names = _without_repeats([name for name, _ in columns])
    return pa.table([_plain(column) for _, column in columns], names=names)


def _member(term: str, member: pa.StructArray, is_set: pa.BooleanArray, row_of: RowOf) -> list[tuple[str, pa.Array]]:
    """The columns of one event; null where its name is unset."""
    own = [field.name for field in member.type if field.name not in (*_PLACE, "fields")]
    parts = dict(zip((field.name for field in member.type), member.flatten(), strict=True))
    fields = parts["fields"]
    taken = {*own, "row"}
    columns = [
        (f"{term}.{field.name}{'_' if field.name in taken else ''}", column)
        for field, column in zip(fields.type, fields.flatten(), strict=True)
    ]
    places = zip(*(parts[name].to_pylist() for name in _PLACE), is_set.to_pylist(), strict=True)
    rows = pa.array([row_of(*place) if there else None for *place, there in places], pa.int64())
    return [*columns, *((f"{term}.{name}", parts[name]) for name in own), (f"{term}.row", rows)]


def _without_repeats(names: list[str]) -> list[str]:
    """A name that was there before gets `_` behind it."""
    found: dict[str, None] = {}
    for name in names:
        while name in found:
            name += "_"  # noqa: PLW2901
        found[name] = None
    return list(found)


def _plain(column: pa.Array) -> pa.Array:
    """The cells as CSV can hold them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(pc.cast(column, pa.string()), " ", "T", max_replacements=1)
    if pa.types.is_nested(kind):
        texts = [None if cell is None else json_text(plain_value(cell)) for cell in cells(column)]
        return pa.array(texts, pa.string())
    return column
