"""What exists: operators, methods, units, annotations, and what they do to which types.

Tables only; the checker reads them. What an operator means stands in `runtime.expressions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from querylang.errors import QueryError
from querylang.expression import Type
from querylang.plan import Field
from querylang.source import Span

NUMBERS = (Type.INTEGER, Type.FLOAT)
ALL_TYPES = tuple(Type)

BINARY: dict[str, dict[Type, Type]] = {
    **{word: {Type.BOOLEAN: Type.BOOLEAN} for word in ("and", "or", "xor")},
    **{sign: dict.fromkeys(ALL_TYPES, Type.BOOLEAN) for sign in ("=", "!=")},
    **{sign: dict.fromkeys((*NUMBERS, Type.STRING), Type.BOOLEAN) for sign in ("<", "<=", ">", ">=")},
    **{sign: {type_: type_ for type_ in NUMBERS} for sign in ("-", "*", "/", "%")},
    "+": {type_: type_ for type_ in (*NUMBERS, Type.STRING)},
}
"""Operator, then the type of both operands, then the type of the result."""

UNARY: dict[str, tuple[Type, ...]] = {"not": (Type.BOOLEAN,), "-": NUMBERS}
"""Operator, then the types it takes and keeps."""

METHODS: dict[str, dict[Type, Type]] = {
    "toString": dict.fromkeys(ALL_TYPES, Type.STRING),
    "toFloat": dict.fromkeys(NUMBERS, Type.FLOAT),
    "toInteger": dict.fromkeys(NUMBERS, Type.INTEGER),
}
"""Method without arguments, then the type it is called on, then the type it gives."""

_OF_NUMBERS = (
    *("abs", "ceil", "floor", "round", "sqrt", "pow", "exp", "log", "min", "max"),
    *("isNaN", "isFinite", "toDecimal"),
)
_OF_STRINGS = (
    *("length", "find", "substring", "toUpper", "toLower", "ltrim", "rtrim", "startsWith", "endsWith", "contains"),
    *("matches", "split", "replaceAll", "toInteger", "toFloat"),
)
LATER_METHODS: dict[Type, tuple[str, ...]] = {
    Type.BOOLEAN: (),
    Type.INTEGER: _OF_NUMBERS,
    Type.FLOAT: _OF_NUMBERS,
    Type.STRING: _OF_STRINGS,
}
"""Methods of the language that this release refuses by name."""

LATER_EVENT_METHODS = ("clone", "getTime")
"""Of events; `getTime` is here unless the event defines it."""

LATER_TYPES = ("decimal", "location", "sequence", "dictionary", "optional")

AGGREGATES = (
    *("count", "sum", "avg", "mean", "min", "max", "first", "last", "nth", "percentile", "stddev", "stddev2"),
    *("wavg", "countUnique"),
)

FLOAT_CONSTANTS: dict[str, float] = {"INFINITY": float("inf"), "NAN": float("nan")}

UNITS: dict[str, int] = {
    **dict.fromkeys(("day", "days"), 86_400_000_000),
    **dict.fromkeys(("hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("msec", "millisecond", "milliseconds"), 1_000),
}
"""Unit to microseconds."""

ANNOTATIONS = ("TimeFrom", "Heartbeat", "OutOfOrder", "DefaultWait")

SMALLEST_INTEGER, LARGEST_INTEGER = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EventSchema:
    """An event type as queries see it. Equal if it says the same, wherever it stands.

    `actions`: name of an action without arguments → the field that it returns. `time_from`, `heartbeat`: the arguments
    of the annotations. `is_open`: not all is known, so an unknown field is no mistake. `is_unseen`:
    nothing defines it and no data of it has been seen. `problems`: mistakes of a
    definition beside the query, reported if a query uses the type.
    """

    name: str
    fields: tuple[Field, ...]
    actions: tuple[tuple[str, str], ...] = ()
    time_from: str | None = None
    heartbeat: str | None = None
    out_of_order: bool = False
    is_open: bool = False
    is_unseen: bool = False
    package: str | None = field(default=None, compare=False)
    span: Span | None = field(default=None, compare=False)
    problems: tuple[QueryError, ...] = field(default=(), compare=False)

    def type_of(self, name: str) -> Type | None:
        """The type of a field; None if there is none of that name."""
        return next((item.type for item in self.fields if item.name == name), None)

    def field_of_action(self, name: str) -> str | None:
        """The field that an action returns; None if there is no such action."""
        return dict(self.actions).get(name)

    def time_field(self, name: str) -> str | None:
        """The field behind a `time from` name, be it an action's or its own."""
        return self.field_of_action(name) or (name if self.type_of(name) else None)

    @property
    def field_names(self) -> list[str]:
        """The fields' names in order."""
        return [item.name for item in self.fields]


def methods_of(type_: Type) -> list[str]:
    """All methods of values of a type, those that come later included."""
    return [name for name, types in METHODS.items() if type_ in types] + list(LATER_METHODS[type_])


def conversion(found: Type, wanted: Type) -> str | None:
    """How to make one type of the other: a hint for messages."""
    match found, wanted:
        case (Type.INTEGER, Type.FLOAT):
            return "convert the integer with `.toFloat()`"
        case (Type.FLOAT, Type.INTEGER):
            return "convert the float with `.toInteger()`"
        case (_, Type.STRING) if found is not Type.STRING:
            return f"convert the {found} with `.toString()`"
        case _:
            return None
