"""Check aggregates: `avg(a.x)` in `select` and `having`.

`querylang.plan.library` lists the aggregates. The scope says where one may be used and what its
arguments see.
"""

from __future__ import annotations

from querylang.checker.expressions.inference_context import Inferring, type_of, wrong_count
from querylang.checker.names.namespaces import path_of
from querylang.errors import Mistake, QueryError, listed
from querylang.plan.expression import Aggregate, Expression
from querylang.plan.library import AGGREGATES, aggregate_result
from querylang.syntax import ast

PACKAGE = "com.apama.aggregates"
"""Where the vendor's language has them; here the names are known without `using`."""


def is_aggregate(inferring: Inferring, node: ast.Call) -> bool:
    """Whether a call is one of an aggregate, by its name alone or with its package."""
    text = node.name.text
    if node.receiver is not None:
        path = path_of(node.receiver)
        return path is not None and path.text == PACKAGE and text in AGGREGATES and not inferring.scope.has("com")
    return text.removeprefix(f"{PACKAGE}.") in AGGREGATES


def aggregate(inferring: Inferring, node: ast.Call) -> Expression | None:
    """An aggregate with its arguments, which have a scope of their own."""
    name = ast.Name(node.name.text.rpartition(".")[2], node.name.span)
    scope = inferring.scope.aggregates
    if isinstance(scope, Mistake):
        return inferring.wrong(QueryError.of(scope, name.span, name=name.text))
    rule = AGGREGATES[name.text]
    count = len(node.arguments)
    inside = inferring.within(scope)
    arguments = [inside.typed(argument) for argument in node.arguments]
    if not rule.required <= count <= len(rule.takes):
        return inferring.wrong(wrong_count(name.span, name.text, rule.required, len(rule.takes), count))
    values = tuple(value for value in arguments if value is not None)
    if len(values) < count:
        return None
    types = [type_of(value) for value in values]
    result = aggregate_result(name.text, types)
    if result is None:
        found = listed(map(str, types))
        return inferring.wrong(QueryError.of(Mistake.AGGREGATE_TYPES, node.span, name=name.text, found=found))
    return Aggregate(result, name.text, values)
