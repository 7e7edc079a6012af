"""All operators, methods, constants, aggregates and units, and the types that they take and give.

Tables only, one row per method; the checker, the documents and the editors' completion read them.
Their meaning is in `runtime.interpreter.expressions` under the same names; a test holds that each
row has one. Names and results are those of the vendor's EPL (Apama 10.15 help) where they come from
it; `log` is the natural logarithm. Methods that give another result each time (`rand`, `getUnique`)
are left out: the same events always give the same matches.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from decimal import Decimal

from querylang.dataclass import dataclass
from querylang.plan.expression import NUMBERS, Kind, Type

ANNOTATIONS = ("TimeFrom", "Heartbeat", "OutOfOrder", "DefaultWait")

LOG_LEVELS = ("CRIT", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
DEFAULT_LOG_LEVEL = "INFO"

LOCATION_FIELDS = ("x1", "y1", "x2", "y2")
"""The fields of a location, floats: two corners of a rectangle."""

SMALLEST_INTEGER, LARGEST_INTEGER = -(1 << 63), (1 << 63) - 1

DECIMAL_PLACES = 18
"""Decimal places; results are rounded to them, half to even."""

DECIMAL_LIMIT = Decimal("1e20")
"""Decimals are smaller than this in absolute value."""

UNITS: dict[str, int] = {
    **dict.fromkeys(("day", "days"), 86_400_000_000),
    **dict.fromkeys(("hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("msec", "millisecond", "milliseconds"), 1_000),
}
"""Unit to microseconds."""

# Operators: both sides have one type. `and or xor not` of integers work on their bits.

_ORDERED = (*NUMBERS, Type.STRING)

LOGICAL = ("and", "or", "xor")
EQUALITY = ("=", "!=")
ORDER = ("<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")
BINARY_OPERATORS = (*LOGICAL, *EQUALITY, *ORDER, *ARITHMETIC)
UNARY_OPERATORS = ("not", "-")


def binary_result(operator: str, left: Type, right: Type) -> Type | None:
    """The type of `left operator right`; None: there is no such operation."""
    if left != right:
        return None
    if operator in LOGICAL:
        return left if left in (Type.BOOLEAN, Type.INTEGER) else None
    if operator in EQUALITY:
        return Type.BOOLEAN
    if operator in ORDER:
        return Type.BOOLEAN if left in _ORDERED else None
    if operator in ARITHMETIC:
        return left if left in NUMBERS or (operator == "+" and left == Type.STRING) else None
    return None


def unary_result(operator: str, operand: Type) -> Type | None:
    """The type of `operator operand`; None: there is no such operation."""
    takes = {"not": (Type.BOOLEAN, Type.INTEGER), "-": NUMBERS}.get(operator, ())
    return operand if operand in takes else None


# Methods


@dataclass(frozen=True, slots=True)
class Signature:
    """How a method is called on a value of a certain type.

    - `required`: the number of parameters without a default.
    - `result`: None: it returns nothing and can only be a statement; its `Call` then has the
      receiver's type.
    """

    parameters: tuple[Type, ...]
    result: Type | None
    required: int


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table.

    Types may be `self` (the receiver's), and `element`, `key`, `value` (what it consists of).
    """

    kinds: tuple[Kind, ...]
    name: str
    parameters: tuple[Type, ...]
    required: int
    result: Type | None
    summary: str

    def on(self, receiver: Type) -> Signature:
        """The signature for a receiver of this type."""
        parts = _parts(receiver)
        result = None if self.result is None else _resolved(self.result, parts)
        return Signature(tuple(_resolved(item, parts) for item in self.parameters), result, self.required)


def _parts(receiver: Type) -> dict[Type, Type]:
    names = ("key", "value") if receiver.kind is Kind.DICTIONARY else ("element",)
    return {_SELF: receiver, **{Type.event(name): type_ for name, type_ in zip(names, receiver.of, strict=False)}}


def _resolved(type_: Type, parts: dict[Type, Type]) -> Type:
    if type_ in parts:
        return parts[type_]
    return Type(type_.kind, tuple(_resolved(inner, parts) for inner in type_.of), type_.name) if type_.of else type_


_SELF = Type.event("self")


