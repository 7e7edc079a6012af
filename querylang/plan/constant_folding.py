"""Evaluate constant expressions: numbers of the text, and values of parameters.

Only what durations, counts and ranges consist of is supported: arithmetic, comparisons and
conversions of numbers. They mean the same as everywhere. Integers are 64-bit and wrap; their
division truncates toward zero; `%` takes the sign of the left side. Floats are IEEE doubles;
decimals are exact to 18 places.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any

from querylang.plan.expression import (
    NUMBERS,
    Binary,
    Call,
    Expression,
    Literal,
    ParameterOf,
    Type,
    Unary,
    children,
    walk,
)
from querylang.plan.library import ARITHMETIC, DECIMAL_LIMIT, DECIMAL_PLACES, LARGEST_INTEGER, SMALLEST_INTEGER

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


class NoValueError(Exception):
    """An expression without a value; the text gives the reason for users."""


class WrongNumberError(Exception):
    """A duration or count that no window or wait can have; the text gives the reason for users."""


def is_constant(node: Expression) -> bool:
    """Whether the expression can be evaluated from literals alone."""
    if isinstance(node, Literal):
        return True
    return is_calculable(node) and not any(isinstance(part, ParameterOf) for part in walk(node))


def is_calculable(node: Expression) -> bool:
    """Whether the expression consists of literals, parameters, and operations supported here."""
    match node:
        case Literal() | ParameterOf():
            return True
        case Unary(operator=sign):
            return sign == "-" and all(map(is_calculable, children(node)))
        case Binary(operator=sign, left=left):
            is_known = sign in _COMPARISONS or (sign in ARITHMETIC and left.type in NUMBERS)
            return is_known and all(map(is_calculable, children(node)))
        case Call(method=method, receiver=receiver):
            is_known = method.rpartition(".")[2] in _METHODS and receiver.type in NUMBERS
            return is_known and all(map(is_calculable, children(node)))
        case _:
            return False


def value_of(node: Expression) -> Value:
    """The value of a constant expression. Raises NoValueError."""
    if isinstance(node, Literal):
        return node.value
    match node:
        case Unary(operand=operand):
            return _fitting(node.type, -_number(operand))
        case Binary(operator=sign, left=left, right=right) if sign in _COMPARISONS:
            return _COMPARISONS[sign](value_of(left), value_of(right))
        case Binary(operator=sign, left=left, right=right):
            return _fitting(node.type, _calculated(sign, _number(left), _number(right)))
        case Call(method=method, receiver=receiver, arguments=arguments):
            values = [_number(part) for part in (receiver, *arguments)]
            return _fitting(node.type, _METHODS[method.rpartition(".")[2]](*values))
    raise AssertionError("only constants are evaluated")


def number_of(node: Expression) -> int | float:
    """The value of a constant integer or float. Raises NoValueError."""
    number = value_of(node)
    assert isinstance(number, int | float), "durations and counts are integers or floats"
    return number


def microseconds_of(node: Expression) -> int:
    """A duration in constant seconds.

    Raises NoValueError; WrongNumberError if it is not greater than 0, or too long.
    """
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
    """The nearest decimal of the language. Raises NoValueError."""
    if not number.is_finite() or number.copy_abs() >= DECIMAL_LIMIT:
        raise NoValueError(f"{number} is too large for a decimal")
    return number.quantize(_LAST_PLACE, context=_EXACT)


def of_seconds(number: float) -> Fraction:
    """Exact microseconds; infinite and undefined numbers become longer than all that is allowed."""
    return Fraction(number) * SECOND if math.isfinite(number) else Fraction(LONGEST + 1)


def _number(node: Expression) -> Any:
    value = value_of(node)
    assert not isinstance(value, str | bool), "only numbers are calculated with"
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


def _integer(value: Any) -> int:
    if not math.isfinite(value) or not SMALLEST_INTEGER <= int(value) <= LARGEST_INTEGER:
        raise NoValueError(f"{value} is not an integer")
    return int(value)


def _decimal(value: Any) -> Decimal:
    """The decimal with a float's shortest digits: 0.1 is a tenth."""
    return decimal_of(Decimal(repr(value) if isinstance(value, float) else value))


def _smaller(left: Any, right: Any) -> Any:
    return math.nan if _is_nan(left, right) else min(left, right)


def _larger(left: Any, right: Any) -> Any:
    return math.nan if _is_nan(left, right) else max(left, right)


def _is_nan(*values: Any) -> bool:
    return any(isinstance(value, float) and math.isnan(value) for value in values)


_METHODS: dict[str, Callable[..., Any]] = {
    "toFloat": float,
    "toInteger": _integer,
    "toDecimal": _decimal,
    "abs": abs,
    "min": _smaller,
    "max": _larger,
}


def _fitting(type_: Type | None, value: Any) -> Any:
    """The value within the bounds of its type: integers wrap, decimals are rounded."""
    if type_ == Type.INTEGER:
        return (value - SMALLEST_INTEGER) % (1 << 64) + SMALLEST_INTEGER
    return decimal_of(value) if type_ == Type.DECIMAL else value
