"""Operators and methods of integers and floats.

Integers have 64 bits and wrap. `/` truncates toward zero, `%` has the sign of its left side, and
division by zero fails. Floats are IEEE doubles: `1.0 / 0.0` is an infinity, comparisons with NaN
are false except `!=`, and functions give NaN outside of their domain. Converting a float fails if
no integer can hold the result.
"""

from __future__ import annotations

import math
import operator as operators
import struct
from collections.abc import Callable
from typing import Any

from querylang.plan.library import LARGEST_INTEGER, SMALLEST_INTEGER
from runtime.interpreter.values import EvaluationError, fixed_text, floating_text, scientific_text


def wrap(value: int) -> int:
    """The 64-bit integer to which the result of an operation overflows."""
    if SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        return value
    return (value - SMALLEST_INTEGER) % 2**64 + SMALLEST_INTEGER


def whole(value: int) -> int:
    """The result of a conversion; EvaluationError if no 64-bit integer can hold it."""
    if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        raise EvaluationError(f"{value} is out of the range of integers")
    return value


def _quotient(left: int, right: int) -> int:
    """Truncated toward zero, wrapped."""
    if right == 0:
        raise EvaluationError("integer division by zero")
    quotient = abs(left) // abs(right)
    return wrap(quotient if (left < 0) == (right < 0) else -quotient)


def _integer_remainder(left: int, right: int) -> int:
    """The remainder of `/`, with the sign of the left side."""
    if right == 0:
        raise EvaluationError("integer division by zero")
    size = abs(left) % abs(right)
    return -size if left < 0 else size


def _divided(left: float, right: float) -> float:
    return left / right if right != 0.0 else _divided_by_zero(left, right)


def _divided_by_zero(left: float, zero: float) -> float:
    """As IEEE 754: an infinity with the sign of both sides, or NaN."""
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, zero)


def remainder(left: float, right: float) -> float:
    """C's `fmod`: NaN if the left side is infinite or the right side is zero."""
    return math.fmod(left, right) if right != 0.0 and math.isfinite(left) else math.nan


def truncated(value: float) -> int:
    """The integer part."""
    if not math.isfinite(value):
        raise EvaluationError(f"{floating_text(value)} is not an integer")
    return whole(int(value))


def rounded(value: float) -> int:
    """The nearest integer; halves are rounded away from zero."""
    if not math.isfinite(value):
        raise EvaluationError(f"{floating_text(value)} is not an integer")
    nearest = math.trunc(value)
    if abs(value - nearest) >= 0.5:
        nearest += 1 if value > 0 else -1
    return whole(nearest)


def _to_integer(function: Callable[[float], int]) -> Callable[[float], int]:
    """`ceil` or `floor` with our errors for infinities and NaN."""

    def checked(value: float) -> int:
        return whole(function(value)) if math.isfinite(value) else truncated(value)

    return checked


def integer_power(base: int, exponent: int) -> int:
    """The wrapped power; for a negative exponent its integer part."""
    if exponent >= 0:
        return wrap(pow(base, exponent, 2**64))
    if base == 0:
        raise EvaluationError("integer division by zero")
    return (base if exponent % 2 else 1) if abs(base) == 1 else 0


def float_power(base: float, exponent: float) -> float:
    """C's `pow`, which gives infinities and NaN where Python raises."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0.0 and exponent % 2.0 == 1.0 else math.inf
    except ValueError:
        if base != 0.0:
            return math.nan
        return math.copysign(math.inf, base) if exponent % 2.0 == 1.0 else math.inf


def smaller(left: Any, right: Any) -> Any:
    """The smaller number; NaN if one is NaN, the left one if both are equal."""
    return right if right < left or math.isnan(right) else left


def larger(left: Any, right: Any) -> Any:
    """The larger number; NaN if one is NaN, the left one if both are equal."""
    return right if right > left or math.isnan(right) else left


def _function(function: Callable[[float], float], overflow: float = math.inf) -> Callable[[float], float]:
    """A function of `math` that gives NaN or an infinity, as C does, instead of raising."""

    def safe(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return overflow if value > 0 else -overflow
        except ValueError:
            return math.nan

    return safe


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    safe = _function(function)
    return lambda value: -math.inf if value == 0.0 else safe(value)


def _inverse_tangent(value: float) -> float:
    """The inverse hyperbolic tangent; infinite at 1.0 and -1.0."""
    return math.copysign(math.inf, value) if abs(value) == 1.0 else _function(math.atanh)(value)


def _same_bits(left: float, right: float) -> bool:
    return (math.isnan(left) and math.isnan(right)) or struct.pack("<d", left) == struct.pack("<d", right)


def _mantissa(value: float) -> float:
    return math.frexp(value)[0]


def _exponent(value: float) -> int:
    if not math.isfinite(value):
        raise EvaluationError(f"{floating_text(value)} has no exponent")
    return math.frexp(value)[1]


def _integral(value: float) -> float:
    return math.modf(value)[1] if math.isfinite(value) else value


def _fraction(value: float) -> float:
    return math.modf(value)[0]


def of_float(function: Callable[[float], float]) -> Callable[[int], float]:
    """A function of floats applied to integers."""
    return lambda value: function(float(value))


INTEGER_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: wrap(left + right),
    "-": lambda left, right: wrap(left - right),
    "*": lambda left, right: wrap(left * right),
    "/": _quotient,
    "%": _integer_remainder,
    "and": operators.and_,
    "or": operators.or_,
    "xor": operators.xor,
}

FLOAT_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": _divided,
    "%": remainder,
}

_EXP = _function(math.exp, math.inf)
_LN, _LOG10, _SQRT = _logarithm(math.log), _logarithm(math.log10), _function(math.sqrt)

FLOAT_METHODS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": smaller,
    "max": larger,
    "pow": float_power,
    "ceil": _to_integer(math.ceil),
    "floor": _to_integer(math.floor),
    "round": rounded,
    "toInteger": truncated,
    "toFloat": float,
    "isNaN": math.isnan,
    "isFinite": math.isfinite,
    "isInfinite": math.isinf,
    "sqrt": _SQRT,
    "exp": _EXP,
    "ln": _LN,
    "log": _LN,
    "log10": _LOG10,
    "sin": _function(math.sin),
    "cos": _function(math.cos),
    "tan": _function(math.tan),
    "asin": _function(math.asin),
    "acos": _function(math.acos),
    "atan": math.atan,
    "atan2": math.atan2,
    "sinh": _function(math.sinh),
    "cosh": lambda value: _function(math.cosh)(abs(value)),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _function(math.acosh),
    "atanh": _inverse_tangent,
    "cbrt": math.cbrt,
    "erf": math.erf,
    "fmod": remainder,
    "exponent": _exponent,
    "mantissa": _mantissa,
    "integralPart": _integral,
    "fractionalPart": _fraction,
    "bitEquals": _same_bits,
    "formatFixed": fixed_text,
    "formatScientific": scientific_text,
}

INTEGER_METHODS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: wrap(abs(value)),
    "min": smaller,
    "max": larger,
    "pow": integer_power,
    **dict.fromkeys(("ceil", "floor", "round", "toInteger"), int),
    "toFloat": float,
    "isNaN": lambda _value: False,
    "isFinite": lambda _value: True,
    "isInfinite": lambda _value: False,
    "sqrt": of_float(_SQRT),
    "exp": of_float(_EXP),
    "ln": of_float(_LN),
    "log": of_float(_LN),
    "log10": of_float(_LOG10),
}
