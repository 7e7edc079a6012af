"""Refuse schemas and messages in Avro that unfold without a bound, before fastavro has them.

A message of nine bytes may be a list of a thousand million empty items, and each level of a schema
may use the one below twice. fastavro reads nested values by calling itself, so a message of a
schema that contains itself may end the process. Where the length of a message bounds its values
and its schema bounds their depth, nothing is walked: most messages cost nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querylang.dataclass import dataclass, field
from runtime.interpreter.written_values import depth

DEEPEST = 100
"""How deep the values of a message, and the types of a schema, may be nested."""

MOST_TYPES = 10_000
"""How many types a schema may have, where each name counts as often as it is used."""

LONGEST_SCHEMA = 4 << 20
"""Bytes."""

_FREE = 10_000
"""How many values a message may have that take no bytes, besides one for each of its bytes."""

_LONGEST_DECIMAL = 8_192
"""Bytes of a number without a bound; Python takes time in proportion to the square of it."""

_BRACKETS_PER_TYPE = 4


class WrongSchema(ValueError):
    """A schema that cannot be used; the text says why."""


@dataclass(slots=True)
class Shape:
    """A type, as far as the walk has to know it.

    kind: `null`, `long` (enums too), `fixed`, `bytes`, `decimal`, `union`, `record`, `array`, `map`
    size: of `fixed`
    parts: of a union, a record, or the items of a list or map. A record that contains itself is
        among its own parts
    """

    kind: str
    size: int = 0
    parts: list[Shape] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds the messages of a schema.

    shape: of a message
    is_bounded: whether its length and the schema bound it
    has_decimals: whether it has numbers of any length
    """

    shape: Shape
    is_bounded: bool
    has_decimals: bool

    def problem(self, data: bytes, start: int) -> str | None:
        """Why a message must not be decoded; None = it may be. `start`: where its values begin."""
        if self.is_bounded and not (self.has_decimals and len(data) > _LONGEST_DECIMAL):
            return None
        try:
            return _walked(data, start, self.shape)
        except IndexError:
            return "it ends too early"


def refuse_text(text: str) -> None:
    """Raise WrongSchema for a text that is too long, or nested too deeply, to be parsed."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise WrongSchema("not a schema of Avro: it is not Unicode") from error
    if len(data) > LONGEST_SCHEMA:
        raise WrongSchema(f"longer than {LONGEST_SCHEMA >> 20} MB")
    if depth(data) > DEEPEST * _BRACKETS_PER_TYPE:
        raise WrongSchema(f"nested more than {DEEPEST} deep")


def bounds_of(schema: Any, named: Mapping[str, Any]) -> Bounds:
    """The bounds of a parsed schema; `named`: the types that it names. Raises WrongSchema."""
    shapes = _Shapes(named)
    shape = shapes.of(schema, 0)
    has_empty_items = any(_is_empty(item.parts[0], 0) for item in shapes.lists)
    return Bounds(shape, not shapes.contains_itself and not has_empty_items, shapes.has_decimals)


class _Shapes:
    """Shapes of types, each name once.

    measures: by `id` of a shape: how many types it has, and how deep
    lists: all shapes of lists
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = named
        self.known: dict[str, Shape] = {}
        self.open: set[str] = set()
        self.measures: dict[int, tuple[int, int]] = {}
        self.lists: list[Shape] = []
        self.contains_itself = self.has_decimals = False

    def of(self, schema: Any, level: int) -> Shape:
        """The shape of a type that is nested so deeply."""
        name = schema if isinstance(schema, str) else schema.get("name") if isinstance(schema, dict) else None
        if isinstance(name, str) and name in self.known:
            self.contains_itself |= name in self.open
            shape = self.known[name]
            self._refuse(level, *self.measures.get(id(shape), (1, 1)))
            return shape
        if isinstance(schema, str) and schema in self.named:
            return self.of(self.named[schema], level)
        shape = Shape("null")
        if isinstance(name, str) and name != schema:
            self.known[name] = shape
            self.open.add(name)
        self._fill(shape, schema, level)
        self.open.discard(name or "")
        return shape

    def _fill(self, shape: Shape, schema: Any, level: int) -> None:
        self._refuse(level, 1, 1)
        kind = schema.get("type") if isinstance(schema, dict) else schema
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        inner: list[Any] = []
        match kind:
            case list():
                shape.kind, inner = "union", kind
            case dict():
                found = self.of(kind, level)
                shape.kind, shape.size, shape.parts = found.kind, found.size, found.parts
                self.measures[id(shape)] = self.measures.get(id(found), (1, 1))
                return
            case "record" | "error":
                shape.kind, inner = "record", [item["type"] for item in schema["fields"]]
            case "array" | "map":
                shape.kind, inner = kind, [schema["items" if kind == "array" else "values"]]
                self.lists += [shape] if kind == "array" else []
            case "fixed":
                shape.kind, shape.size = "fixed", _size(schema.get("size"))
            case "bytes" | "string":
                is_decimal = kind == "bytes" and logical == "decimal"
                self.has_decimals |= is_decimal
                shape.kind = "decimal" if is_decimal else "bytes"
            case "int" | "long" | "enum":
                shape.kind = "long"
            case "boolean" | "float" | "double":
                shape.kind, shape.size = "fixed", {"boolean": 1, "float": 4, "double": 8}[kind]
            case "null":
                pass
            case str() if kind in self.named and kind != schema:
                self._fill(shape, self.named[kind], level)
                return
            case _:
                raise WrongSchema(f"not a schema of Avro: a type {kind!r}"[:200])
        types, deepest = 1, 1
        for part in inner:
            found = self.of(part, level + 1)
            shape.parts.append(found)
            more, below = self.measures.get(id(found), (1, 1))
            types, deepest = types + more, max(deepest, below + 1)
            self._refuse(level, types, deepest)
        self.measures[id(shape)] = types, deepest

    def _refuse(self, level: int, types: int, deepest: int) -> None:
        if level + deepest > DEEPEST:
            raise WrongSchema(f"nested more than {DEEPEST} deep")
        if types > MOST_TYPES:
            raise WrongSchema(f"has more than {MOST_TYPES:,} types, where each name counts as often as it is used")


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WrongSchema(f"not a schema of Avro: the size {value!r}"[:200])
    return value


