"""Values that users write as text: events in Apama's syntax, and JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any, Self, assert_never, cast

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import counted
from querylang.plan.expression import Kind, Type
from querylang.plan.library import LARGEST_INTEGER, SMALLEST_INTEGER
from querylang.plan.model import EventType
from runtime.interpreter.decimals import decimal
from runtime.interpreter.values import Dictionary, EvaluationError, Event, Location, Value, World

# Parser of values and events written in Apama's event syntax: `A(1,"x",2.5)`, `[1,2]`, `{"a":1}`.
#
# `parse_event_text` reads an event of any type, `parse_value` a value of a given type. Everything
# that `toString()` prints can be read.

_NAME = re.compile(r"\s*\.?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*\(")
_SPACE = re.compile(r"\s*")
_ATOM = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<decimal>d?)"""
    r"""|(?P<word>[+-]?[A-Za-z_][\w.]*)""",
    re.DOTALL,
)
_WORDS: dict[str, bool | float | None] = {
    "true": True,
    "false": False,
    "null": None,
    **dict.fromkeys(("Infinity", "infinity", "float.INFINITY"), math.inf),
    **dict.fromkeys(("-Infinity", "-infinity", "-float.INFINITY"), -math.inf),
    **dict.fromkeys(("NaN", "float.NAN"), math.nan),
}

DEEPEST = 100
"""How deep brackets may be nested."""


LONGEST_SHOWN = 100
"""Characters of a value in a message."""


class EventTextError(ValueError):
    """The text is not a value, or not one of the wanted type; the message says why."""


class Real(float):
    """A number with a point or an exponent.

    text: the number as written, because a decimal may have more digits than a float
    """

    text: str

    def __new__(cls, text: str) -> Self:
        """The number that is written."""
        made = super().__new__(cls, text)
        made.text = text
        return made


@dataclass(frozen=True, slots=True)
class TextPairs:
    """`{key: value, ...}` as written."""

    items: tuple[tuple[Written, Written], ...]


@dataclass(frozen=True, slots=True)
class TextEvent:
    """An event as written.

    name: its type with the package; empty = a location
    arguments: in order
    """

    name: str
    arguments: tuple[Written, ...]


Written = bool | int | float | Decimal | str | list["Written"] | TextPairs | TextEvent | None
"""A value before its type is known; None is `null`."""


def parse_event_text(text: str) -> TextEvent:
    """Read one event; raises EventTextError."""
    if _NAME.match(text) is None:
        raise EventTextError(f"not an event: {_start(text)!r}")
    written = _read(text)
    assert isinstance(written, TextEvent), "an event begins with a name and a bracket"
    return written


def parse_value(text: str, type_: Type, world: World) -> Value:
    """Read a value of a type; raises EventTextError."""
    return to_value(_read(text), type_, world)


def _read(text: str) -> Written:
    reader = _Reader(text)
    written = reader.value(0)
    rest = text[reader.at :].strip()
    if rest not in ("", ";"):
        raise EventTextError(f"nothing may follow the value, found {_start(rest)!r}")
    return written


def _start(text: str) -> str:
    return text.strip()[:40]


