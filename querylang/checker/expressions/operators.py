"""Check operators; `querylang.plan.library` says which operator takes which types."""

from __future__ import annotations

from querylang.checker.expressions.inference_context import (
    Inferring,
    alike,
    check_untyped,
    is_empty_literal,
    type_of,
)
from querylang.checker.expressions.literals import is_number, negated
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import NUMBERS, Binary, Expression, Kind, Type, Unary
from querylang.plan.library import binary_result, conversion, unary_result
from querylang.syntax import ast

_EQUALITY = ("=", "!=")


def unary(inferring: Inferring, node: ast.Unary) -> Expression | None:
    """Check `-x`, `not x`."""
    if node.operator == "-" and is_number(node.operand):
        return negated(inferring, node)
    operand = inferring.typed(node.operand)
    if operand is None:
        return None
    result = unary_result(node.operator, type_of(operand))
    if result is None:
        facts = {"operator": node.operator, "operand": str(operand.type)}
        return inferring.report(QueryError.of(Mistake.OPERAND_TYPE, node.span, **facts))
    return Unary(result, node.operator, operand)


def binary(inferring: Inferring, node: ast.Binary) -> Expression | None:
    """Check `left operator right`; both sides have one type, or are an integer and a float.

    An empty literal gets the type of the other side.
    """
    left, right = _sides(inferring, node)
    if left is None or right is None:
        return None
    left, right = alike(left, right)
    result = binary_result(node.operator, type_of(left), type_of(right))
    if result is None:
        facts = {"operator": node.operator, "left": str(left.type), "right": str(right.type)}
        mistake = QueryError.of(Mistake.OPERATOR_TYPES, node.span, **facts)
        hint = _decimal_hint(node, left, right) or _hint(node.operator, type_of(left), type_of(right))
        return inferring.report(mistake.with_hint(hint))
    return Binary(result, node.operator, left, right)


def _sides(inferring: Inferring, node: ast.Binary) -> tuple[Expression | None, Expression | None]:
    if is_empty_literal(node.left) and not is_empty_literal(node.right):
        right = inferring.typed(node.right)
        return None if right is None else inferring.typed(node.left, right.type), right
    left = inferring.typed(node.left)
    if left is None:
        return None, check_untyped(inferring, node.right)
    return left, inferring.typed(node.right, left.type)


def _decimal_hint(node: ast.Binary, left: Expression, right: Expression) -> str | None:
    """How a number beside a decimal is written as one; None: it is not that."""
    for number, other in ((node.left, right), (node.right, left)):
        if other.type == Type.DECIMAL and isinstance(number, ast.Constant) and is_number(number):
            span = number.span
            return f"write the number as a decimal, `{span.source.text[span.start : span.end]}d`"
    return None


def _hint(operator: str, left: Type, right: Type) -> str | None:
    """A hint how to convert one side to the other's type."""
    for found, wanted in ((left, right), (right, left)):
        if found.kind is Kind.OPTIONAL and found.of[0] == wanted:
            return "what may be unset is read in `ifpresent` or with `.getOrThrow()`"
        if wanted == Type.STRING and operator == "+":
            return conversion(found, wanted)
    if left in NUMBERS and right in NUMBERS and left != right:
        found, wanted = sorted((left, right), key=NUMBERS.index)
        return conversion(found, wanted)
    if operator in _EQUALITY and Type.STRING in (left, right):
        return conversion(left if right == Type.STRING else right, Type.STRING)
    return None
