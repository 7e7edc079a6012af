"""Decode tagged rows into the typed DataFrames that users get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from job_engine.wire.plan_text import load_plan, plan_text
from job_engine.wire.tagged_rows import Tag, read_table, schema_of, table_of
from querylang.plan.model import Plan
from runtime.results.for_users import COMMON
from spark_backend.stream.worker_calls import on_worker


def decode(tagged: DataFrame, plan: Plan, tag: Tag, *queries: str, is_flat: bool = False) -> DataFrame:
    """The rows of one kind as a typed DataFrame. `output` includes errors.

    queries: for matches only: the titles of instances of one query. Where its texts have other
        columns, those of all; of a name whose type has changed, the earlier one has `_before`
    is_flat: for matches and discards: a column per field, in place of structs
    """
    alike: dict[pa.Schema, list[str]] = {}
    for title in queries:
        alike.setdefault(schema_of(plan, tag, title, is_flat=is_flat), []).append(title)
    if len(alike) > 1:
        parts = [decode(tagged, plan, tag, *titles, is_flat=is_flat) for titles in alike.values()]
        return _united(parts)
    wanted = f.col("kind") == str(tag)
    if tag is Tag.OUTPUT:
        wanted |= f.col("kind") == str(Tag.ERROR)
    if tag is Tag.MATCH:
        wanted &= f.col("query").isin(*queries)
    query = queries[0] if queries else ""
    run = on_worker("spark_backend.frames.decode", "decode_batches", plan_text(plan), str(tag), query, is_flat)
    schema = from_arrow_schema(schema_of(plan, tag, query, is_flat=is_flat))
    return tagged.where(wanted).select("data").mapInArrow(run, schema)


def _united(parts: Sequence[DataFrame]) -> DataFrame:
    """The matches of several texts of a query, the latest one last."""
    *earlier, whole = parts
    for part in reversed(earlier):
        types = dict(whole.dtypes)
        names = []
        for name, type_ in part.dtypes:
            while types.get(name, type_) != type_:
                name += "_before"  # noqa: PLW2901  the name that it gets
            names.append(name)
        whole = part.toDF(*names).unionByName(whole, allowMissingColumns=True)
    return whole


def decode_batches(
    plan: str, tag: str, query: str, is_flat: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the column `data` of tagged rows of one kind."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from table_of(data, Tag(tag), query, load_plan(plan), is_flat=is_flat).combine_chunks().to_batches()


def common_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the column `data` of matches of any query: the columns in COMMON."""
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from read_table(data).select(list(COMMON)).to_batches()


def matches_frame(tagged: DataFrame, plan: Plan, *, is_flat: bool = False) -> DataFrame:
    """All matches: typed for the instances of one query; otherwise with the columns in COMMON."""
    if len({query.name for query in plan.queries}) == 1:
        return decode(tagged, plan, Tag.MATCH, *(query.title for query in plan.queries), is_flat=is_flat)
    schema = schema_of(plan, Tag.MATCH, plan.queries[0].title)
    common = from_arrow_schema(pa.schema([schema.field(name) for name in COMMON]))
    matches = tagged.where(f.col("kind") == str(Tag.MATCH)).select("data")
    return matches.mapInArrow(on_worker("spark_backend.frames.decode", "common_batches"), common)
