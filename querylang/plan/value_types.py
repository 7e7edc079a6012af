"""The types of values in the language."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Kind(StrEnum):
    """The kind of a type; the value is the word that users write, except for event types."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    LOCATION = "location"
    SEQUENCE = "sequence"
    DICTIONARY = "dictionary"
    OPTIONAL = "optional"
    EVENT = "event"


@dataclass(frozen=True, slots=True)
class Type:
    """A type: `Type.FLOAT`, `Type.sequence(Type.FLOAT)`, `Type.event("com.example.A")`.

    - `of`: the types of a sequence's elements, of a dictionary's keys and values, of an optional's
      value.
    - `name`: of an event type, as in the plan.
    """

    kind: Kind
    of: tuple[Type, ...] = ()
    name: str = ""

    BOOLEAN: ClassVar[Type]
    INTEGER: ClassVar[Type]
    FLOAT: ClassVar[Type]
    DECIMAL: ClassVar[Type]
    STRING: ClassVar[Type]
    LOCATION: ClassVar[Type]

    @classmethod
    def sequence(cls, element: Type) -> Type:
        """`sequence<element>`."""
        return cls(Kind.SEQUENCE, (element,))

    @classmethod
    def dictionary(cls, key: Type, value: Type) -> Type:
        """`dictionary<key, value>`."""
        return cls(Kind.DICTIONARY, (key, value))

    @classmethod
    def optional(cls, inner: Type) -> Type:
        """`optional<inner>`."""
        return cls(Kind.OPTIONAL, (inner,))

    @classmethod
    def event(cls, name: str) -> Type:
        """The event type of that name."""
        return cls(Kind.EVENT, name=name)

    @property
    def is_scalar(self) -> bool:
        """Whether numeric columns can hold the values: booleans, integers, floats, strings."""
        return self in SCALARS

    def __str__(self) -> str:
        """As users write it: `dictionary<string,float>`."""
        if self.kind is Kind.EVENT:
            return self.name
        inner = ",".join(map(str, self.of))
        return f"{self.kind}<{inner}>" if inner else str(self.kind)

    @classmethod
    def parse(cls, text: str) -> Type:
        """The inverse of `str`; any other word is an event type. Raises ValueError."""
        type_, rest = _parsed(text)
        if rest:
            raise ValueError(f"{text!r} is not a type")
        return type_


def _parsed(text: str) -> tuple[Type, str]:
    """The type at the start of the text, and the rest of the text."""
    word = text[: next((at for at, character in enumerate(text) if character in "<>,"), len(text))]
    rest = text[len(word) :]
    count = {"sequence": 1, "dictionary": 2, "optional": 1}.get(word, 0)
    if not word or bool(count) != rest.startswith("<"):
        raise ValueError(f"{text!r} is not a type")
    inner: list[Type] = []
    for position in range(count):
        if rest[:1] != ("," if position else "<"):
            raise ValueError(f"{text!r} is not a type")
        element, rest = _parsed(rest[1:])
        inner.append(element)
    if count and rest[:1] != ">":
        raise ValueError(f"{text!r} is not a type")
    if word in set(Kind) - {Kind.EVENT}:
        return Type(Kind(word), tuple(inner)), rest[1:] if count else rest
    return Type.event(word), rest


Type.BOOLEAN, Type.INTEGER, Type.FLOAT, Type.DECIMAL, Type.STRING, Type.LOCATION = (
    Type(kind) for kind in (Kind.BOOLEAN, Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.STRING, Kind.LOCATION)
)

SCALARS = (Type.BOOLEAN, Type.INTEGER, Type.FLOAT, Type.STRING)
NUMBERS = (Type.INTEGER, Type.FLOAT, Type.DECIMAL)
SIMPLE = (*SCALARS, Type.DECIMAL, Type.LOCATION)
"""Types that are one word."""
