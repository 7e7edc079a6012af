"""Tables of results as messages: JSON values, the query's key, and what identifies each of them.

A message has the same identity however often its micro-batch is repeated.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from job_engine.wire.file_layouts import json_rows, json_texts
from runtime.json_reader import json_of_text

ID = "ensue-id"
"""The header that identifies a message."""

HEADERS = (ID, "ensue-event", "ensue-query", "ensue-instance", "ensue-time", "ensue-match")
"""All headers; messages of results have the first one only."""

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), *((name, pa.string()) for name in HEADERS)])
"""Messages as a table; what is null is not sent."""


_IDENTIFYING = ("key", "match_id", "kind", "channel", "query", "source", "partition", "offset")
"""The columns of results that key and identity of a message are made of."""


def messages_of(table: pa.Table, begin: str, first: int = 0, *, is_channel: bool = False) -> pa.Table:
    """The rows of a table as messages (SCHEMA).

    begin, first: what identifies rows without coordinates: a text, and the number of the first row
    is_channel: whether values are the events that were sent, not the rows
    """
    if is_channel:
        rows = json_rows(table)
        found: list[dict[str, str | None]] = list(map(_event_message, rows))
    else:
        names = [name for name in table.column_names if name in _IDENTIFYING]
        rows = json_rows(table.select(names)) if names else [{}] * len(table)
        found = [{"value": value} for value in json_texts(table)]
    numbers = Counter[tuple[str, ...]]()
    for place, (row, message) in enumerate(zip(rows, found, strict=True), first):
        message["key"] = _key(row.get("key"))
        message[ID] = _identity(row, numbers) or f"{begin}{place}"
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _event_message(row: Mapping[str, Any]) -> dict[str, str | None]:
    """An event as the query sent it: its fields, and in headers what belongs to it."""
    event = json_of_text(row["event"], dict[str, Any])
    return {
        "value": _text(event["fields"]),
        "ensue-event": event["type"],
        "ensue-query": row["query"],
        "ensue-instance": row["instance"] or None,
        "ensue-time": row["time"],
        "ensue-match": row["match_id"],
    }


def _identity(row: Mapping[str, Any], numbers: Counter[tuple[str, ...]]) -> str | None:
    """What identifies a row by itself; None = nothing does.

    Of outputs: their match, and a number among those of one kind and channel; of discarded records
    their coordinates, and the query that refused them.
    """
    if row.get("match_id") is None:
        place = [row.get(name) for name in ("source", "partition", "offset")]
        return None if None in place else "/".join(map(str, [*place, *filter(None, [row.get("query")])]))
    match = str(row["match_id"])
    if "kind" not in row:
        return match
    name = (match, str(row["kind"]), *filter(None, [row["channel"]]))
    numbers[name] += 1
    return "/".join([*name, str(numbers[name])])


def _key(key: object) -> str | None:
    """A query's key: the value itself if there is one, else an object with all of them."""
    found = json_of_text(key, object) if isinstance(key, str) else key
    if not isinstance(found, dict) or not found:
        return None
    if len(found) > 1:
        return _text(found)
    (value,) = found.values()
    return value if isinstance(value, str) else _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def headers_of(names: Sequence[str], values: Sequence[str | None]) -> list[tuple[str, bytes]]:
    """The headers of a message."""
    return [(name, value.encode()) for name, value in zip(names, values, strict=True) if value is not None]


def each_message(table: pa.Table) -> Iterator[tuple[str | None, str, list[tuple[str, bytes]]]]:
    """Key, value and headers of each message."""
    names = [name for name in HEADERS if table.column(name).null_count < len(table)]
    headers = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    for key, value, own in zip(
        table.column("key").to_pylist(), table.column("value").to_pylist(), headers, strict=True
    ):
        yield key, value, headers_of(names, own)