def _row(kinds: str, signature: str, summary: str) -> Method:
    """A row from text: the kinds of receivers, `name(parameters) result`.

    `?` marks an optional parameter.
    """
    name, _, rest = signature.partition("(")
    inside, _, result = rest.rpartition(")")
    words = inside.split()
    return Method(
        kinds=tuple(Kind) if kinds == "any" else tuple(Kind(word) for word in kinds.split()),
        name=name,
        parameters=tuple(Type.parse(word.rstrip("?")) for word in words),
        required=sum(not word.endswith("?") for word in words),
        result=Type.parse(result.strip()) if result.strip() else None,
        summary=summary,
    )


METHODS: tuple[Method, ...] = (
    _row("any", "toString() string", "The value as text; a string is its own text."),
    _row("any", "clone() self", "A copy that shares nothing with the value."),
    # Numbers
    _row("integer float decimal", "abs() self", "The absolute value."),
    _row("integer float decimal", "min(self) self", "The smaller of the two."),
    _row("integer float decimal", "max(self) self", "The larger of the two."),
    _row("integer float decimal", "pow(self) self", "Raised to that power."),
    _row("integer float decimal", "ceil() integer", "The next integer that is not smaller."),
    _row("integer float decimal", "floor() integer", "The next integer that is not larger."),
    _row("integer float decimal", "round() integer", "The nearest integer; halves are rounded away from zero."),
    _row("integer float decimal", "toInteger() integer", "The integral part."),
    _row("integer float decimal", "toFloat() float", "The nearest float."),
    _row("integer float decimal", "toDecimal() decimal", "As a decimal, rounded to 18 places."),
    _row("integer float decimal", "isNaN() boolean", "Whether it is not a number."),
    _row("integer float decimal", "isFinite() boolean", "Whether it is neither infinite nor NaN."),
    _row("integer float decimal", "isInfinite() boolean", "Whether it is an infinity."),
    _row("integer float", "sqrt() float", "The square root."),
    _row("integer float", "exp() float", "e raised to that power."),
    _row("integer float", "ln() float", "The natural logarithm."),
    _row("integer float", "log() float", "The natural logarithm, as `ln`."),
    _row("integer float", "log10() float", "The logarithm to base 10."),
    _row("decimal", "sqrt() decimal", "The square root."),
    _row("decimal", "exp() decimal", "e raised to that power."),
    _row("decimal", "ln() decimal", "The natural logarithm."),
    _row("decimal", "log() decimal", "The natural logarithm, as `ln`."),
    _row("decimal", "log10() decimal", "The logarithm to base 10."),
    _row("float", "sin() float", "The sine of an angle in radians."),
    _row("float", "cos() float", "The cosine of an angle in radians."),
    _row("float", "tan() float", "The tangent of an angle in radians."),
    _row("float", "asin() float", "The inverse sine, in radians."),
    _row("float", "acos() float", "The inverse cosine, in radians."),
    _row("float", "atan() float", "The inverse tangent, in radians."),
    _row("float", "atan2(float) float", "The angle of the point whose ordinate this is, given the abscissa."),
    _row("float", "sinh() float", "The hyperbolic sine."),
    _row("float", "cosh() float", "The hyperbolic cosine."),
    _row("float", "tanh() float", "The hyperbolic tangent."),
    _row("float", "asinh() float", "The inverse hyperbolic sine."),
    _row("float", "acosh() float", "The inverse hyperbolic cosine."),
    _row("float", "atanh() float", "The inverse hyperbolic tangent."),
    _row("float", "cbrt() float", "The cube root."),
    _row("float", "erf() float", "The error function."),
    _row("float", "fmod(float) float", "The remainder of a division, with the sign of the value."),
    _row("float", "exponent() integer", "The power of two for a mantissa from 0.5 up to 1."),
    _row("float", "mantissa() float", "The value without that power of two."),
    _row("float decimal", "integralPart() self", "The part before the decimal point, with the sign."),
    _row("float decimal", "fractionalPart() self", "The part after the decimal point, with the sign."),
    _row("float decimal", "bitEquals(self) boolean", "Whether both are the same; NaN equals itself, -0.0 not 0.0."),
    _row("float decimal", "formatFixed(integer) string", "As text with that many decimal places."),
    _row("float decimal", "formatScientific(integer) string", "As text with that many significant digits, `1.50e3`."),
    # Strings
    _row("string", "length() integer", "How many characters."),
    _row("string", "isEmpty() boolean", "Whether it has no characters."),
    _row("string", "contains(string) boolean", "Whether that text occurs in it."),
    _row("string", "startsWith(string) boolean", "Whether it begins with that text."),
    _row("string", "endsWith(string) boolean", "Whether it ends with that text."),
    _row("string", "find(string) integer", "Where that text first occurs, from 0; -1: nowhere."),
    _row("string", "findFrom(string integer) integer", "As `find`, from that place on."),
    _row("string", "substring(integer integer?) string", "From one place up to another; negative: from the end."),
    _row("string", "toUpper() string", "In capital letters."),
    _row("string", "toLower() string", "In small letters."),
    _row("string", "ltrim() string", "Without white space at the beginning."),
    _row("string", "rtrim() string", "Without white space at the end."),
    _row("string", "matches(string) boolean", "Whether all of it fits the regular expression (RE2)."),
    _row("string", "like(string) boolean", "Whether all of it fits the pattern: `*` any text, `?` one character."),
    _row("string", "likeIgnoreCase(string) boolean", "As `like`, without regard to case."),
    _row("string", "equalsIgnoreCase(string) boolean", "Whether both are equal without regard to case."),
    _row("string", "inNetwork(string) boolean", "Whether it is an IP address of that network, `10.0.0.0/8`."),
    _row("string", "search(string) sequence<string>", "All parts that fit the regular expression (RE2)."),
    _row("string", "groupSearch(string) sequence<string>", "The groups of the first part that fits (RE2)."),
    _row("string", "replace(string string) string", "Parts that fit the regular expression replaced; `$1`: a group."),
    _row("string", "replaceAll(string string) string", "All occurrences of one text replaced by another."),
    _row("string", "split(string) sequence<string>", "That text, split where this separator occurs."),
    _row("string", "tokenize(string) sequence<string>", "The parts of that text between any of these characters."),
    _row("string", "join(sequence<string>) string", "Those texts with this separator between them."),
    _row("string", "intern() string", "The string itself."),
    _row("string", "toInteger() integer", "The number that it begins with; 0 if there is none."),
    _row("string", "toFloat() float", "The number that it begins with; 0.0 if there is none."),
    _row("string", "toDecimal() decimal", "The number that it begins with; 0.0 if there is none."),
    # Sequences
    _row("sequence", "size() integer", "How many elements."),
    _row("sequence", "isEmpty() boolean", "Whether there are no elements."),
    _row("sequence", "contains(element) boolean", "Whether that element is in it."),
    _row("sequence", "indexOf(element) integer", "Where that element first is, from 0; -1: nowhere."),
    _row("sequence", "getOr(integer element) element", "The element at that place, or else the second argument."),
    _row("sequence", "join(string) string", "The elements' texts with a separator between them."),
    _row("sequence", "append(element)", "Adds an element at the end."),
    _row("sequence", "appendSequence(self)", "Adds all elements of another one at the end."),
    _row("sequence", "insert(element integer)", "Inserts an element before that place."),
    _row("sequence", "remove(integer)", "Removes the element at that place."),
    _row("sequence", "clear()", "Removes all elements."),
    _row("sequence", "setSize(integer)", "Cuts it to that size, or extends it with default values."),
    _row("sequence", "setCapacity(integer)", "A hint about memory, without effect."),
    _row("sequence", "sort()", "Sorts the elements in ascending order."),
    _row("sequence", "reverse()", "Reverses the order."),
    # Dictionaries
    _row("dictionary", "size() integer", "How many keys."),
    _row("dictionary", "isEmpty() boolean", "Whether there are no keys."),
    _row("dictionary", "hasKey(key) boolean", "Whether that key exists."),
    _row("dictionary", "getOr(key value) value", "The key's value, or else the second argument."),
    _row(
        "dictionary", "getOrDefault(key value?) value", "The key's value, or else the second argument or default value."
    ),
    _row("dictionary", "getOrAdd(key value) value", "The key's value; a missing one is added first."),
    _row("dictionary", "getOrAddDefault(key) value", "As `getOrAdd`, with the type's default value."),
    _row("dictionary", "keys() sequence<key>", "The keys in ascending order."),
    _row("dictionary", "values() sequence<value>", "The values in the order of their keys."),
    _row("dictionary", "add(key value)", "Adds a key and its value, or replaces the value."),
    _row("dictionary", "remove(key)", "Removes a key, which must exist."),
    _row("dictionary", "clear()", "Removes all keys."),
    # Other types
    _row("optional", "empty() boolean", "Whether it has no value."),
    _row("optional", "getOrThrow() element", "Its value; it must have one."),
    _row("optional", "getOr(element) element", "Its value, or else the argument."),
    _row("location", "expand(float) location", "Larger by that much in each direction."),
    _row("location", "inside(location) boolean", "Whether it lies within the other one."),
    _row("event", "getTime() float", "The event's time in seconds since 1970, after any adjustment."),
    _row("event", "getName() string", "The name of its type."),
    _row("event", "getFieldNames() sequence<string>", "The names of its fields."),
    _row("event", "getFieldTypes() sequence<string>", "The types of its fields."),
    _row("event", "getFieldValues() sequence<string>", "Its fields' values as text."),
)
"""Methods of values. An event type's own action has precedence over a method of the same name."""

