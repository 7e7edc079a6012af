"""Keys in conditions: where an expression mentions a key, what it is of an event that the expression sees anyway.

All events of a candidate have the same key, so the key may be taken from any of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from querylang.expression import Aggregate, EventOf, Expression, FieldOf, KeyOf, rewritten, terms_of
from querylang.plan import Condition, QueryPlan, Where, Within, Without

Mentioning = TypeVar("Mentioning", Condition, Aggregate)


def with_keys_of(query: QueryPlan, item: Mentioning) -> Mentioning:
    """The condition or aggregate without mention of keys."""
    match item:
        case Where():
            return replace(item, condition=without_keys(query, item.condition))
        case Without():
            if item.condition is None:
                return item
            return replace(item, condition=without_keys(query, item.condition, len(query.terms), item.input))
        case Within():
            return item
        case Aggregate():
            return replace(item, arguments=tuple(without_keys(query, argument) for argument in item.arguments))


def without_keys(query: QueryPlan, expression: Expression, term: int | None = None, index: int = 0) -> Expression:
    """The expression with each key read from an event: from `term`, an event of input `index`, or else from a term that
    the expression mentions, or else from the pattern's last."""
    if term is None:
        term = min(terms_of(expression), default=len(query.terms) - 1)
        index = query.terms[term].input
    place, keys = term, query.inputs[index].keys

    def moved(node: Expression) -> Expression:
        return replace(node, term=place) if isinstance(node, FieldOf | EventOf) else node

    def as_field(node: Expression) -> Expression:
        return rewritten(keys[node.index], moved) if isinstance(node, KeyOf) else node

    return rewritten(expression, as_field)
