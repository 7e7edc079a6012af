"""What an expression is worth for one set of bound events: the meaning of the language's operators, in plain Python.

Takes checked expression trees and the values of the bound events; gives a value or raises `EvaluationError`.
The reference matcher, the block statements and every test of a faster reading of the tree lean on it.

Numbers: integers are 64-bit and wrap, integer division truncates toward zero, `%` takes the sign of its left side,
floats are IEEE doubles (`1.0 / 0.0` is an infinity, comparisons with NaN are false except `!=`). Strings compare by
code point. `and` and `or` look at their right side only if the left one does not decide. Where a null is used, or an
integer is divided by zero, or a float that no integer can hold is turned into one, there is no value.

Text: `floating_text` and `event_text` say how values print.
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary
from querylang.plan import EventType

Value = bool | int | float | str
"""A value of the language; null is None beside it."""

Values = Mapping[str, Value | None]
"""The fields of one event by name; a field that is not there is null."""

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


class EvaluationError(Exception):
    """An expression without a value; its text says why, for the user."""


def evaluate(expression: Expression, bound: Sequence[Values | None], types: Sequence[EventType | None] = ()) -> Value:
    """The value of `expression` where term `i` is bound to `bound[i]`.

    `types[i]` is the event type of term `i`; only `EventText` needs it. Raises EvaluationError.
    """
    match expression:
        case Literal(value=value):
            return value
        case FieldOf(term=term, field=field):
            return _field(bound[term], field)
        case Unary(type=type_, operator=name, operand=operand):
            return _unary(type_, name, evaluate(operand, bound, types))
        case Binary(operator="and", left=left, right=right):
            return bool(evaluate(left, bound, types)) and bool(evaluate(right, bound, types))
        case Binary(operator="or", left=left, right=right):
            return bool(evaluate(left, bound, types)) or bool(evaluate(right, bound, types))
        case Binary(operator=name, left=left, right=right):
            return _binary(name, evaluate(left, bound, types), evaluate(right, bound, types))
        case Call(method=method, receiver=receiver, arguments=arguments):
            assert not arguments, f"method {method!r} takes no arguments yet"
            return _call(method, evaluate(receiver, bound, types))
        case EventText(term=term):
            values, event_type = bound[term], types[term] if term < len(types) else None
            assert event_type is not None, "the text of an event needs its type"
            if values is None:
                raise EvaluationError("the event is not set")
            return event_text(event_type, values)
    assert_never(expression)


def holds(condition: Expression, bound: Sequence[Values | None], types: Sequence[EventType | None] = ()) -> bool:
    """Whether a condition is true; one that fails to evaluate is false."""
    try:
        return bool(evaluate(condition, bound, types))
    except EvaluationError:
        return False


def _field(values: Values | None, name: str) -> Value:
    value = None if values is None else values.get(name)
    if value is None:
        raise EvaluationError(f"field '{name}' is null")
    return value


def _unary(type_: Type, name: str, value: Value) -> Value:
    match name:
        case "not":
            return not value
        case "-":
            assert not isinstance(value, str)
            return wrap(-int(value)) if type_ is Type.INTEGER else -value
    raise AssertionError(f"unknown operator {name!r}")


def _binary(name: str, left: Any, right: Any) -> Value:
    comparison = COMPARISONS.get(name)
    if comparison is not None:
        return comparison(left, right)
    if name == "xor":
        return bool(left) != bool(right)
    if isinstance(left, str):
        assert name == "+", f"unknown operator {name!r} of strings"
        return left + str(right)
    return _float_arithmetic(name, left, right) if isinstance(left, float) else _integer_arithmetic(name, left, right)


def _integer_arithmetic(name: str, left: int, right: int) -> int:
    match name:
        case "+":
            return wrap(left + right)
        case "-":
            return wrap(left - right)
        case "*":
            return wrap(left * right)
        case "/" | "%":
            if right == 0:
                raise EvaluationError("integer division by zero")
            quotient = abs(left) // abs(right)
            signed = quotient if (left < 0) == (right < 0) else -quotient
            return wrap(signed) if name == "/" else left - signed * right
    raise AssertionError(f"unknown operator {name!r}")


def _float_arithmetic(name: str, left: float, right: float) -> float:
    match name:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right if right != 0.0 else _divided_by_zero(left, right)
        case "%":
            return math.fmod(left, right) if right != 0.0 and math.isfinite(left) else left * math.nan
    raise AssertionError(f"unknown operator {name!r}")


def _divided_by_zero(left: float, zero: float) -> float:
    """IEEE 754: an infinity with the sign of both sides, or not a number."""
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, zero)


def _call(method: str, value: Value) -> Value:
    match method:
        case "toString":
            return text_of(value)
        case "toFloat":
            assert not isinstance(value, str)
            return float(value)
        case "toInteger":
            assert not isinstance(value, str)
            return _truncated(value)
    raise AssertionError(f"unknown method {method!r}")


def _truncated(value: float) -> int:
    if not math.isfinite(value):
        raise EvaluationError(f"{text_of(value)} is no integer")
    whole = int(value)
    if not INTEGER_MIN <= whole <= INTEGER_MAX:
        raise EvaluationError(f"{text_of(value)} is out of the range of integers")
    return whole


def wrap(value: int) -> int:
    """The 64-bit integer that a sum, difference or product of such integers overflows to."""
    return (value - INTEGER_MIN) % 2**64 + INTEGER_MIN


def text_of(value: Value) -> str:
    """`toString()` of a value: `true`, `42`, `4.0`; a string is its own text."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return floating_text(value)
        case str():
            return value


def floating_text(value: float) -> str:
    """The fewest digits that read back as `value`: `4.0`, `0.000001`, `1e+21`, `1.5e-7`, `Infinity`, `-Infinity`, `NaN`.

    Positional, with a point, from 1e-6 up to (not including) 1e+21; outside of that with an exponent.
    """
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    size = abs(value)
    if math.isinf(size):
        return sign + "Infinity"
    if size == 0.0:
        return sign + "0.0"
    digits, exponent = _shortest(size)
    if -6 <= exponent < 21:
        return sign + _positional(digits, exponent)
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{sign}{mantissa}e{exponent:+d}"


def _shortest(size: float) -> tuple[str, int]:
    """The shortest round-trip digits of a positive number, and the power of ten of the first one."""
    mantissa, _, power = repr(size).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    exponent = len(whole) - 1 - leading + int(power or 0)
    return digits.strip("0"), exponent


def _positional(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    padded = digits.ljust(exponent + 1, "0")
    return f"{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"


ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def event_text(event_type: EventType, values: Values) -> str:
    """`toString()` of an event: `A(1,"x",2.5)`; the fields in their order, strings quoted and escaped, null as `null`."""
    return f"{event_type.name}({','.join(_field_text(values.get(field.name)) for field in event_type.fields)})"


def _field_text(value: Value | None) -> str:
    match value:
        case None:
            return "null"
        case str():
            return f'"{value.translate(ESCAPES)}"'
        case _:
            return text_of(value)
