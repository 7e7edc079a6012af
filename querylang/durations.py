"""Durations and counts: constants of the text, as microseconds and whole numbers.

Takes what stands behind `within`, `wait`, `retain`; gives a number, or None with its mistake told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Constants:
    """Reads constants; mistakes go into `mistakes`. `silent`: names about whose use nothing is said."""

    mistakes: list[QueryError]
    silent: frozenset[str]

    def microseconds(self, node: ast.Duration, what: str) -> int | None:
        """A duration greater than 0; numbers without a unit are seconds. `what`: how messages call it."""
        if isinstance(node, ast.TimeLiteral):
            length = self._of_units(node)
        else:
            number = self._constant(node, what)
            length = None if number is None else _of_seconds(number)
        if length is None:
            return None
        if abs(length) > LONGEST:
            self.mistakes.append(QueryError.of(Mistake.DURATION_RANGE, node.span))
            return None
        return self._positive(round(length), what, node.span)

    def count(self, node: ast.Expression, what: str) -> int | None:
        """A whole number greater than 0."""
        number = self._constant(node, what)
        if number is None:
            return None
        if isinstance(number, float):
            self._wrong_type(node, what, "integer", "float")
            return None
        return self._positive(number, what, node.span)

    def _positive(self, number: int, what: str, span: Span) -> int | None:
        if number > 0:
            return number
        self.mistakes.append(QueryError.of(Mistake.NOT_POSITIVE, span, what=what))
        return None

    def _of_units(self, node: ast.TimeLiteral) -> Fraction | None:
        """The sum of a time literal's parts; None if a unit is unknown, stands twice or after a smaller one."""
        total = Fraction(0)
        before: ast.Name | None = None
        is_right = True
        for number, unit in node.parts:
            mistake = _wrong_unit(unit, before)
            if mistake is not None:
                self.mistakes.append(mistake)
                is_right = False
                continue
            before = unit
            assert not isinstance(number.value, str), "the grammar allows numbers only"
            total += _of_seconds(number.value) * UNITS[unit.text] / SECOND
        return total if is_right else None

    def _constant(self, node: ast.Expression, what: str) -> int | float | None:
        """A constant number; names are refused."""

        def missing(name: ast.Name) -> QueryError | None:
            if name.text in self.silent:
                return None
            return QueryError.of(Mistake.NOT_CONSTANT, name.span, what=what, name=name.text)

        typed = Inference(Scope(missing), self.mistakes).value(node)
        if typed is None:
            return None
        if typed.type not in {Type.INTEGER, Type.FLOAT}:
            self._wrong_type(node, what, "a number", str(typed.type))
            return None
        try:
            return _evaluated(typed)
        except (ArithmeticError, ValueError):
            self.mistakes.append(QueryError.of(Mistake.NO_VALUE, node.span, what=what))
            return None

    def _wrong_type(self, node: ast.Expression, what: str, expected: str, found: str) -> None:
        mistake = QueryError.of(Mistake.EXPECTED_TYPE, node.span, what=what, expected=expected, found=found)
        self.mistakes.append(mistake)


def _wrong_unit(unit: ast.Name, before: ast.Name | None) -> QueryError | None:
    length = UNITS.get(unit.text)
    if length is None:
        return QueryError.of(Mistake.UNKNOWN_UNIT, unit.span, name=unit.text).suggesting(unit.text, UNITS)
    if before is not None and length == UNITS[before.text]:
        return QueryError.of(Mistake.UNIT_TWICE, unit.span, unit=unit.text)
    if before is not None and length > UNITS[before.text]:
        return QueryError.of(Mistake.UNIT_ORDER, unit.span, unit=unit.text, before=before.text)
    return None


def _of_seconds(number: float) -> Fraction:
    return Fraction(number) * SECOND if math.isfinite(number) else Fraction(LONGEST + 1)


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


def _calculated(operator: str, left: float, right: float) -> int | float:
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
