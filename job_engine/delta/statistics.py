"""Statistics of a data file for a Delta table's log, from the footer of the Parquet file.

Readers leave out files by them. So a bound that is not certain is left out: those of floats, where
NaN is not part of them, and those of long text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

INDEXED = 32
"""Columns with statistics: the first so many, as other writers do by default."""

_LONGEST = 32
"""Characters of text that is a bound."""

_MILLISECOND = timedelta(milliseconds=1)


def file_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """The statistics as JSON text."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    places = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    for path in list(_leaves(schema))[:INDEXED]:
        number = places.get(".".join(path))
        if number is None or any("." in name for name in path):
            continue
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if all(group is not None and group.has_null_count for group in groups):
            _put(found["nullCount"], path, sum(group.null_count for group in groups))
        bounds = [group for group in groups if group is not None and group.has_min_max]
        if bounds and len(bounds) == len([group for group in groups if group is None or group.num_values]):
            _put(found["minValues"], path, _bound(min(group.min for group in bounds), is_most=False))
            _put(found["maxValues"], path, _bound(max(group.max for group in bounds), is_most=True))
    return json.dumps(found)


def _leaves(fields: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The columns that are stored by themselves and not in lists or maps."""
    for field in fields:
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path)
        elif not pa.types.is_nested(field.type):
            yield path


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    if value is not None:
        for name in path[:-1]:
            tree = tree.setdefault(name, {})
        tree[path[-1]] = value


def _bound(value: object, *, is_most: bool) -> object:
    """A bound as the log has it; None = it is not certain, or has no use."""
    match value:
        case bool() | float():
            return None
        case int():
            return value
        case str() if len(value) <= _LONGEST:
            return value
        case str():
            return None if is_most else value[:_LONGEST]
        case datetime():
            return _moment(value, is_most=is_most)
        case date():
            return value.isoformat()
        case _:
            return None


def _moment(value: datetime, *, is_most: bool) -> str | None:
    """Milliseconds: rounded so that the bound holds."""
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    if is_most and moment.microsecond % 1000:
        if moment.replace(tzinfo=None) > datetime.max - _MILLISECOND:  # noqa: DTZ901 # only compared
            return None
        moment += _MILLISECOND
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo is not None else "")