class _Reader:
    """A recursive descent parser; `at`: the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def value(self, depth: int) -> Written:
        if depth > DEEPEST:
            raise EventTextError(f"brackets nested more than {DEEPEST} deep")
        name = _NAME.match(self.text, self.at)
        if name is not None:
            self.at = name.end()
            return TextEvent(name[1], tuple(self._items(")", depth)))
        match self._next():
            case "(":
                self.at += 1
                return TextEvent("", tuple(self._items(")", depth)))
            case "[":
                self.at += 1
                return self._items("]", depth)
            case "{":
                self.at += 1
                return TextPairs(tuple(self._pairs(depth)))
        return self._atom()

    def _next(self) -> str:
        """Skip white space; the next character, or the empty string at the end."""
        space = _SPACE.match(self.text, self.at)
        assert space is not None, "the empty text matches"
        self.at = space.end()
        return self.text[self.at : self.at + 1]

    def _ends(self, closing: str, is_first: bool) -> bool:
        """Skip the closing bracket and give True, or skip the comma before the next item."""
        character = self._next()
        if character == closing:
            self.at += 1
            return True
        if not is_first:
            self._expect(",", f"',' or {closing!r}")
        return False

    def _expect(self, character: str, what: str) -> None:
        if self._next() != character:
            raise EventTextError(f"expected {what}, found {_start(self.text[self.at :])!r}")
        self.at += 1

    def _items(self, closing: str, depth: int) -> list[Written]:
        items: list[Written] = []
        while not self._ends(closing, not items):
            items.append(self.value(depth + 1))
        return items

    def _pairs(self, depth: int) -> list[tuple[Written, Written]]:
        pairs: list[tuple[Written, Written]] = []
        while not self._ends("}", not pairs):
            key = self.value(depth + 1)
            self._expect(":", "':'")
            pairs.append((key, self.value(depth + 1)))
        return pairs

    def _atom(self) -> Written:
        atom = _ATOM.match(self.text, self.at)
        if atom is None:
            raise EventTextError(f"expected a value, found {_start(self.text[self.at :])!r}")
        self.at = atom.end()
        if (string := atom["string"]) is not None:
            return _string(string)
        if (number := atom["number"]) is not None:
            return _number(number, bool(atom["decimal"]))
        word = atom["word"]
        if word not in _WORDS:
            raise EventTextError(f"{_start(word)!r} is not a value; strings are written in double quotes")
        return _WORDS[word]


def _string(text: str) -> str:
    try:
        string = str(json.loads(text, strict=False))
        string.encode()  # fails for half of a surrogate pair
    except ValueError as error:
        raise EventTextError(f"not a string: {_start(text)}") from error
    return string


def _number(text: str, is_decimal: bool) -> int | float | Decimal:
    try:
        if is_decimal:
            return Decimal(text)
        return Real(text) if re.search(r"[.eE]", text) else int(text)
    except (DecimalException, ValueError) as error:  # integers have at most 4,300 digits, exponents 18
        raise EventTextError(f"{_start(text)} is out of the range of numbers") from error


def to_value(written: Written, type_: Type, world: World) -> Value:
    """What is written as a value of a type; an integer may be a float. Raises EventTextError."""
    value = _to_value(written, type_, world)
    if value is None and type_.kind is not Kind.OPTIONAL:
        raise EventTextError(f"not a value of {type_}")
    return value


def _to_value(written: Written, type_: Type, world: World) -> Value:
    """As `to_value`; None = not a value of the type."""
    match type_.kind, written:
        case Kind.BOOLEAN, bool():
            return written
        case (Kind.INTEGER | Kind.FLOAT | Kind.DECIMAL, bool()):
            return None
        case Kind.INTEGER, int():
            return written if SMALLEST_INTEGER <= written <= LARGEST_INTEGER else None
        case Kind.FLOAT, int() | float():
            return _float(written)
        case Kind.DECIMAL, int() | float() | Decimal():
            return _decimal(written)
        case Kind.STRING, str():
            return written
        case Kind.LOCATION, TextEvent(name="" | "location", arguments=arguments) if len(arguments) == 4:
            return _location(arguments, world)
        case Kind.SEQUENCE, list():
            return [to_value(item, type_.of[0], world) for item in written]
        case Kind.DICTIONARY, TextPairs(items=items):
            return Dictionary.of(
                (to_value(key, type_.of[0], world), to_value(item, type_.of[1], world)) for key, item in items
            )
        case Kind.DICTIONARY, list():  # pairs, as data frames hold them
            pairs = [_pair(item) for item in written]
            return to_value(TextPairs(tuple(pairs)), type_, world)
        case Kind.OPTIONAL, TextEvent(name="optional", arguments=arguments) if len(arguments) <= 1:
            return to_value(arguments[0], type_.of[0], world) if arguments else None
        case Kind.OPTIONAL, _:
            return None if written is None else to_value(written, type_.of[0], world)
        case Kind.EVENT, TextEvent(name=name) if name.rpartition(".")[2] == type_.name.rpartition(".")[2]:
            return Event(world.event_type(type_.name), fields_of(written, world.event_type(type_.name), world))
        case _:
            return None


def _pair(written: Written) -> tuple[Written, Written]:
    if not isinstance(written, list) or len(written) != 2:
        raise EventTextError("a dictionary consists of pairs")
    return written[0], written[1]


def _float(number: float) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None


def _decimal(number: float | Decimal) -> Decimal | None:
    try:
        return decimal(
            number if isinstance(number, Decimal) else Decimal(number.text if isinstance(number, Real) else number)
        )
    except (DecimalException, EvaluationError):
        return None


def _location(corners: tuple[Written, ...], world: World) -> Location:
    x1, y1, x2, y2 = (cast(float, to_value(corner, Type.FLOAT, world)) for corner in corners)
    return Location(x1, y1, x2, y2)


def fields_of(written: TextEvent, event: EventType, world: World) -> dict[str, Value]:
    """The fields of an event as written; a null is None.

    Raises EventTextError that names the field that does not fit.
    """
    if len(written.arguments) != len(event.fields):
        raise EventTextError(
            f"{event.name!r} has {counted(len(event.fields), 'field')}, {len(written.arguments)} given"
        )
    values: dict[str, Value] = {}
    for field, argument in zip(event.fields, written.arguments, strict=True):
        try:
            values[field.name] = None if argument is None else to_value(argument, field.type, world)
        except EventTextError as error:
            given = _as_written(argument)
            raise EventTextError(f"{given} is not a value of {field.name!r} ({field.type})") from error
    return values


def _as_written(argument: Written) -> str:
    match argument:
        case TextPairs() | TextEvent() | list():
            return "the argument"
        case bool() | int() | float() | Decimal() | str() | None:
            written = repr(argument.text if isinstance(argument, Real) else argument)
            return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]} ..."
    assert_never(argument)


# JSON text of users, read so that no text can harm the process.
#
# Parsers of deeply nested text need as much stack as the text is deep. So its depth is found first,
# in time proportional to its length.

NOT_TEXT = "has half of a surrogate pair, which is not text"
"""Why some JSON, and some text of Python, cannot be used."""

_HALVES = (b"\\u", b"\xed", b"\0")
"""One of them is where half of a surrogate pair is: escaped, as bytes, or in UTF-16."""

_QUOTE, _BACKSLASH = ord('"'), ord("\\")


class JsonError(ValueError):
    """A text is not JSON that can be used; the message says why, without the text."""


def parse_json(text: str | bytes, real: Callable[[str], float] | None = None) -> Any:
    """The value of a JSON text. Raises JsonError.

    real: what a number with a point or an exponent becomes, from its text; None = a float
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise JsonError(NOT_TEXT) from None
    if has_many_brackets(data) and depth(data) > DEEPEST:
        raise JsonError(f"nested more than {DEEPEST} deep")
    try:
        value = json.loads(data, parse_float=real)
        if any(part in data for part in _HALVES):  # half of a surrogate pair is not text
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg} (character {error.pos + 1})") from None
    except UnicodeDecodeError:
        raise JsonError("not valid UTF-8") from None
    except UnicodeEncodeError:
        raise JsonError(NOT_TEXT) from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except ValueError as error:  # Python reads no integers of more than 4,300 digits
        raise JsonError(" ".join(str(error).split()).partition(";")[0]) from None
    return value


