"""Operators and methods of decimals: exact numbers below 1e20 with 18 decimal places.

This is what decimal(38, 18) of Arrow and Spark holds. Results are rounded to 18 places, half to
even. There are no infinities and no NaN: a result that is too large or undefined fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import (
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from functools import reduce
from typing import Any

from querylang.plan.library import DECIMAL_LIMIT, DECIMAL_PLACES
from runtime.interpreter.numbers import larger, smaller, whole
from runtime.interpreter.values import EvaluationError, decimal_text, fixed_text, floating_text, scientific_text

_STEP = Decimal(1).scaleb(-DECIMAL_PLACES)
_CONTEXT = Context(prec=100, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])
"""With 100 digits sums, differences and products are exact, and a quotient is not rounded twice."""


def decimal(value: Decimal) -> Decimal:
    """The number rounded to 18 places; EvaluationError if it is too large or not finite."""
    if not value.is_finite() or value.copy_abs() >= DECIMAL_LIMIT:
        raise EvaluationError(_out_of_range(value))
    rounded = value.quantize(_STEP, context=_CONTEXT)
    if rounded.copy_abs() >= DECIMAL_LIMIT:
        raise EvaluationError(_out_of_range(value))
    return rounded or rounded.copy_abs()


def _out_of_range(value: Decimal) -> str:
    number = math.nan if value.is_snan() else float(value)
    return f"{number:.6g} is out of the range of decimals"


def of_text(text: str) -> Decimal:
    """The number that is written; EvaluationError if it is too large, or not a number."""
    try:
        return decimal(Decimal(text))
    except DecimalException as error:  # an exponent has more than 18 digits
        raise EvaluationError(f"{text[:40]} is out of the range of decimals") from error


def _operator(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Decimal, Decimal], Decimal]:
    return lambda left, right: decimal(operation(left, right))


def _division(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Decimal, Decimal], Decimal]:
    def divided(left: Decimal, right: Decimal) -> Decimal:
        if not right:
            raise EvaluationError("decimal division by zero")
        return decimal(operation(left, right))

    return divided


DECIMAL_OPERATORS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _operator(_CONTEXT.add),
    "-": _operator(_CONTEXT.subtract),
    "*": _operator(_CONTEXT.multiply),
    "/": _division(_CONTEXT.divide),
    "%": _division(_CONTEXT.remainder),
}


def total(values: Iterable[Decimal]) -> Decimal:
    """The exact sum; EvaluationError if it is too large."""
    return decimal(reduce(_CONTEXT.add, values))


def negated(value: Decimal) -> Decimal:
    """`-value`; zero has no sign."""
    return value.copy_negate() if value else value


def of_integer(value: int) -> Decimal:
    """An integer as a decimal."""
    return decimal(Decimal(value))


def of_float(value: float) -> Decimal:
    """The decimal with the digits of the float's shortest text; EvaluationError if not finite."""
    if not math.isfinite(value):
        raise EvaluationError(f"{floating_text(value)} is not a decimal")
    return decimal(Decimal(repr(value)))


def _whole(rounding: Callable[[Decimal], int]) -> Callable[[Decimal], int]:
    return lambda value: whole(rounding(value))


def _nearest(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))


def _function(name: str, function: Callable[..., Decimal]) -> Callable[..., Decimal]:
    """A function of Python's decimals that fails with its own name outside of its domain."""

    def safe(*values: Decimal) -> Decimal:
        try:
            return decimal(function(*values))
        except DecimalException as error:
            raise EvaluationError(f"{name}({', '.join(map(decimal_text, values))}) has no value") from error

    return safe


def _logarithm(name: str, function: Callable[[Decimal], Decimal]) -> Callable[[Decimal], Decimal]:
    def positive(value: Decimal) -> Decimal:
        if value <= 0:
            raise EvaluationError(f"{name}({decimal_text(value)}) has no value")
        return decimal(function(value))

    return positive


def _fraction(value: Decimal) -> Decimal:
    return decimal(_CONTEXT.subtract(value, Decimal(int(value))))


DECIMAL_METHODS: dict[str, Callable[..., Any]] = {
    "abs": Decimal.copy_abs,
    "min": smaller,
    "max": larger,
    "pow": _function("pow", _CONTEXT.power),
    "ceil": _whole(math.ceil),
    "floor": _whole(math.floor),
    "round": _whole(_nearest),
    "toInteger": _whole(int),
    "toFloat": float,
    "toDecimal": decimal,
    "isNaN": lambda _value: False,
    "isFinite": lambda _value: True,
    "isInfinite": lambda _value: False,
    "sqrt": _function("sqrt", _CONTEXT.sqrt),
    "exp": _function("exp", _CONTEXT.exp),
    "ln": _logarithm("ln", _CONTEXT.ln),
    "log": _logarithm("log", _CONTEXT.ln),
    "log10": _logarithm("log10", _CONTEXT.log10),
    "integralPart": lambda value: decimal(Decimal(int(value))),
    "fractionalPart": _fraction,
    "bitEquals": lambda left, right: left == right,
    "formatFixed": fixed_text,
    "formatScientific": scientific_text,
}
