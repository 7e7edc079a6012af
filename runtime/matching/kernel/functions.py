"""Functions of numbers that a program may call: their own numbers, and what they compute.

The results are those of `runtime.interpreter.numbers`, bit for bit, in machine code as in plain
Python: both call the C library, and what Python refuses is decided here before it is called.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from runtime.compiling.compiled import borrowing


class OfFloat(IntEnum):
    """From a float to a float."""

    ABS = 0
    SQRT = 1
    EXP = 2
    LN = 3
    LOG10 = 4
    SIN = 5
    COS = 6
    TAN = 7
    ASIN = 8
    ACOS = 9
    ATAN = 10
    SINH = 11
    COSH = 12
    TANH = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    ERF = 17
    INTEGRAL_PART = 18
    FRACTIONAL_PART = 19


class OfFloats(IntEnum):
    """From two floats to a float."""

    MIN = 0
    MAX = 1
    POW = 2
    ATAN2 = 3


class OfInteger(IntEnum):
    """From an integer to an integer or a boolean."""

    ABS = 0
    BITS_NOT = 1
    NEVER = 2
    ALWAYS = 3


class OfIntegers(IntEnum):
    """From two integers to an integer."""

    MIN = 0
    MAX = 1
    POW = 2
    BITS_AND = 3
    BITS_OR = 4
    BITS_XOR = 5


class ToInteger(IntEnum):
    """From a float to an integer or a boolean; the first ones have no value for some floats."""

    FLOOR = 0
    CEIL = 1
    ROUND = 2
    IS_NAN = 3
    IS_FINITE = 4
    IS_INFINITE = 5


LEAST_INTEGER, ABOVE_INTEGERS = -9223372036854775808.0, 9223372036854775808.0
"""A float can become an integer if it is at least the first and below the second."""

_LARGEST_EXPONENT = 709.782712893384
"""Of the largest float that `exp` can give."""

_LARGEST_HYPERBOLIC = 710.4758600739439
"""The same for `sinh` and `cosh`."""


@borrowing
def of_float(function: int, x: float) -> float:
    """The value of an `OfFloat`; NaN outside of its domain."""
    result = math.nan
    if function == OfFloat.ABS:
        result = abs(x)
    elif function == OfFloat.SQRT:
        result = math.sqrt(x) if x >= 0.0 else math.nan
    elif function <= OfFloat.LOG10:
        result = _exponential(function, x)
    elif function <= OfFloat.TAN:
        result = _angular(function, x)
    elif function <= OfFloat.ATAN:
        result = _inverse(function, x)
    elif function <= OfFloat.ATANH:
        result = _hyperbolic(function, x)
    elif function == OfFloat.ERF:
        result = math.erf(x)
    else:
        result = _part(function, x)
    return result


@borrowing
def _exponential(function: int, x: float) -> float:
    result = math.nan
    if function == OfFloat.EXP:
        result = math.inf if x > _LARGEST_EXPONENT else math.exp(x)
    elif x == 0.0:
        result = -math.inf
    elif x > 0.0:
        result = math.log(x) if function == OfFloat.LN else math.log10(x)
    return result


@borrowing
def _angular(function: int, x: float) -> float:
    result = math.nan
    if math.isfinite(x):
        if function == OfFloat.SIN:
            result = math.sin(x)
        elif function == OfFloat.COS:
            result = math.cos(x)
        else:
            result = math.tan(x)
    return result


@borrowing
def _inverse(function: int, x: float) -> float:
    result = math.nan
    if function == OfFloat.ATAN:
        result = math.atan(x)
    elif abs(x) <= 1.0:
        result = math.asin(x) if function == OfFloat.ASIN else math.acos(x)
    return result


@borrowing
def _hyperbolic(function: int, x: float) -> float:
    result = math.nan
    if function == OfFloat.SINH:
        result = math.copysign(math.inf, x) if abs(x) > _LARGEST_HYPERBOLIC else math.sinh(x)
    elif function == OfFloat.COSH:
        result = math.inf if abs(x) > _LARGEST_HYPERBOLIC else math.cosh(x)
    elif function == OfFloat.TANH:
        result = math.tanh(x)
    elif function == OfFloat.ASINH:
        result = math.asinh(x)
    elif function == OfFloat.ACOSH:
        result = math.acosh(x) if x >= 1.0 else math.nan
    elif abs(x) == 1.0:
        result = math.copysign(math.inf, x)
    elif abs(x) < 1.0:
        result = math.atanh(x)
    return result


@borrowing
def _part(function: int, x: float) -> float:
    result = x
    if function == OfFloat.INTEGRAL_PART:
        result = float(np.trunc(x))
    elif math.isinf(x):
        result = math.copysign(0.0, x)
    elif not math.isnan(x):
        result = math.copysign(x - np.trunc(x), x)
    return result


@borrowing
def of_floats(function: int, x: float, y: float) -> float:
    """The value of an `OfFloats`."""
    result = x
    if function == OfFloats.MIN:
        result = y if y < x or math.isnan(y) else x
    elif function == OfFloats.MAX:
        result = y if y > x or math.isnan(y) else x
    elif function == OfFloats.POW:
        result = x**y
    else:
        result = math.atan2(x, y)
    return result


@borrowing
def of_integer(function: int, a: int) -> int:
    """The value of an `OfInteger`."""
    result = a
    if function == OfInteger.ABS:
        result = -a if a < 0 else a
    elif function == OfInteger.BITS_NOT:
        result = ~a
    else:
        result = function - OfInteger.NEVER
    return result


@borrowing
def of_integers(function: int, a: int, b: int) -> int:
    """The value of an `OfIntegers`; 0 where it has none."""
    result = a
    if function == OfIntegers.MIN:
        result = min(a, b)
    elif function == OfIntegers.MAX:
        result = max(a, b)
    elif function == OfIntegers.POW:
        result = _power(a, b)
    elif function == OfIntegers.BITS_AND:
        result = a & b
    elif function == OfIntegers.BITS_OR:
        result = a | b
    else:
        result = a ^ b
    return result


@borrowing
def have_value(function: int, a: int, b: int) -> bool:
    """Whether an `OfIntegers` has a value: a power of zero with a negative exponent has none."""
    return function != OfIntegers.POW or a != 0 or b >= 0


@borrowing
def _power(base: int, exponent: int) -> int:
    """The wrapped power; for a negative exponent its integer part."""
    result = 1
    if exponent < 0:
        result = 0
        if base in (1, -1):
            result = base if exponent % 2 != 0 else 1
        exponent = 0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@borrowing
def has_integer(function: int, x: float) -> bool:
    """Whether a `ToInteger` has a value."""
    result = True
    if function <= ToInteger.ROUND:
        result = LEAST_INTEGER <= _near(function, x) < ABOVE_INTEGERS
    return result


@borrowing
def to_integer(function: int, x: float) -> int:
    """The value of a `ToInteger` that has one."""
    result = 0
    if function <= ToInteger.ROUND:
        result = int(np.int64(_near(function, x)))
    elif function == ToInteger.IS_NAN:
        result = int(math.isnan(x))
    elif function == ToInteger.IS_FINITE:
        result = int(math.isfinite(x))
    else:
        result = int(math.isinf(x))
    return result


@borrowing
def _near(function: int, x: float) -> float:
    """The whole number next to a float; halves are rounded away from zero."""
    near = float(np.trunc(x))
    if function == ToInteger.FLOOR:
        near = float(np.floor(x))
    elif function == ToInteger.CEIL:
        near = float(np.ceil(x))
    elif abs(x - near) >= 0.5:
        near += math.copysign(1.0, x)
    return near


@borrowing
def bit_equals(x: float, y: float) -> bool:
    """Whether two floats are the same; NaN equals itself, -0.0 not 0.0."""
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1.0, x) == math.copysign(1.0, y))