def is_unicode(text: str) -> bool:
    """Whether all of a text is Unicode, without halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_many_brackets(data: bytes) -> bool:
    """Whether a text might be nested too deeply; False is certain, and costs little."""
    return data.count(b"[") + data.count(b"{") > DEEPEST


def depth(data: bytes) -> int:
    """How deep the brackets of a JSON text are nested, those in strings ignored."""
    return int(levels(data).max(initial=0))


def levels(data: bytes) -> NDArray[np.int64]:
    """By byte: how many brackets outside of strings are open behind it."""
    content = np.frombuffer(data, np.uint8)
    folded = content & 0xDF  # `[` and `{`, `]` and `}` differ in one bit
    change = (folded == ord("[")).astype(np.int8) - (folded == ord("]"))
    change[is_in_string(content)] = 0
    return np.cumsum(change, dtype=np.int64)


def is_in_string(content: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """By byte of a JSON text: whether it is inside of a string."""
    quotes = content == _QUOTE
    slashes = np.flatnonzero(content == _BACKSLASH)
    if len(slashes):
        # Of a run of backslashes every second one is escaped. A quote behind an odd run is, too.
        is_first = np.ones(len(slashes), np.bool_)
        is_first[1:] = np.diff(slashes) > 1
        run = np.cumsum(is_first) - 1
        starts = slashes[is_first]
        is_odd = (slashes - starts[run]) % 2 == 0
        behind = slashes[is_odd] + 1
        quotes[behind[behind < len(content)]] = False
    return (np.cumsum(quotes, dtype=np.int64) & 1).astype(np.bool_)
