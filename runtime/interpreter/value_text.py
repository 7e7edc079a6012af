"""Values as text: `toString()`, and numbers in given formats.

`runtime.interpreter.event_text` reads the text back. Inside of events, sequences and dictionaries
strings are quoted and decimals end with `d`, so that the text shows the types.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal

from querylang.plan.expression import Kind, Type
from querylang.plan.model import EventType
from runtime.interpreter.values import Dictionary, EvaluationError, Event, Location, Value, Values, limit_size

ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})

MOST_PLACES = 100
"""The most digits that a format may have."""


def text_of(value: Value, type_: Type | None = None) -> str:
    """`toString()` of a value. A string is its own text.

    `true`, `42`, `4.0`, `1.5` (a decimal), `[1,2]`, `{"a":1}` in order of keys, `A(1,"x",2.5)`,
    `(0.0,0.0,1.0,1.0)` (a location), `optional(7)`, `optional()`.

    type_: needed only if the value may be or hold an optional
    """
    match value:
        case str():
            return value
        case Decimal() if type_ is None or type_.kind is not Kind.OPTIONAL:
            return decimal_text(value)
        case _:
            return inner_text(value, type_)


def inner_text(value: Value, type_: Type | None = None) -> str:
    """The text of a value inside of another: strings quoted, decimals with a `d`, or `null`."""
    if type_ is not None and type_.kind is Kind.OPTIONAL:
        return f"optional({'' if value is None else inner_text(value, type_.of[0])})"
    inner = type_.of if type_ is not None and type_.of else (None, None)
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return floating_text(value)
        case Decimal():
            return f"{decimal_text(value)}d"
        case str():
            return f'"{value.translate(ESCAPES)}"'
        case list():
            return f"[{_listed(inner_text(item, inner[0]) for item in value)}]"
        case Dictionary():
            entries = (f"{inner_text(key, inner[0])}:{inner_text(item, inner[1])}" for key, item in value.items())
            return f"{{{_listed(entries)}}}"
        case Event():
            return event_text(value.type, value.values)
        case Location():
            return f"({','.join(map(floating_text, value.corners))})"


def event_text(event_type: EventType, values: Values) -> str:
    """`toString()` of an event: `A(1,"x",2.5)`, with the fields in their order."""
    fields = (inner_text(values.get(field.name), field.type) for field in event_type.fields)
    return f"{event_type.name}({_listed(fields)})"


def _listed(texts: Iterable[str]) -> str:
    """The texts separated by commas; EvaluationError as soon as the result is too long."""
    size, parts = 0, []
    for text in texts:
        size += len(text) + 1
        limit_size(size)
        parts.append(text)
    return ",".join(parts)


def decimal_text(value: Decimal) -> str:
    """All digits, with a decimal point: `4.0`, `0.000000000000000001`."""
    whole, _, fraction = f"{value:f}".partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


def floating_text(value: float) -> str:
    """The fewest digits that read back as `value`: `4.0`, `0.000001`, `1e+21`, `-Infinity`, `NaN`.

    From 1e-6 up to (not including) 1e+21 without an exponent, otherwise with one.
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
    """The shortest round-trip digits of a positive number, and the first one's power of ten."""
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


def fixed_text(value: float | Decimal, places: int) -> str:
    """With this many decimal places: `2.50`. An exact half is rounded to the even digit."""
    if isinstance(value, float) and not math.isfinite(value):
        return floating_text(value)
    return f"{value:.{_digits(places, 0)}f}"


def scientific_text(value: float | Decimal, digits: int) -> str:
    """With this many significant digits: `2.50e+3`."""
    if isinstance(value, float) and not math.isfinite(value):
        return floating_text(value)
    mantissa, _, power = f"{value:.{_digits(digits, 1) - 1}e}".partition("e")
    return f"{mantissa}e{int(power):+d}"


def _digits(wanted: int, least: int) -> int:
    if not least <= wanted <= MOST_PLACES:
        raise EvaluationError(f"a number is formatted with {least} to {MOST_PLACES} digits, not {wanted}")
    return wanted
