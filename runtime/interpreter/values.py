"""Values of the language in Python: representation, equality, order, copies, defaults, text.

boolean, integer, float, decimal and string are bool, int, float, `Decimal` and str. A sequence is a
list, a dictionary a `Dictionary`, an event an `Event`, a location a `Location`. An optional is what
it holds, or None. Sequences, dictionaries, events and locations are references, as in EPL: two
names may share one. None is also a null: a field without a value in an event that was read, a fold
of none.
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, TypeVar

from querylang.dataclass import dataclass, field
from querylang.plan.expression import Kind, Type
from querylang.plan.model import Action, EventType

LONGEST = 10_000_000
"""The most characters of a text, or elements of a sequence, that a program can make."""


class EvaluationError(Exception):
    """An expression has no value; the message says why, for the user."""


class LimitError(EvaluationError):
    """A program takes too many steps, or makes or works on too much."""


@dataclass(slots=True)
class Location:
    """A rectangle, given by two opposite corners."""

    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def corners(self) -> tuple[float, float, float, float]:
        """The coordinates in the order of `location(x1, y1, x2, y2)`."""
        return self.x1, self.y1, self.x2, self.y2

    def set(self, member: str, value: float) -> None:
        """Set one of `LOCATION_FIELDS`."""
        match member:
            case "x1":
                self.x1 = value
            case "y1":
                self.y1 = value
            case "x2":
                self.x2 = value
            case "y2":
                self.y2 = value
            case _:
                raise AssertionError(f"a location has no {member}")


@dataclass(slots=True)
class Event:
    """An event as a value.

    type: its event type
    values: by field: the value; None = null
    time: microseconds since 1970; None = the program made the event
    arrival: µs; None = nothing that is looked up depends on it
    looked_up: by name (`querylang.plan.lookups`), what was stored with it; None = nothing
    """

    type: EventType
    values: dict[str, Value]
    time: int | None = None
    arrival: int | None = field(default=None, compare=False)
    looked_up: Mapping[str, Value | EvaluationError] | None = field(default=None, compare=False)


@dataclass(slots=True)
class Dictionary:
    """A dictionary, whose keys may be of any type that has an order.

    entries: by the key's `order_key`: key and value
    """

    entries: dict[OrderKey, tuple[Value, Value]] = field(default_factory=dict)

    @staticmethod
    def of(items: Iterable[tuple[Value, Value]]) -> Dictionary:
        """A dictionary of these pairs; a later one replaces an earlier one with an equal key."""
        return Dictionary({order_key(key): (key, value) for key, value in items})

    def items(self) -> list[tuple[Value, Value]]:
        """Keys and values in ascending order of the keys."""
        return [self.entries[key] for key in sorted(self.entries)]

    def __contains__(self, key: Value) -> bool:
        return order_key(key) in self.entries

    def __getitem__(self, key: Value) -> Value:
        return self.entries[order_key(key)][1]

    def __setitem__(self, key: Value, value: Value) -> None:
        self.entries[order_key(key)] = (key, value)

    def __delitem__(self, key: Value) -> None:
        del self.entries[order_key(key)]

    def __iter__(self) -> Iterator[Value]:
        return (key for key, _value in self.items())

    def __len__(self) -> int:
        return len(self.entries)


Value = bool | int | float | Decimal | str | Location | Event | list[Any] | Dictionary | None

Values = Mapping[str, Value]
"""The fields of one event by name; a missing one is null."""

AnyValue = TypeVar("AnyValue", bound=Value)

OrderKey = tuple[Any, ...]


def seconds(micros: int) -> float:
    """Microseconds as seconds, as `getTime()` gives them."""
    return float(micros) / 1_000_000.0


class World(Protocol):
    """The event types and actions that a program can refer to by name, and the rule for nulls."""

    @property
    def nulls_fail(self) -> bool:
        """Whether a null that is used is a failure (`QueryPlan.nulls_fail`)."""
        ...

    @property
    def looks_up(self) -> bool:
        """Whether something is looked up in tables beside the stream."""
        ...

    def event_type(self, name: str) -> EventType:
        """The event type of that name."""
        ...

    def action(self, event: str | None, name: str) -> Action:
        """An action of an event type, or (None) of the query."""
        ...

    def table(self, name: str) -> TableContent:
        """What the table beside the stream of that name holds."""
        ...


class TableContent(Protocol):
    """What a table beside the stream holds; its rows have numbers."""

    def row_of(self, keys: Sequence[Value], moment: int) -> int:
        """The row of a key at a moment, µs; -1 = there is none."""
        ...

    def cell(self, field: str, row: int) -> Value:
        """A cell; None = null."""
        ...

    def rows_of(self, keys: Sequence[Any], moments: Any) -> Any:
        """By probe the row of its key at its moment; -1 = there is none.

        keys: by key of the table, an Arrow array
        moments: µs
        """
        ...

    def column(self, field: str) -> Any:
        """A column as an Arrow array."""
        ...


def order_key(value: Value | Mapping[str, Any]) -> OrderKey:
    """What values of one type sort by; equal for equal values, and for NaN and NaN.

    Text sorts by code points, NaN after all numbers, an empty optional first. Sequences and events
    sort by their first difference, and so do locations and keys that are cells of a table.
    `runtime.columns.keys.sort_columns` is the same for columns.
    """
    match value:
        case int() | str():
            return (1, value)
        case None:
            return (0,)
        case float():
            return (1, 1, 0.0) if math.isnan(value) else (1, 0, value)
        case list():
            return (1, tuple(order_key(item) for item in value))
        case Dictionary():
            return (1, tuple((order_key(key), order_key(item)) for key, item in value.items()))
        case Event():
            return (1, value.type.name, tuple(order_key(value.values.get(item.name)) for item in value.type.fields))
        case Location():
            return (1, tuple(order_key(corner) for corner in value.corners))
        case dict():
            return (1, tuple(order_key(cell) for cell in value.values()))
        case _:
            return (1, value)


def equal(left: Value, right: Value) -> bool:
    """`left = right`, for values of one type. NaN equals nothing, also inside of other values."""
    match left, right:
        case list(), list():
            return len(left) == len(right) and all(map(equal, left, right))
        case Dictionary(), Dictionary():
            return left.entries.keys() == right.entries.keys() and all(
                equal(value, right.entries[key][1]) for key, (_key, value) in left.entries.items()
            )
        case Event(), Event():
            names = [item.name for item in left.type.fields]
            return left.type.name == right.type.name and all(
                equal(left.values.get(name), right.values.get(name)) for name in names
            )
        case Location(), Location():
            return all(map(operators.eq, left.corners, right.corners))  # NaN is not equal to itself
        case _:
            return left == right


def clone(value: AnyValue) -> AnyValue:
    """A copy that shares nothing with the value; EvaluationError if the copy would be too large."""
    limit_parts(value)
    return _copy(value)


def _copy(value: AnyValue) -> AnyValue:
    copy: Any = value
    match value:
        case list():
            copy = [_copy(item) for item in value]
        case Dictionary():
            copy = Dictionary({name: (_copy(key), _copy(item)) for name, (key, item) in value.entries.items()})
        case Event():
            copy = Event(value.type, {name: _copy(item) for name, item in value.values.items()}, value.time)
        case Location():
            copy = Location(*value.corners)
    return copy


_DEFAULTS: dict[Kind, Value] = {
    Kind.BOOLEAN: False,
    Kind.INTEGER: 0,
    Kind.FLOAT: 0.0,
    Kind.DECIMAL: Decimal(0),
    Kind.STRING: "",
    Kind.OPTIONAL: None,
}


def default_value(type_: Type, world: World) -> Value:
    """The initial value of a variable of the type."""
    match type_.kind:
        case Kind.SEQUENCE:
            return []
        case Kind.DICTIONARY:
            return Dictionary()
        case Kind.EVENT:
            event = world.event_type(type_.name)
            return Event(event, {item.name: default_value(item.type, world) for item in event.fields})
        case Kind.LOCATION:
            return Location(0.0, 0.0, 0.0, 0.0)
        case kind:
            return _DEFAULTS[kind]


def limit_parts(value: Value) -> None:
    """Raise LimitError if a value has too many parts.

    A part that the value refers to several times counts each time, because whoever walks the value
    visits it each time.
    """
    count, unseen = 0, [value]
    while unseen:
        parts = _parts(unseen.pop())
        count += len(parts)
        limit_size(count)
        unseen.extend(part for part in parts if isinstance(part, list | Dictionary | Event))


def _parts(value: Value) -> Sequence[Value]:
    """The values that a value holds directly."""
    match value:
        case list():
            return value
        case Dictionary():
            return [item for _key, item in value.entries.values()]
        case Event():
            return list(value.values.values())
        case _:
            return ()


def limit_size(size: int) -> None:
    """Raise LimitError if a text or sequence of this size would be too large."""
    if size > LONGEST:
        raise LimitError(f"a text or sequence of more than {LONGEST:,} characters or elements")


# Values as text: `toString()`, and numbers in given formats.
#
# `runtime.interpreter.written_values` reads the text back. Inside of events, sequences and
# dictionaries strings are quoted and decimals end with `d`, so that the text shows the types.

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
    if isinstance(value, Decimal) and not value:
        value = 0.0  # that of a column has 18 places, and Python would show them
    mantissa, _, power = f"{value:.{_digits(digits, 1) - 1}e}".partition("e")
    return f"{mantissa}e{int(power):+d}"


def _digits(wanted: int, least: int) -> int:
    if not least <= wanted <= MOST_PLACES:
        raise EvaluationError(f"a number is formatted with {least} to {MOST_PLACES} digits, not {wanted}")
    return wanted