STATIC_METHODS: tuple[Method, ...] = (
    _row("any", "parse(string) self", "The value in the text, as `toString` writes it."),
    _row("any", "canParse(string) boolean", "Whether `parse` returns a value."),
    _row("integer float decimal", "min(self self) self", "The smaller of the two."),
    _row("integer float decimal", "max(self self) self", "The larger of the two."),
)
"""Methods of types: `integer.parse("7")`."""

TIME_FORMAT = "com.apama.correlator.timeformat.TimeFormat"
"""The type whose methods write and read times; in a plan their names begin with it."""

TIME_FORMAT_METHODS: tuple[Method, ...] = (
    _row("event", "format(float string) string", "A time as text by a pattern, in UTC."),
    _row("event", "formatUTC(float string) string", "As `format`."),
    _row("event", "formatWithTimeZone(float string string) string", "As `format`, in a time zone."),
    _row("event", "parseTime(string string) float", "The time in a text by a pattern; UTC unless it names a zone."),
    _row("event", "parseTimeUTC(string string) float", "As `parseTime`."),
    _row("event", "parseTimeWithTimeZone(string string string) float", "As `parseTime`, in a time zone."),
    _row("event", "parse(string string) float", "As `parseTime`."),
    _row("event", "parseUTC(string string) float", "As `parseTime`."),
    _row("event", "parseWithTimeZone(string string string) float", "As `parseTimeWithTimeZone`."),
)
"""Methods of TimeFormat itself; a value of it has them too."""