def _is_empty(shape: Shape, level: int) -> bool:
    """Whether a value may take no bytes; what contains itself takes some, or has no end."""
    match shape.kind:
        case "null":
            return True
        case "fixed":
            return shape.size == 0
        case "record":
            return level > DEEPEST or all(_is_empty(part, level + 1) for part in shape.parts)
        case _:
            return False


def _walked(data: bytes, at: int, shape: Shape) -> str | None:
    """What is wrong with a message; raises IndexError where it ends too early.

    What is left of the message is a stack of shapes, so no depth of it needs the process's own.
    """
    free = _FREE + len(data)
    work: list[tuple[Shape, int, int]] = [(shape, 1, 0)]  # with how deep it is, and items that follow
    while work:
        part, level, more = work.pop()
        match part.kind:
            case "null":
                free -= 1
            case "fixed":
                free -= not part.size
                at += part.size
            case "long":
                _, at = _long(data, at)
            case "bytes" | "decimal":
                length, at = _long(data, at)
                if length < 0 or (part.kind == "decimal" and length > _LONGEST_DECIMAL):
                    return f"a length of {length} bytes"
                at += length
            case "union":
                number, at = _long(data, at)
                if not 0 <= number < len(part.parts):
                    return "it has a wrong number of a branch"
                work.append((part.parts[number], level, 0))
            case "record":
                free -= not part.parts
                work += [(item, level + 1, 0) for item in reversed(part.parts)]
            case _:
                if not more:
                    more, at = _long(data, at)
                    if more < 0:
                        more = -more
                        _, at = _long(data, at)
                    if more > _FREE + len(data):
                        return f"a list of {more:,} items in {len(data)} bytes"
                    if more:
                        work.append((part, level, more))
                    continue
                # an item, then those behind it, then the next block
                work.append((part, level, more - 1))
                if part.kind == "map":
                    length, at = _long(data, at)
                    if length < 0:
                        return f"a length of {length} bytes"
                    at += length
                work.append((part.parts[0], level + 1, 0))
        if free < 0:
            return f"it unfolds to more than {_FREE:,} values without bytes"
        if level > DEEPEST:
            return f"nested more than {DEEPEST} deep"
        if at > len(data):
            raise IndexError
    return None


def _long(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it; raises IndexError."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 63:
            raise IndexError
    value &= (1 << 64) - 1
    return (value >> 1) ^ -(value & 1), at
