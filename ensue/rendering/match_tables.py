"""The matches of a result as Arrow tables: flat, or nested as on Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from querylang.errors import InputError, nearest
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import made_once
from runtime.results import for_users
from runtime.results.schemas import Results, match_schema, order_of_matches, told_of


def matches_table(plan: Plan, results: Results, row_of: for_users.RowOf) -> pa.Table:
    """The matches of all queries, flat and in order.

    Of several queries there are the columns that all can have: the common ones and their keys.
    """
    names = list(dict.fromkeys(query.name for query in plan.queries))
    if len(names) == 1:
        return for_users.flat_matches(own_matches(plan, results, names[0]), row_of)
    chosen = _with_matches(plan, results)
    return _in_order(plan, results, [_in_common(plan, _own(plan, results, query)) for query in chosen], chosen)


def matches_paths(plan: Plan) -> list[tuple[str, ...]]:
    """By column of `matches_table`, whose rows are numbered by their offsets: where its values are.

    They are in `match_schema` under these names, one in the other.
    """
    if len({query.name for query in plan.queries}) == 1:
        return for_users.flat_paths(match_schema(plan, plan.queries[0]))
    first, others = for_users.COMMON[:3], (*for_users.COMMON[3:], *told_of(plan))
    return [*((name,) for name in first), *(("key", name) for name in _shared(plan)), *((name,) for name in others)]


def matches_of(plan: Plan, results: Results, row_of: for_users.RowOf, query: str) -> pa.Table:
    """The matches of one query, of all its instances, flat and in order.

    Raises InputError for a name that the plan does not have.
    """
    return for_users.flat_matches(own_matches(plan, results, query), row_of)


def nested_matches(plan: Plan, results: Results, query: str | None) -> pa.Table:
    """The matches as on Spark: a struct per name; of several queries the common columns."""
    names = list(dict.fromkeys(item.name for item in plan.queries))
    if query is None and len(names) != 1:
        some = _with_matches(plan, results)
        return _in_order(plan, results, [for_users.in_common(plan, _own(plan, results, item)) for item in some], some)
    chosen = _named(plan, names[0] if query is None else query)
    return for_users.spread_matches(_joined(plan, results, chosen), chosen[0])


def own_matches(plan: Plan, results: Results, query: str) -> pa.Table:
    """The matches of a query by name, or of one instance by title, as the engine has them."""
    return _joined(plan, results, _named(plan, query))


def _named(plan: Plan, query: str) -> list[QueryPlan]:
    """The queries of a name, or the one of a title; raises InputError."""
    chosen = [item for item in plan.queries if query in (item.name, item.public_title)]
    if not chosen:
        names = list(dict.fromkeys(item.name for item in plan.queries))
        meant = nearest(query, names)
        hint = f"did you mean {meant!r}?" if meant is not None else f"there are {', '.join(names) or 'none'}"
        raise InputError(f"there is no query {query!r}; {hint}")
    return chosen


def _with_matches(plan: Plan, results: Results) -> Sequence[QueryPlan]:
    """The queries with matches; the first one if there are none."""
    return [query for query in plan.queries if query.title in results.matches] or plan.queries[:1]


def _own(plan: Plan, results: Results, query: QueryPlan) -> pa.Table:
    """The matches of one instance; none if there are none."""
    found = results.matches.get(query.title)
    return for_users.without_order_columns(match_schema(plan, query).empty_table() if found is None else found)


def _joined(plan: Plan, results: Results, queries: Sequence[QueryPlan]) -> pa.Table:
    """The matches of the instances of one query, in order."""
    tables = [_own(plan, results, query) for query in queries]
    return tables[0] if len(tables) == 1 else _in_order(plan, results, tables, queries)


def _in_order(plan: Plan, results: Results, tables: Sequence[pa.Table], queries: Sequence[QueryPlan]) -> pa.Table:
    """The rows of tables of matches of these queries, in the order of their steps."""
    if not queries:
        return pa.table({name: pa.nulls(0, pa.string()) for name in for_users.COMMON})
    firsts = np.cumsum([0, *map(len, tables)])
    starts = dict(zip([query.title for query in queries], firsts[:-1].tolist(), strict=True))
    titles, number, row = order_of_matches(plan, results)
    start = np.array([starts.get(title, -1) for title in titles], np.int64)[number]
    return pa.concat_tables(tables).take(pa.array((start + row)[start >= 0]))


def _in_common(plan: Plan, table: pa.Table) -> pa.Table:
    """The columns of a query's matches that every query of the plan can have."""
    parts = table.column("key").combine_chunks()
    own = {f"{name}_" if name in for_users.COMMON else name: parts.field(name) for name in _shared(plan)}
    first, others = for_users.COMMON[:3], (*for_users.COMMON[3:], *told_of(plan))
    common = for_users.in_common(plan, table)
    return pa.table({name: common[name] for name in first} | own | {name: common[name] for name in others})


@made_once
def _shared(plan: Plan) -> list[str]:
    """The keys that all queries have."""
    keys = [{(key.name, str(key.type)) for key in query.keys} for query in plan.queries]
    return [key.name for key in plan.queries[0].keys if all((key.name, str(key.type)) in own for own in keys)]
