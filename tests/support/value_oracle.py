"""An evaluator written apart from the product's: what scalar and decimal expressions are worth, by other means.

Integers are numpy's int64, floats go to the C library by ctypes, decimals are fractions, strings are lists of code points.
It shares no code with `runtime`; what it does not know (`UNKNOWN`) tests leave to other comparisons.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from querylang.plan.expression import Binary, Call, Expression, FieldOf, Literal, Type, Unary, children, walk

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
SCALE = 10**18


class NoValue(Exception):
    """The expression fails."""


def c_function(name: str, arguments: int = 1) -> Callable[..., float]:
    function = getattr(LIBM, name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * arguments
    return lambda *values: float(function(*values))


def whole(value: float | Fraction) -> int:
    """A number without a fraction as an integer, if 64 bits hold it."""
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        raise NoValue
    if not -(1 << 63) <= Fraction(value) < 1 << 63:
        raise NoValue
    return int(Fraction(value))


def exact(value: Fraction) -> Fraction:
    """Rounded to 18 places, half to even, if it is small enough."""
    rounded = Fraction(round(value * SCALE), SCALE)
    if max(abs(value), abs(rounded)) >= 10**20:
        raise NoValue
    return rounded


def integer(operation: Callable[[Any, Any], Any], left: int, right: int) -> int:
    with np.errstate(all="ignore"):
        return int(operation(np.int64(left), np.int64(right)))


def divided(left: int, right: int) -> int:
    if right == 0:
        raise NoValue
    return int(ctypes.c_int64(int(Fraction(left, right))).value)


def left_over(left: int, right: int) -> int:
    if right == 0:
        raise NoValue
    return left - int(Fraction(left, right)) * right


def float_divided(left: float, right: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(left) / np.float64(right))


def fraction_divided(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise NoValue
    return exact(left / right)


def fraction_left_over(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise NoValue
    return exact(left - math.trunc(left / right) * right)


ARITHMETIC: dict[Type, dict[str, Callable[[Any, Any], Any]]] = {
    Type.INTEGER: {
        "+": lambda a, b: integer(np.add, a, b),
        "-": lambda a, b: integer(np.subtract, a, b),
        "*": lambda a, b: integer(np.multiply, a, b),
        "/": divided,
        "%": left_over,
        "and": lambda a, b: integer(np.bitwise_and, a, b),
        "or": lambda a, b: integer(np.bitwise_or, a, b),
        "xor": lambda a, b: integer(np.bitwise_xor, a, b),
    },
    Type.FLOAT: {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": float_divided,
        "%": c_function("fmod", 2),
    },
    Type.DECIMAL: {
        "+": lambda a, b: exact(a + b),
        "-": lambda a, b: exact(a - b),
        "*": lambda a, b: exact(a * b),
        "/": fraction_divided,
        "%": fraction_left_over,
    },
    Type.STRING: {"+": lambda a, b: a + b},
    Type.BOOLEAN: {"xor": lambda a, b: a + b == 1},
}
COMPARISON: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: (a == b) is False,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a < b or a == b,
    ">": lambda a, b: b < a,
    ">=": lambda a, b: b < a or a == b,
}


def float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        return np.format_float_positional(value, unique=True, trim="0")
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=1)


def fraction_text(value: Fraction) -> str:
    digits = f"{abs(int(value * SCALE)):019d}"
    behind = digits[-18:]
    while len(behind) > 1 and behind.endswith("0"):
        behind = behind[:-1]
    return f"{'-' if value < 0 else ''}{digits[:-18]}.{behind}"


def root(value: Fraction) -> Fraction:
    if value < 0:
        raise NoValue
    square = int(value * SCALE * SCALE)
    down = math.isqrt(square)
    return exact(Fraction(down + (square - down * down > down), SCALE))


def power(base: int, exponent: int) -> int:
    if exponent < 0:
        return divided(1, base) if abs(base) != 1 else (base if exponent % 2 else 1)
    result = np.int64(1)
    factor = np.int64(base)
    with np.errstate(all="ignore"):
        while exponent:
            result = result * factor if exponent & 1 else result
            factor, exponent = factor * factor, exponent >> 1
    return int(result)


def position(text: list[int], part: list[int], start: int = 0) -> int:
    if not 0 <= start <= len(text):
        raise NoValue
    places = range(start, len(text) - len(part) + 1)
    return next((place for place in places if text[place : place + len(part)] == part), -1)


def part_of(text: list[int], start: int, end: int | None = None) -> list[int]:
    places = list(range(len(text) + 1))
    end = len(text) if end is None else end
    first, last = (place if place >= 0 else len(text) + place for place in (start, end))
    if first not in places or last not in places or first > last:
        raise NoValue
    return [text[place] for place in places[first:last]]


def trimmed(text: list[int]) -> list[int]:
    return text if not text or text[0] not in (9, 10, 11, 12, 13, 32) else trimmed(text[1:])


def extreme(better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def chosen(left: Any, right: Any) -> Any:
        if left != left or right != right:  # noqa: PLR0124  NaN
            return math.nan
        return right if better(right, left) else left

    return chosen


SMALLER, LARGER = extreme(lambda a, b: a < b), extreme(lambda a, b: a > b)

NUMBER: dict[str, Callable[..., Any]] = {"min": SMALLER, "max": LARGER}


def fits(text: list[int], pattern: list[int]) -> bool:
    try:
        return re.fullmatch(shown(pattern), shown(text)) is not None
    except re.error:
        raise NoValue from None


METHODS: dict[Type, dict[str, Callable[..., Any]]] = {
    Type.INTEGER: {
        **NUMBER,
        "abs": lambda a: integer(np.subtract, 0, a) if a < 0 else a,
        "pow": power,
        **dict.fromkeys(("ceil", "floor", "round", "toInteger", "clone"), lambda a: a),
        "toFloat": lambda a: float(np.int64(a)),
        "toDecimal": Fraction,
        "toString": str,
        "sqrt": lambda a: c_function("sqrt")(float(a)),
        "exp": lambda a: c_function("exp")(float(a)),
        "log10": lambda a: c_function("log10")(float(a)),
        **dict.fromkeys(("ln", "log"), lambda a: c_function("log")(float(a))),
        **dict.fromkeys(("isNaN", "isInfinite"), lambda a: a is None),
        "isFinite": lambda a: a is not None,
    },
    Type.FLOAT: {
        **NUMBER,
        "abs": c_function("fabs"),
        "pow": c_function("pow", 2),
        "atan2": c_function("atan2", 2),
        "fmod": c_function("fmod", 2),
        **{
            name: c_function(name)
            for name in ("sqrt", "exp", "log", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh")
        },
        **{name: c_function(name) for name in ("tanh", "asinh", "acosh", "atanh", "cbrt", "erf")},
        "ln": c_function("log"),
        "ceil": lambda a: whole(c_function("ceil")(a)),
        "floor": lambda a: whole(c_function("floor")(a)),
        "round": lambda a: whole(c_function("round")(a)),
        "toInteger": lambda a: whole(c_function("trunc")(a)),
        "integralPart": c_function("trunc"),
        "toFloat": lambda a: a,
        "clone": lambda a: a,
        "toString": float_text,
        "isNaN": lambda a: not a <= math.inf,
        "isFinite": lambda a: a - a == 0,
        "isInfinite": lambda a: abs(a) == math.inf,
        "bitEquals": lambda a, b: float_text(a) == float_text(b),
    },
    Type.DECIMAL: {
        **NUMBER,
        "abs": abs,
        "ceil": lambda a: whole(Fraction(math.ceil(a))),
        "floor": lambda a: whole(Fraction(math.floor(a))),
        "round": lambda a: whole(Fraction(math.floor(abs(a) + Fraction(1, 2)) * (-1 if a < 0 else 1))),
        "toInteger": lambda a: whole(Fraction(math.trunc(a))),
        "integralPart": lambda a: Fraction(math.trunc(a)),
        "fractionalPart": lambda a: a - math.trunc(a),
        "toFloat": lambda a: a.numerator / a.denominator,
        "toDecimal": lambda a: a,
        "clone": lambda a: a,
        "toString": fraction_text,
        "sqrt": root,
        **dict.fromkeys(("isNaN", "isInfinite"), lambda a: a is None),
        "isFinite": lambda a: a is not None,
        "bitEquals": lambda a, b: a - b == 0,
    },
    Type.STRING: {
        "length": len,
        "isEmpty": lambda text: len(text) == 0,
        "contains": lambda text, part: position(text, part) >= 0,
        "startsWith": lambda text, part: text[: len(part)] == part,
        "endsWith": lambda text, part: part == [] or text[-len(part) :] == part,
        "find": position,
        "findFrom": position,
        "substring": part_of,
        "ltrim": trimmed,
        "rtrim": lambda text: trimmed(text[::-1])[::-1],
        **dict.fromkeys(("toString", "clone", "intern"), lambda text: text),
        "matches": fits,
    },
    Type.BOOLEAN: {"toString": lambda a: ["false", "true"][a], "clone": lambda a: a},
}


def shown(points: list[int]) -> str:
    return "".join(map(chr, points))


def is_known(expression: Expression) -> bool:
    """Whether `oracle` takes the expression."""
    return all(
        isinstance(node, Literal | FieldOf | Unary | Binary)
        or (isinstance(node, Call) and node.method in METHODS.get(node.receiver.type or Type.LOCATION, {}))
        for node in walk(expression)
    )


def inward(value: Any) -> Any:
    """As this evaluator has it."""
    if isinstance(value, str):
        return [ord(character) for character in value]
    return Fraction(value) if isinstance(value, Decimal) else value


def outward(value: Any, type_: Type) -> str:
    """The value as text in which differences show."""
    if type_ == Type.STRING:
        return repr(shown(value) if isinstance(value, list) else value)
    if type_ == Type.DECIMAL:
        return fraction_text(Fraction(value))
    return repr(value)


AND = {
    (True, True): True,
    (True, False): False,
    (True, None): None,
    (None, True): None,
    (None, False): False,
    (None, None): None,
}
OR = {
    (False, True): True,
    (False, False): False,
    (False, None): None,
    (None, True): True,
    (None, False): None,
    (None, None): None,
}
"""SQL's tables, where the left side does not decide."""


