"""What constant expressions are worth: of numbers that the text holds, or that parameters brought.

Takes typed expressions in which no event, key or parameter is left; gives Python's value, or raises `NoValueError` with the
reason. Only what durations, counts and ranges are made of is known here: arithmetic, comparisons and conversions of
numbers. It means what it means everywhere: integers are 64-bit and wrap, their division truncates toward zero, `%`
takes the sign of the left side, floats are IEEE doubles, decimals are exact to 18 places.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any

from querylang.expression import Binary, Call, Expression, Literal, Unary, children, walk
from querylang.types import DECIMAL_LIMIT, DECIMAL_PLACES, SMALLEST_INTEGER
from querylang.value_types import Type

Value = bool | int | float | Decimal | str

SECOND = 1_000_000
LONGEST = 100_000 * 365 * 86_400 * SECOND
"""Microseconds; a time and a duration together fit 64 bits."""

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_LAST_PLACE = Decimal(1).scaleb(-DECIMAL_PLACES)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONVERSIONS = ("toFloat", "toInteger", "toDecimal")
_CHOICES: dict[str, Callable[[Any, Any], Any]] = {"min": min, "max": max}


class NoValueError(Exception):
    """An expression without a value; its text says why, for the user."""


class WrongNumberError(Exception):
    """A duration or count that no window or wait can have; its text says what is wrong."""


def is_constant(node: Expression) -> bool:
    """Whether the expression mentions nothing but literals."""
    return all(isinstance(leaf, Literal) for leaf in walk(node) if not children(leaf))


def value_of(node: Expression) -> Value:
    """The value of a constant expression. Raises NoValueError."""
    match node:
        case Literal(value=value):
            return value
        case Unary(operator="-", operand=operand):
            return _fitting(node.type, _number(operand).__neg__())
        case Binary(operator=sign, left=left, right=right) if sign in _COMPARISONS:
            return _COMPARISONS[sign](value_of(left), value_of(right))
        case Binary(operator=sign, type=type_, left=left, right=right) if type_ != Type.STRING:
            return _fitting(type_, _calculated(sign, _number(left), _number(right)))
        case Call(method=method, receiver=receiver, arguments=()) if method in _CONVERSIONS:
            return _fitting(node.type, _converted(node.type, _number(receiver)))
        case Call(method="abs", receiver=receiver, arguments=()):
            return _fitting(node.type, abs(_number(receiver)))
        case Call(method=method, receiver=receiver, arguments=(other,)) if method.rpartition(".")[2] in _CHOICES:
            return _chosen(method.rpartition(".")[2], _number(receiver), _number(other))
    raise NoValueError("only numbers, parameters, arithmetic and conversions can stand here")


def number_of(node: Expression) -> int | float:
    """The value of a constant integer or float. Raises NoValueError."""
    number = value_of(node)
    assert isinstance(number, int | float), "durations and counts are integers or floats"
    return number


def microseconds_of(node: Expression) -> int:
    """A duration in constant seconds. Raises NoValueError; WrongNumberError if not greater than 0, or too long."""
    seconds = number_of(node)
    length = of_seconds(seconds)
    if abs(length) > LONGEST:
        raise WrongNumberError(f"must not be longer than 100,000 years, but is {seconds} seconds")
    if round(length) <= 0:
        raise WrongNumberError(f"must be greater than 0, but is {seconds} seconds")
    return round(length)


def count_of(node: Expression) -> int:
    """A constant count. Raises NoValueError; WrongNumberError if it is not greater than 0."""
    number = number_of(node)
    if number <= 0:
        raise WrongNumberError(f"must be greater than 0, but is {number}")
    return int(number)


def decimal_of(number: Decimal) -> Decimal:
    """The decimal of the language that is nearest. Raises NoValueError."""
    if not number.is_finite() or abs(number) >= DECIMAL_LIMIT:
        raise NoValueError(f"{number} is too large for a decimal")
    return number.quantize(_LAST_PLACE, context=_EXACT)


def of_seconds(number: float) -> Fraction:
    """Microseconds, exactly; what is not finite is longer than anything that is allowed."""
    return Fraction(number) * SECOND if math.isfinite(number) else Fraction(LONGEST + 1)


def _number(node: Expression) -> Any:
    value = value_of(node)
    if isinstance(value, str | bool):
        raise NoValueError("only numbers can be calculated with here")
    return value


def _calculated(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return _of_floats(sign, left, right)
    match sign:
        case "+":
            return _EXACT.add(left, right) if isinstance(left, Decimal) else left + right
        case "-":
            return _EXACT.subtract(left, right) if isinstance(left, Decimal) else left - right
        case "*":
            return _EXACT.multiply(left, right) if isinstance(left, Decimal) else left * right
    if right == 0:
        raise NoValueError("it divides by zero")
    if isinstance(left, Decimal):
        return _EXACT.divide(left, right) if sign == "/" else _EXACT.remainder(left, right)
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if sign == "/" else left - quotient * right


def _of_floats(sign: str, left: float, right: float) -> float:
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right != 0.0:
            return left / right
        case "%" if right != 0.0 and math.isfinite(left):
            return math.fmod(left, right)
    if sign == "%" or left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _converted(wanted: Type, value: Any) -> Any:
    if wanted == Type.FLOAT:
        return float(value)
    if not math.isfinite(value):
        raise NoValueError(f"{value} is no {wanted}")
    return int(value) if wanted == Type.INTEGER else Decimal(value)


def _chosen(method: str, left: Any, right: Any) -> Any:
    """The smaller or larger one; NaN if one is."""
    is_nan = any(isinstance(side, float) and math.isnan(side) for side in (left, right))
    return math.nan if is_nan else _CHOICES[method](left, right)


def _fitting(type_: Type | None, value: Any) -> Any:
    """The value within the bounds of its type: integers wrap in calculations, decimals are rounded."""
    if type_ == Type.INTEGER:
        return (value - SMALLEST_INTEGER) % (1 << 64) + SMALLEST_INTEGER
    return decimal_of(value) if type_ == Type.DECIMAL else value
