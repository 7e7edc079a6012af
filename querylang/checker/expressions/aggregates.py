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
"""The package of aggregates in the vendor's language; here they are known without `using`."""


def is_aggregate(inferring: Inferring, node: ast.Call) -> bool:
    """Whether a call is one of an aggregate, with or without its package."""
    text = node.name.text
    if node.receiver is not None:
        path = path_of(node.receiver)
        return path is not None and path.text == PACKAGE and text in AGGREGATES and not inferring.scope.has("com")
    return text.removeprefix(f"{PACKAGE}.") in AGGREGATES


def aggregate(inferring: Inferring, node: ast.Call) -> Expression | None:
    """Check an aggregate and its arguments, which have their own scope."""
    name = ast.Name(node.name.text.rpartition(".")[2], node.name.span)
    scope = inferring.scope.aggregates
    if isinstance(scope, Mistake):
        return inferring.report(QueryError.of(scope, name.span, name=name.text))
    rule = AGGREGATES[name.text]
    count = len(node.arguments)
    inside = inferring.within(scope)
    arguments = [inside.typed(argument) for argument in node.arguments]
    if not rule.required <= count <= len(rule.takes):
        return inferring.report(wrong_count(name.span, name.text, rule.required, len(rule.takes), count))
    values = tuple(value for value in arguments if value is not None)
    if len(values) < count:
        return None
    types = [type_of(value) for value in values]
    result = aggregate_result(name.text, types)
    if result is None:
        found = listed(map(str, types))
        return inferring.report(QueryError.of(Mistake.AGGREGATE_TYPES, node.span, name=name.text, found=found))
    return Aggregate(result, name.text, values)
