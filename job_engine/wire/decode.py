"""Decode tagged rows into the tables that users get.

Matches get one column per name of the pattern; columns that only order rows are dropped.
The schemas before that are in `runtime.results.schemas`.
"""

from __future__ import annotations

import pyarrow as pa

from job_engine.wire.tagged_rows import Tag, read_table, without_order
from querylang.plan.model import Plan, QueryPlan
from runtime.results.for_users import flat_discards, flat_matches, public, spread_matches, without_empty_structs
from runtime.results.schemas import LEDGER_SCHEMA, OUTPUT_SCHEMA, discard_schema, match_schema


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
    return without_empty_structs(flat_matches(public(matches), None, "_"))


def user_table(tagged: pa.Table, tag: Tag, query: str, plan: Plan) -> pa.Table:
    """The table of a tagged row as users get it."""
    table = without_order(tagged)
    return spread_matches(table, plan.query(query)) if tag is Tag.MATCH else without_empty_structs(table)


def schema_of(plan: Plan, tag: Tag, query: str = "", *, is_flat: bool = False) -> pa.Schema:
    """The schema of `table_of`."""
    match tag:
        case Tag.MATCH if is_flat:
            return flat_table(match_schema(plan, plan.query(query)).empty_table()).schema
        case Tag.MATCH:
            return spread_schema(plan, plan.query(query))
        case Tag.OUTPUT | Tag.ERROR:
            return without_order(OUTPUT_SCHEMA.empty_table()).schema
        case Tag.DISCARDED if is_flat:
            return without_empty_structs(flat_discards(plan, discard_schema(plan).empty_table(), str.casefold)).schema
        case Tag.DISCARDED:
            return without_empty_structs(without_order(discard_schema(plan).empty_table())).schema
        case Tag.LEDGER:
            return LEDGER_SCHEMA
        case Tag.METRIC | Tag.SOURCE | Tag.TIMELINE | Tag.REPORT:
            raise ValueError(f"tables of kind '{tag}' are for the driver, not for users")