def _by_kind(methods: Sequence[Method]) -> dict[Kind, dict[str, Method]]:
    return {kind: {method.name: method for method in methods if kind in method.kinds} for kind in Kind}


_METHODS = _by_kind(METHODS)
_STATIC_METHODS = _by_kind(STATIC_METHODS)


def method_of(receiver: Type, name: str) -> Signature | None:
    """The signature of a method of values of a type; None: there is no such method."""
    method = _METHODS[receiver.kind].get(name)
    return None if method is None else method.on(receiver)


def methods_of(receiver: Type) -> list[str]:
    """The names of all methods of values of a type."""
    return list(_METHODS[receiver.kind])


def static_method_of(type_: Type, name: str) -> Signature | None:
    """The signature of a method of the type itself; None: there is no such method."""
    method = _STATIC_METHODS[type_.kind].get(name)
    return None if method is None else method.on(type_)


def static_methods_of(type_: Type) -> list[str]:
    """The names of all methods of the type itself."""
    return list(_STATIC_METHODS[type_.kind])


_CONSTANTS: dict[Type, dict[str, int | float | Decimal]] = {
    Type.INTEGER: {"MAX": LARGEST_INTEGER, "MIN": SMALLEST_INTEGER},
    Type.FLOAT: {
        "INFINITY": math.inf,
        "NAN": math.nan,
        "MAX": sys.float_info.max,
        "MIN": sys.float_info.min,
        "EPSILON": sys.float_info.epsilon,
        "E": math.e,
        "PI": math.pi,
    },
    Type.DECIMAL: {
        "MAX": Decimal("99999999999999999999.999999999999999999"),
        "MIN": Decimal(1).scaleb(-DECIMAL_PLACES),
        "EPSILON": Decimal(1).scaleb(-DECIMAL_PLACES),
        "E": Decimal("2.718281828459045235"),
        "PI": Decimal("3.141592653589793238"),
    },
}


