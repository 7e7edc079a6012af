"""Messages of one task, encoded on its worker, until the driver sends them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from job_engine.arrow_files import mapped_bytes, new_bytes
from job_engine.chance import new_name
from job_engine.errors import writing_to
from job_engine.local_path import LocalPath
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Sink
from job_engine.sinks.tables import json_rows, json_texts, plain_texts
from job_engine.sinks.topics.settings import TopicSink
from runtime.column_types import one_chunk
from runtime.json_reader import json_of_text

# Tables of results as messages: JSON values, the query's key, and what identifies each of them.
#
# A message has the same identity however often its micro-batch is repeated.

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
    known = None if is_channel else _known_keys(table)
    if known is not None:
        ids, keys = known
        nothing = pa.nulls(len(table), pa.string())
        others = dict.fromkeys(HEADERS[1:], nothing)
        return pa.table({"key": keys, "value": json_texts(table), ID: ids, **others}, schema=SCHEMA)
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


def _known_keys(table: pa.Table) -> tuple[list[str], list[str]] | None:
    """Identities and keys of matches whose key is one text or integer; None = others.

    By column, as rows cost ten times as much.
    """
    names = set(table.column_names)
    if "kind" in names or not {"match_id", "key"} <= names:
        return None
    ids, key = plain_texts(one_chunk(table.column("match_id"))), one_chunk(table.column("key"))
    if ids is None or not pa.types.is_struct(key.type) or key.type.num_fields != 1 or key.null_count:
        return None
    keys = plain_texts(key.field(0))
    return None if keys is None else (ids, keys)


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


FEW = 1 << 20
"""Bytes of messages that go to the driver without a file."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class MessageWriter:
    """The messages of one task; see `TaskWriter`.

    place: names micro-batch and task
    """

    def __init__(self, sink: TopicSink, place: str) -> None:
        self._sink = sink
        self._place = place
        self._few: list[pa.Table] = []
        self._path: Path | None = None
        self._target: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._rows = 0

    def write(self, part: str, table: pa.Table) -> str:  # noqa: ARG002
        """Add a table; all parts go to the one topic."""
        messages = messages_of(table, f"{self._place}-", self._rows, is_channel=self._sink.is_channel)
        self._rows += len(messages)
        self._few.append(messages)
        if self._sink.drafts and sum(own.nbytes for own in self._few) > FEW:
            self._write_file()
        return self._place

    def _write_file(self) -> None:
        """Move to the file what is in memory."""
        with writing_to(self._sink.drafts):
            if self._writer is None:
                folder = LocalPath(self._sink.drafts or "")
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been cleaned up
                self._path = folder / f"{self._sink.name}-{new_name()}.messages"
                self._target = new_bytes(self._path)
                self._writer = pa.ipc.new_stream(self._target, SCHEMA, options=_OPTIONS)
            for messages in self._few:
                self._writer.write_table(messages)
        self._few = []

    def finish(self) -> tuple[Draft, ...]:
        """Close them. After a power cut the repeated micro-batch makes them again."""
        if self._writer is not None and self._target is not None:
            self._write_file()
            with writing_to(self._sink.drafts):
                self._writer.close()
                self._target.close()
            return (Draft(str(self._path), self._place),)
        if not self._few:
            return ()
        data = pa.BufferOutputStream()
        with pa.ipc.new_stream(data, SCHEMA, options=None if self._sink.drafts else _OPTIONS) as writer:
            for messages in self._few:
                writer.write_table(messages)
        return (Draft("", self._place, data=data.getvalue().to_pybytes()),)

    def abort(self) -> None:
        """Remove them."""
        for opened in (self._writer, self._target):
            if opened is not None:
                with suppress(OSError, pa.ArrowException):  # a full disk refuses the end of a file, too
                    opened.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def drafted_messages(draft: Draft) -> Iterator[pa.Table]:
    """The messages of a draft, in their order."""
    source = mapped_bytes(LocalPath(draft.path)) if draft.data is None else pa.BufferReader(draft.data)
    with source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


class Writing(kinds.Writing):
    """Tasks encode messages; see `kinds.Writing`."""

    own = TopicSink

    def open(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> MessageWriter:  # noqa: ARG002
        """A writer for one task."""
        own: TopicSink = sink.own
        return MessageWriter(own, f"{batch.name}{task:05d}")


WRITING = Writing()
