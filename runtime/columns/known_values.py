"""Evaluate an expression of which parts are known as columns, such as aggregates or fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from querylang.plan.expression import Expression, FieldOf, rewritten, type_of
from querylang.plan.model import EventType, Field, Plan, QueryPlan
from runtime.columns.arrivals import column_name
from runtime.columns.expressions import as_array, with_keys


def over_columns(
    expression: Expression,
    known: Mapping[Expression, pa.Array],
    plan: Plan,
    query: QueryPlan,
    keys: Sequence[pa.Array],
    count: int,
) -> pa.Array:
    """The value of an expression on every row; null = no value.

    known: by part of the expression its value on every row
    keys: the values of the query's keys on every row
    count: how many rows
    """
    # The parts become fields of one artificial event, so that they are columns of a table.
    names = {node: f"part{number}" for number, node in enumerate(known)}

    def as_field(node: Expression) -> Expression:
        return FieldOf(type_of(node), 0, names[node]) if node in names else node

    event = EventType("", tuple(Field(name, type_of(node)) for node, name in names.items()))
    columns = {column_name(name, type_of(node)): known[node] for node, name in names.items()}
    table = with_keys(pa.table({**columns, "_row": pa.array(np.arange(count))}), query, list(keys))
    return as_array(rewritten(expression, as_field), table, plan, event, query)