def type_constants(type_: Type) -> dict[str, int | float | Decimal]:
    """The constants of a type by name: `float.INFINITY`."""
    return _CONSTANTS.get(type_, {})


# Aggregates


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate.

    - `takes`: the types that each argument may have; None: any.
    - `required`: the number of arguments without a default.
    - `result`: None: the type of its first argument.
    """

    name: str
    takes: tuple[tuple[Type, ...] | None, ...]
    required: int
    result: Type | None
    summary: str

    def result_of(self, arguments: Sequence[Type]) -> Type | None:
        """The type of the result for arguments of these types; None: it does not take them."""
        if not self.required <= len(arguments) <= len(self.takes):
            return None
        if any(types is not None and given not in types for given, types in zip(arguments, self.takes, strict=False)):
            return None
        return arguments[0] if self.result is None else self.result


_NUMBER, _INTEGER = NUMBERS, (Type.INTEGER,)

AGGREGATES: dict[str, AggregateFunction] = {
    rule.name: rule
    for rule in (
        AggregateFunction(
            "count",
            ((Type.BOOLEAN, Type.FLOAT, Type.DECIMAL),),
            0,
            Type.INTEGER,
            "How many candidates; for how many the argument is true, or is a number.",
        ),
        AggregateFunction("countUnique", (None,), 1, Type.INTEGER, "How many different values."),
        AggregateFunction("sum", (_NUMBER,), 1, None, "The sum; integers wrap."),
        AggregateFunction("avg", (_NUMBER,), 1, Type.FLOAT, "The arithmetic mean."),
        AggregateFunction("mean", (_NUMBER,), 1, Type.FLOAT, "The arithmetic mean, as `avg`."),
        AggregateFunction("min", (_ORDERED,), 1, None, "The smallest value."),
        AggregateFunction("max", (_ORDERED,), 1, None, "The largest value."),
        AggregateFunction("first", (None,), 1, None, "The value of the oldest candidate."),
        AggregateFunction("last", (None,), 1, None, "The value of the latest candidate."),
        AggregateFunction(
            "nth", (None, _INTEGER), 2, None, "The value of the candidate at that place, from 0, oldest first."
        ),
        AggregateFunction(
            "percentile", (_NUMBER, _NUMBER), 2, Type.FLOAT, "The value below which that many of 100 values lie."
        ),
        AggregateFunction("stddev", (_NUMBER,), 1, Type.FLOAT, "The standard deviation of all there is."),
        AggregateFunction("stddev2", (_NUMBER,), 1, Type.FLOAT, "The standard deviation of a sample."),
        AggregateFunction(
            "wavg", (_NUMBER, _NUMBER), 2, Type.FLOAT, "The mean, each value weighted by the second argument."
        ),
    )
}


def aggregate_result(name: str, arguments: Sequence[Type]) -> Type | None:
    """The type of an aggregate's result; None: there is no such aggregate for these types."""
    rule = AGGREGATES.get(name)
    return None if rule is None else rule.result_of(arguments)


def conversion(found: Type, wanted: Type) -> str | None:
    """How to convert one type to the other, as a hint in messages."""
    method = {Type.INTEGER: "toInteger", Type.FLOAT: "toFloat", Type.DECIMAL: "toDecimal"}.get(wanted)
    if found.kind is Kind.OPTIONAL and found.of[0] == wanted:
        return "take what it holds with `.getOrThrow()`, or `.getOr(...)` with a value for an empty one"
    if wanted == Type.STRING and found != wanted:
        return f"convert the {found} with `.toString()`"
    if method is not None and found != wanted and found in (*NUMBERS, Type.STRING):
        return f"convert the {found} with `.{method}()`"
    return None
