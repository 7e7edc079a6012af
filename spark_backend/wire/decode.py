"""Tagged rows as typed tables and DataFrames.

Takes tagged rows, as Spark's or as plain data; gives matches with one column a pattern name, outputs, discards and
accounts. The Arrow schemas stand in `runtime.results.schemas`; here they only get the shape that a table of results has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from querylang.plan.model import Plan, QueryPlan
from runtime.results.schemas import LEDGER_SCHEMA, OUTPUT_SCHEMA, discard_schema, match_schema
from spark_backend.wire.file_layouts import without_empty_structs
from spark_backend.wire.plan_text import load_plan, on_worker, plan_text
from spark_backend.wire.tagged_rows import Tag, read_table, without_order

COMMON = ("match_id", "query", "instance", "time", "definitive", "emitted", "waited")
"""The columns of matches that do not depend on the query."""


def spread_matches(table: pa.Table, query: QueryPlan) -> pa.Table:
    """Matches with one column a name instead of `members`, `selected` and `points`: a struct for an event, the value for a
    select, the moment for a wait; `key` is left out where there is none.

    A name that is a column's already gets a `_` behind it. Structs without fields are left out.
    """
    spread = ("members", "selected", "points")
    names = [name for name in table.column_names if name not in spread and (name != "key" or query.keys)]
    columns = [table.column(name) for name in names]
    for part in spread:
        if part in table.column_names:
            values = table.column(part).combine_chunks()
            for field in values.type:
                columns.append(pa.chunked_array([values.field(field.name)]))
                names.append(_free_name(field.name, names))
    return without_empty_structs(pa.table(columns, names=names))


def _free_name(name: str, taken: Sequence[str]) -> str:
    return _free_name(f"{name}_", taken) if name in taken else name


def spread_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """The schema of `spread_matches`."""
    return spread_matches(without_order(match_schema(plan, query).empty_table()), query).schema


def table_of(data: bytes, tag: Tag, query: str, plan: Plan) -> pa.Table:
    """One tagged row's table in the shape that users get."""
    table = without_order(read_table(data))
    return spread_matches(table, plan.query(query)) if tag is Tag.MATCH else without_empty_structs(table)


def schema_of(plan: Plan, tag: Tag, query: str = "") -> pa.Schema:
    """The schema of `table_of`."""
    match tag:
        case Tag.MATCH:
            return spread_schema(plan, plan.query(query))
        case Tag.OUTPUT | Tag.ERROR:
            return without_order(OUTPUT_SCHEMA.empty_table()).schema
        case Tag.DISCARDED:
            return without_empty_structs(without_order(discard_schema(plan).empty_table())).schema
        case Tag.LEDGER:
            return LEDGER_SCHEMA
        case Tag.METRIC | Tag.SOURCE | Tag.TIMELINE:
            raise ValueError("what buckets tell of themselves is no table for users")


def decode(tagged: DataFrame, plan: Plan, tag: Tag, query: str = "") -> DataFrame:
    """The rows of one kind (and query, for matches) as a typed DataFrame; streaming where `tagged` is."""
    wanted = f.col("kind") == str(tag)
    if tag is Tag.OUTPUT:
        wanted |= f.col("kind") == str(Tag.ERROR)
    if tag is Tag.MATCH:
        wanted &= f.col("query") == query
    run = on_worker("spark_backend.wire.decode", "decode_batches", plan_text(plan), str(tag), query)
    schema = from_arrow_schema(schema_of(plan, tag, query))
    return tagged.where(wanted).select("data").mapInArrow(run, schema)


def decode_batches(plan: str, tag: str, query: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the column `data` of tagged rows of one kind."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from table_of(data, Tag(tag), query, load_plan(plan)).combine_chunks().to_batches()


def common_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the column `data` of matches of any query: the columns that all have."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from read_table(data).select(list(COMMON)).to_batches()


def matches_frame(tagged: DataFrame, plan: Plan) -> DataFrame:
    """All matches: typed for one query; of several, the columns that do not depend on the query."""
    if len(plan.queries) == 1:
        return decode(tagged, plan, Tag.MATCH, plan.queries[0].title)
    schema = schema_of(plan, Tag.MATCH, plan.queries[0].title)
    common = from_arrow_schema(pa.schema([schema.field(name) for name in COMMON]))
    matches = tagged.where(f.col("kind") == str(Tag.MATCH)).select("data")
    return matches.mapInArrow(on_worker("spark_backend.wire.decode", "common_batches"), common)
