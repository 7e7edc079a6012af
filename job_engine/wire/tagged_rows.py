"""Tagged rows: the operator's output, an Arrow table per row with its kind and query.

Half a million matches are a few binary values this way. The tables have the schemas of
`runtime.results.schemas`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from runtime.arrow_types import has_column
from runtime.results.schemas import Results

TAGGED_DDL = "bucket int, kind string, query string, rows long, data binary"
TAGGED_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("query", pa.string()),
        ("rows", pa.int64()),
        ("data", pa.binary()),
    ]
)


class Tag(StrEnum):
    """What the table of a tagged row holds; `error` has the columns of `output`."""

    MATCH = "match"
    OUTPUT = "output"
    ERROR = "error"
    DISCARDED = "discarded"
    LEDGER = "ledger"
    METRIC = "metric"
    SOURCE = "source"
    TIMELINE = "timeline"
    REPORT = "report"
    ANSWER = "answer"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class TaggedRow:
    """A table, its kind, and the title of its query ("" = of no single query)."""

    tag: Tag
    query: str
    table: pa.Table

    def data(self) -> bytes:
        """The table as an Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return bytes(sink.getvalue())


def tagged_rows(results: Results) -> Iterator[TaggedRow]:
    """The tables of a result that have rows."""
    for query, table in results.matches.items():
        yield from _if_any(Tag.MATCH, query, table)
    if results.outputs.num_rows:
        is_error = pc.equal(results.outputs.column("kind"), "error")
        yield from _if_any(Tag.OUTPUT, "", results.outputs.filter(pc.invert(is_error)))
        yield from _if_any(Tag.ERROR, "", results.outputs.filter(is_error))
    if results.discarded is not None:
        yield from _if_any(Tag.DISCARDED, "", results.discarded)
    yield from _if_any(Tag.LEDGER, "", results.ledger)


def _if_any(tag: Tag, query: str, table: pa.Table) -> Iterator[TaggedRow]:
    if table.num_rows:
        yield TaggedRow(tag, query, table)


def without_order(table: pa.Table) -> pa.Table:
    """The table without the columns that only order the rows of one engine call."""
    return table.drop_columns([name for name in ("_step", "_rank") if has_column(table, name)])


def read_table(data: bytes) -> pa.Table:
    """The inverse of `TaggedRow.data`."""
    return pa.ipc.open_stream(data).read_all()
