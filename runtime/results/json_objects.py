"""Results as JSON objects: matches and outputs, with the names that users rely on.

Moments are ISO 8601 text with microseconds and Z. Numbers that JSON cannot represent (infinity,
NaN, decimals) are text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from querylang.plan.library import LOCATION_FIELDS
from runtime.arrow_types import has_column
from runtime.interpreter.value_text import decimal_text, floating_text, text_of
from runtime.interpreter.values import Dictionary, Event, Location
from runtime.results.schemas import is_member, is_run
from runtime.timestamps import format_time

Plain = dict[str, Any]

RowOf = Callable[[str, int, int], int]
"""The number of the row (from 1) in its table, for a record's source, partition and offset."""


def row_is_offset(_source: str, _partition: int, offset: int) -> int:
    """The `RowOf` of tables whose rows are numbered by their offsets."""
    return offset


def plain_matches(table: pa.Table, row_of: RowOf) -> list[Plain]:
    """The matches of one query (`match_schema`), one object per match."""
    members = table.column("members").combine_chunks()
    terms = {field.name: _plain_name(members.field(field.name), row_of) for field in members.type}
    columns = {
        "match_id": table.column("match_id").to_pylist(),
        "query": table.column("query").to_pylist(),
        "instance": table.column("instance").to_pylist(),
        "key": [plain_value(key) for key in cells(table.column("key"))],
        "time": plain_times(table.column("time")),
        "definitive": plain_times(table.column("definitive")),
        "emitted": plain_times(table.column("emitted")),
        "waited": table.column("waited").to_pylist(),
        "members": _by_match(terms, len(table)),
    }
    if has_column(table, "selected"):
        selected = table.column("selected").combine_chunks()
        columns["selected"] = _by_match(
            {item.name: _plain_select(selected.field(item.name), row_of) for item in selected.type}, len(table)
        )
    if has_column(table, "points"):
        points = table.column("points").combine_chunks()
        moments = {field.name: plain_times(points.field(field.name)) for field in points.type}
        columns["points"] = _by_match(moments, len(table))
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _by_match(columns: Mapping[str, Sequence[Any]], count: int) -> list[Plain]:
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


def _plain_select(column: pa.Array, row_of: RowOf) -> Sequence[Any]:
    is_of_events = is_member(column.type) or is_run(column.type)
    return _plain_name(column, row_of) if is_of_events else [plain_value(value) for value in cells(column)]


def _plain_name(column: pa.Array, row_of: RowOf) -> Sequence[Any]:
    """One object per event, or a list of them for a run."""
    if not is_run(column.type):
        return _plain_members(column, row_of)
    events = _plain_members(column.flatten(), row_of)
    counts = column.value_lengths().to_pylist()
    each = iter(events)
    return [[next(each) for _ in range(count)] for count in counts]


def _plain_members(member: pa.StructArray, row_of: RowOf) -> list[Plain | None]:
    """One object per event; None for a name that is unset."""
    if member.null_count:
        is_set = member.is_valid().to_pylist()
        plain = iter(_plain_members(member.filter(member.is_valid()), row_of))
        return [next(plain) if there else None for there in is_set]
    places = zip(*(member.field(name).to_pylist() for name in ("source", "partition", "offset")), strict=True)
    columns = {
        "event": member.field("event").to_pylist(),
        "time": plain_times(member.field("time")),
        "source_time": plain_times(member.field("source_time")),
        "arrival": plain_times(member.field("arrival")),
        **_ordering(member),
        "row": [row_of(*place) for place in places],
        "fields": [plain_value(fields) for fields in cells(member.field("fields"))],
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _ordering(member: pa.StructArray) -> dict[str, list[Any]]:
    """Why events were adjusted, and when they end; only the columns that the query has."""
    names = [field.name for field in member.type]
    columns: dict[str, list[Any]] = {}
    if "adjusted" in names:
        columns["adjusted"] = member.field("adjusted").to_pylist()
    if "end" in names:
        columns["end"] = plain_times(member.field("end"))
    return columns


def plain_outputs(table: pa.Table) -> list[Plain]:
    """Prints, sends and errors (`OUTPUT_SCHEMA`), one object per output."""
    columns = {
        "kind": table.column("kind").to_pylist(),
        "channel": table.column("channel").to_pylist(),
        "text": table.column("text").to_pylist(),
        "event": [_parsed(text) for text in table.column("event").to_pylist()],
        "query": table.column("query").to_pylist(),
        "instance": table.column("instance").to_pylist(),
        "key": [_parsed(text) for text in cells(table.column("key"))],
        "time": plain_times(table.column("time")),
        "match_id": table.column("match_id").to_pylist(),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _parsed(text: str | None) -> Any:
    return None if text is None else plain_value(json.loads(text))


def plain_times(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """A column of timestamps as text."""
    return [None if micros is None else format_time(micros) for micros in pc.cast(column, pa.int64()).to_pylist()]


def plain_value(value: Any) -> Any:
    """A value of the language, or a cell of a column, as JSON can represent it.

    Decimals become text, which keeps their digits. Dictionaries become objects, with the keys as
    text.
    """
    match value:
        case float() if not math.isfinite(value):
            return floating_text(value)
        case Decimal():
            return decimal_text(value)
        case datetime():
            return plain_times(pa.array([value], pa.timestamp("us", "UTC")))[0]
        case list():
            return [plain_value(item) for item in value]
        case Mapping():
            return {text_of(name): plain_value(part) for name, part in value.items()}
        case Dictionary():
            return {text_of(name): plain_value(part) for name, part in value.items()}
        case Event():
            return {name: plain_value(part) for name, part in value.values.items()}
        case Location():
            return dict(zip(LOCATION_FIELDS, map(plain_value, value.corners), strict=True))
    return value


def cells(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The cells of a column, with dictionaries as mappings."""
    return column.to_pylist(maps_as_pydicts="lossy")
