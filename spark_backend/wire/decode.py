"""Decode tagged rows into the tables and typed DataFrames that users get.

Matches get one column per name of the pattern; columns that only order rows are dropped.
The schemas before that are in `runtime.results.schemas`.
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
from spark_backend.wire.plan_text import load_plan, plan_text
from spark_backend.wire.tagged_rows import Tag, read_table, without_order
from spark_backend.wire.worker_calls import on_worker

COMMON = ("match_id", "query", "instance", "time", "definitive", "emitted", "waited")
"""The columns of matches that do not depend on the query."""


def spread_matches(table: pa.Table, query: QueryPlan) -> pa.Table:
    """Matches with one column per name instead of `members`, `selected` and `points`.

    An event is a struct, a `select` its value, a named `wait` its time. A name that is already a
    column's, in upper or lower case, gets a `_` appended: Spark and SQL do not tell them apart.
    `key` is dropped for a query without keys, and so are structs without fields.
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


def _free_name(name: str, used: Sequence[str]) -> str:
    is_used = name.casefold() in {other.casefold() for other in used}
    return _free_name(f"{name}_", used) if is_used else name


def spread_schema(plan: Plan, query: QueryPlan) -> pa.Schema:
    """The schema of `spread_matches`."""
    return spread_matches(without_order(match_schema(plan, query).empty_table()), query).schema


def table_of(data: bytes, tag: Tag, query: str, plan: Plan) -> pa.Table:
    """The table of a tagged row's data as users get it."""
    return user_table(read_table(data), tag, query, plan)


def user_table(tagged: pa.Table, tag: Tag, query: str, plan: Plan) -> pa.Table:
    """The table of a tagged row as users get it."""
    table = without_order(tagged)
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
        case Tag.METRIC | Tag.SOURCE | Tag.TIMELINE | Tag.REPORT:
            raise ValueError(f"tables of kind '{tag}' are for the driver, not for users")


def decode(tagged: DataFrame, plan: Plan, tag: Tag, query: str = "") -> DataFrame:
    """The rows of one kind as a typed DataFrame; `query`: for matches only.

    `output` includes errors.
    """
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
    """For `mapInArrow` over the column `data` of matches of any query: the columns in COMMON."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from read_table(data).select(list(COMMON)).to_batches()


def matches_frame(tagged: DataFrame, plan: Plan) -> DataFrame:
    """All matches: typed for a plan of one query; otherwise with the columns in COMMON."""
    if len(plan.queries) == 1:
        return decode(tagged, plan, Tag.MATCH, plan.queries[0].title)
    schema = schema_of(plan, Tag.MATCH, plan.queries[0].title)
    common = from_arrow_schema(pa.schema([schema.field(name) for name in COMMON]))
    matches = tagged.where(f.col("kind") == str(Tag.MATCH)).select("data")
    return matches.mapInArrow(on_worker("spark_backend.wire.decode", "common_batches"), common)