def oracle(node: Expression, row: Mapping[str, Any]) -> Any:
    """The value of the expression over the event with these fields, None for a null; raises NoValue."""
    match node:
        case Literal(value=value):
            return inward(value)
        case FieldOf(field=field):
            return inward(row[field])
        case Binary(type=Type.BOOLEAN, operator="and", left=left, right=right):
            one = oracle(left, row)
            return False if one is False else AND[one, oracle(right, row)]
        case Binary(type=Type.BOOLEAN, operator="or", left=left, right=right):
            one = oracle(left, row)
            return True if one is True else OR[one, oracle(right, row)]
    values = [oracle(part, row) for part in children(node)]
    return None if None in values else worked_out(node, values)


def worked_out(node: Expression, values: list[Any]) -> Any:
    """What a node makes of the values of its parts; raises NoValue."""
    match node:
        case Unary(operator="not"):
            return values[0] is False if isinstance(values[0], bool) else -1 - values[0]
        case Unary(type=type_):
            return integer(np.subtract, 0, values[0]) if type_ == Type.INTEGER else -values[0]
        case Binary(operator=operator, left=left):
            assert left.type is not None
            table = COMPARISON if operator in COMPARISON else ARITHMETIC[left.type]
            return table[operator](*values)
        case Call(method=method, receiver=receiver):
            assert receiver.type is not None
            found = METHODS[receiver.type][method](*values)
            return inward(found) if isinstance(found, str) else found
    raise AssertionError(f"{node} is not for this evaluator")
