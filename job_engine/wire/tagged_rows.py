"""Tagged rows: the operator's output, an Arrow table per row with its kind and query.

Half a million matches are a few binary values this way. The tables have the schemas of
`runtime.results.schemas`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import has_column
from runtime.results.for_users import (
    flat_discards,
    flat_matches,
    spread_matches,
    without_empty_structs,
    without_order_columns,
)
from runtime.results.schemas import LEDGER_SCHEMA, OUTPUT_SCHEMA, Results, discard_schema, match_schema, shown_outputs

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


# Decode tagged rows into the tables that users get.
#
# Matches get one column per name of the pattern; columns that only order rows are dropped.
# The schemas before that are in `runtime.results.schemas`.


def spread_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """The schema of `spread_matches`."""
    return spread_matches(without_order(match_schema(plan, query).empty_table()), query).schema


def table_of(data: bytes, tag: Tag, query: str, plan: Plan, *, is_flat: bool = False) -> pa.Table:
    """The table of a tagged row's data as users get it."""
    if is_flat and tag is Tag.MATCH:
        return flat_table(read_table(data))
    if is_flat and tag is Tag.DISCARDED:
        return without_empty_structs(flat_discards(plan, read_table(data), str.casefold))
    return user_table(read_table(data), tag, query, plan)


def flat_table(matches: pa.Table) -> pa.Table:
    """Matches with a column per field: `low_v`, since Spark wants backquotes around dots."""
    return without_empty_structs(flat_matches(without_order_columns(matches), None, "_"))


def user_table(tagged: pa.Table, tag: Tag, query: str, plan: Plan) -> pa.Table:
    """The table of a tagged row as users get it."""
    table = without_order(tagged)
    if tag is Tag.MATCH:
        return spread_matches(table, plan.query(query))
    return shown_outputs(plan, table) if tag in {Tag.OUTPUT, Tag.ERROR} else without_empty_structs(table)


def schema_of(plan: Plan, tag: Tag, query: str = "", *, is_flat: bool = False) -> pa.Schema:
    """The schema of `table_of`."""
    match tag:
        case Tag.MATCH if is_flat:
            return flat_table(match_schema(plan, plan.query(query)).empty_table()).schema
        case Tag.MATCH:
            return spread_schema(plan, plan.query(query))
        case Tag.OUTPUT | Tag.ERROR:
            return shown_outputs(plan, without_order(OUTPUT_SCHEMA.empty_table())).schema
        case Tag.DISCARDED if is_flat:
            return without_empty_structs(flat_discards(plan, discard_schema(plan).empty_table(), str.casefold)).schema
        case Tag.DISCARDED:
            return without_empty_structs(without_order(discard_schema(plan).empty_table())).schema
        case Tag.LEDGER:
            return LEDGER_SCHEMA
        case Tag.METRIC | Tag.SOURCE | Tag.TIMELINE | Tag.REPORT:
            raise ValueError(f"tables of kind '{tag}' are for the driver, not for users")
