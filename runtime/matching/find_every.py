"""`find every`: evaluate `having` and `select` over the aggregates of each match.

The aggregates come as columns, from either matcher. What an aggregate means is defined in
`runtime.interpreter.aggregates`; the kernel computes some of them itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import Aggregate, Expression, FieldOf, SelectOf, rewritten, type_of, walk
from querylang.plan.model import EventType, Field, Plan, QueryPlan
from runtime.columns.arrivals import column_name
from runtime.columns.expressions import as_array, with_keys
from runtime.columns.keys import key_columns

Integers = NDArray[np.int64]


def aggregates_of(query: QueryPlan) -> tuple[Aggregate, ...]:
    """The different aggregates of a query's `select` and `having`, in text order."""
    if query.every is None:
        return ()
    expressions = [*(select.value for select in query.every.selects), *query.every.having]
    found = [node for expression in expressions for node in walk(expression) if isinstance(node, Aggregate)]
    return tuple(dict.fromkeys(found))


def selected(
    plan: Plan, query: QueryPlan, aggregates: tuple[pa.Array, ...], table: pa.Table, latest: Integers
) -> tuple[Integers, tuple[pa.Array, ...]]:
    """The numbers of the matches that pass all `having` clauses, and the columns of their selects.

    aggregates: one column per aggregate, by match
    latest: by match, the row of its latest event in `table`
    """
    assert query.every is not None, "only `find every` has selects"
    kinds = table.column("_kind").to_numpy()
    keys = [key.take(pa.array(latest)) for key in key_columns(table, kinds, plan, query)]
    row = _Row(plan, query, keys, {}, len(latest))
    for number, (node, column) in enumerate(zip(aggregates_of(query), aggregates, strict=True)):
        row.columns[f"aggregate{number}", node] = column
    for number, select in enumerate(query.every.selects):
        row.columns[f"select{number}", SelectOf(type_of(select.value), number)] = row.value(select.value)
    passed = np.ones(len(latest), np.bool_)
    for condition in query.every.having:
        passed &= row.value(condition).fill_null(False).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(passed)
    selects = [
        row.columns[f"select{number}", SelectOf(type_of(item.value), number)]
        for number, item in enumerate(query.every.selects)
    ]
    return chosen, tuple(column.take(pa.array(chosen)) for column in selects)


@dataclass(frozen=True, slots=True)
class _Row:
    """What `select` and `having` may mention besides keys, as fields of one artificial event type.

    columns: by name and expression, one value per match
    count: how many matches
    """

    plan: Plan
    query: QueryPlan
    keys: list[pa.Array]
    columns: dict[tuple[str, Expression], pa.Array]
    count: int

    def value(self, expression: Expression) -> pa.Array:
        """By match, an expression over aggregates, keys and selects; null = no value."""
        names = {node: name for name, node in self.columns}
        fields = {name: node.type for name, node in self.columns if node.type is not None}

        def as_field(node: Expression) -> Expression:
            known = isinstance(node, Aggregate | SelectOf)
            return FieldOf(fields[names[node]], 0, names[node]) if known else node

        event = EventType("", tuple(Field(name, type_) for name, type_ in fields.items()))
        columns = {column_name(name, fields[name]): column for (name, _), column in self.columns.items()}
        table = pa.table({**columns, "_row": pa.array(np.arange(self.count))})
        table = with_keys(table, self.query, self.keys)
        return as_array(rewritten(expression, as_field), table, self.plan, event, self.query)
