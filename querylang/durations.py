"""Durations and counts: constants of the text, as microseconds and whole numbers.

Takes what stands behind `within`, `wait`, `retain`; gives a number, or None with its mistake told.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import assert_never

from querylang import ast
from querylang.errors import Mistake, QueryError
from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary
from querylang.inference import Inference, Scope
from querylang.source import Span
from querylang.types import UNITS

SECOND = 1_000_000
LONGEST = 100_000 * 365 * 86_400 * SECOND
"""Microseconds; a time and a duration together fit 64 bits."""


def microseconds(node: ast.Duration, what: str, mistakes: list[QueryError]) -> int | None:
    """A duration greater than 0; numbers without a unit are seconds. `what`: how messages call it."""
    if isinstance(node, ast.TimeLiteral):
        exact = _of_units(node, mistakes)
        length = None if exact is None else exact
    else:
        number = _constant(node, what, mistakes)
        length = None if number is None else _of_seconds(number)
    if length is None:
        return None
    if abs(length) > LONGEST:
        mistakes.append(QueryError.of(Mistake.DURATION_RANGE, node.span))
        return None
    return _positive(round(length), what, node.span, mistakes)


def count(node: ast.Expression, what: str, mistakes: list[QueryError]) -> int | None:
    """A whole number greater than 0."""
    number = _constant(node, what, mistakes)
    if number is None:
        return None
    if isinstance(number, float):
        facts = {"what": what, "expected": "integer", "found": "float"}
        mistakes.append(QueryError.of(Mistake.EXPECTED_TYPE, node.span, **facts))
        return None
    return _positive(number, what, node.span, mistakes)


def _positive(number: int, what: str, span: Span, mistakes: list[QueryError]) -> int | None:
    if number > 0:
        return number
    mistakes.append(QueryError.of(Mistake.NOT_POSITIVE, span, what=what))
    return None


def _of_seconds(number: int | float) -> Fraction:
    return Fraction(number) * SECOND if math.isfinite(number) else Fraction(LONGEST + 1)


def _of_units(node: ast.TimeLiteral, mistakes: list[QueryError]) -> Fraction | None:
    """The sum of a time literal's parts; None if a unit is unknown, stands twice or after a smaller one."""
    total = Fraction(0)
    before: ast.Name | None = None
    known = len(mistakes)
    for number, unit in node.parts:
        length = UNITS.get(unit.text)
        if length is None:
            mistakes.append(QueryError.of(Mistake.UNKNOWN_UNIT, unit.span, name=unit.text, near=UNITS))
            continue
        if before is not None and length == UNITS[before.text]:
            mistakes.append(QueryError.of(Mistake.UNIT_TWICE, unit.span, unit=unit.text))
        elif before is not None and length > UNITS[before.text]:
            mistakes.append(QueryError.of(Mistake.UNIT_ORDER, unit.span, unit=unit.text, before=before.text))
        before = unit
        assert not isinstance(number.value, str), "the grammar allows numbers only"
        total += _of_seconds(number.value) * length / SECOND
    return total if len(mistakes) == known else None


def _constant(node: ast.Expression, what: str, mistakes: list[QueryError]) -> int | float | None:
    """A constant number; names are refused."""

    def missing(name: ast.Name) -> QueryError:
        return QueryError.of(Mistake.NOT_CONSTANT, name.span, what=what, name=name.text)

    typed = Inference(Scope(missing), mistakes).value(node)
    if typed is None:
        return None
    if typed.type not in {Type.INTEGER, Type.FLOAT}:
        facts = {"what": what, "expected": "a number", "found": str(typed.type)}
        mistakes.append(QueryError.of(Mistake.EXPECTED_TYPE, node.span, **facts))
        return None
    try:
        return _evaluated(typed)
    except (ArithmeticError, ValueError):
        mistakes.append(QueryError.of(Mistake.NOT_POSITIVE, node.span, what=what))
        return None


def _evaluated(node: Expression) -> int | float:
    """The value of a constant number expression; raises ArithmeticError or ValueError where there is none."""
    match node:
        case Literal(value=value):
            assert not isinstance(value, str), "only numbers are evaluated"
            return value
        case Unary(operand=operand):
            return -_evaluated(operand)
        case Binary(operator=operator, left=left, right=right):
            return _calculated(operator, _evaluated(left), _evaluated(right))
        case Call(method="toInteger", receiver=receiver):
            return int(_evaluated(receiver))
        case Call(receiver=receiver):
            return float(_evaluated(receiver))
        case FieldOf() | EventText():
            raise AssertionError("constants mention no event")
    assert_never(node)


def _calculated(operator: str, left: int | float, right: int | float) -> int | float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if isinstance(left, int) and isinstance(right, int):
            return int(Fraction(left, right))
        case "/":
            return left / right
        case "%" if isinstance(left, int) and isinstance(right, int):
            return left - right * int(Fraction(left, right))
        case "%":
            return math.fmod(left, right)
        case _:
            raise AssertionError(f"{operator} gives no number")
