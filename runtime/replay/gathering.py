"""Gather the columns of matches once, when all of them are known."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from runtime.columns.keys import key_columns
from runtime.results.match_table import match_table
from runtime.results.matched import Matched
from runtime.threads import in_threads, shares

LEAST = 10_000
"""So many matches per thread are worth one."""


def gather(plan: Plan, query: QueryPlan, table: pa.Table, parts: Sequence[Matched], threads: int) -> pa.Table:
    """The matches of one query as a table, in order.

    table: all records
    parts: matches, by the numbers of records; those of each part are in order
    """
    matched = Matched.joined(parts)
    first, end = matched.rows()
    table, matched = table.slice(first, end - first), matched.from_row(first)
    keys = key_columns(table, table.column("_kind").to_numpy(), plan, query)
    if len(parts) > 1:
        matched = matched.by_step(keys)

    def gathered(share: slice) -> pa.Table:
        return match_table(plan, query, table, keys, matched.part(share) if threads > 1 else matched)

    threads = max(1, min(threads, len(matched) // LEAST))
    return pa.concat_tables(in_threads(gathered, [slice(*share) for share in shares(len(matched), threads)], threads))
