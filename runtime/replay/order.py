"""The guaranteed order of a replay's results.

Rows are ordered by the step that produced them, then query, key, match time, and candidate (oldest
first).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.instants import NO_TIME
from runtime.results.matched import match_order
from runtime.results.schemas import Results


def in_order(plan: Plan, results: Results, in_order_already: Collection[str] = ()) -> Results:
    """The results with each table in its guaranteed order.

    in_order_already: the titles of queries whose matches are known to be
    """
    tables = {query.title: results.matches[query.title] for query in plan.queries if query.title in results.matches}
    matches = {name: table if name in in_order_already else _sorted_matches(table) for name, table in tables.items()}
    return Results(matches, _sorted_outputs(plan, matches, results.outputs), _sorted_discards(results), results.ledger)


def _sorted_matches(table: pa.Table) -> pa.Table:
    if len(table) == 1:
        return table
    emitted = table.column("emitted").cast(pa.int64()).to_numpy()
    step, time, rank = (table.column(name).cast(pa.int64()).to_numpy() for name in ("_step", "time", "_rank"))
    order = match_order(emitted, step, time, rank, lambda rows: _keys_of(table, rows))
    return table if (order[1:] > order[:-1]).all() else table.take(pa.array(order))


def _keys_of(table: pa.Table, rows: NDArray[np.int64]) -> list[pa.Array]:
    keys = table.column("key").take(pa.array(rows)).combine_chunks()
    return list(keys.flatten())


def _sorted_outputs(plan: Plan, matches: dict[str, pa.Table], outputs: pa.Table) -> pa.Table:
    """Sort outputs, stable: those without a time first, then by step, query and match."""
    if len(outputs) <= 1:
        return outputs
    ids = [table.column("match_id") for table in matches.values()]
    everything = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
    place = pc.fill_null(pc.index_in(outputs.column("match_id"), value_set=everything), -1)
    query = pc.fill_null(pc.index_in(outputs.column("query"), value_set=pa.array([q.name for q in plan.queries])), -1)
    emitted = pc.fill_null(outputs.column("emitted").cast(pa.int64()), NO_TIME)
    columns = {"emitted": emitted, "_step": outputs.column("_step"), "query": query, "place": place}
    by = pa.table({**columns, "row": np.arange(len(outputs))})
    return outputs.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]))


def _sorted_discards(results: Results) -> pa.Table | None:
    discarded = results.discarded
    if discarded is None or len(discarded) <= 1:
        return discarded
    step = discarded.column("_step").to_numpy()
    if (step[1:] >= step[:-1]).all():
        return discarded
    by = pa.table({"_step": step, "row": np.arange(len(discarded))})
    return discarded.take(pc.sort_indices(by, sort_keys=[("_step", "ascending"), ("row", "ascending")]))


def matches_in_order(plan: Plan, results: Results) -> list[tuple[str, int]]:
    """All matches as (query's title, row in its sorted table), by step, query and row."""
    titles = [query.title for query in plan.queries if query.title in results.matches]
    tables = [results.matches[title] for title in titles]
    if not tables:
        return []
    both = pa.concat_tables([table.select(["emitted", "_step"]) for table in tables])
    number = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    row = np.concatenate([np.arange(len(table)) for table in tables])
    by = pa.table({"emitted": both["emitted"], "_step": both["_step"], "number": number, "row": row})
    order = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    chosen = order.to_numpy()
    return list(zip([titles[place] for place in number[chosen].tolist()], row[chosen].tolist(), strict=True))
