"""The types of values, and typed expressions as plain data, for everything that evaluates them.

The meaning of operators and methods is not defined here but in `runtime`: over numpy columns, as a
kernel program, and in plain Python. There are no implicit conversions, and every node knows its
type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

from querylang.dataclass import dataclass, fields, replace


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
    def required(self) -> Type:
        """The type of a value that is set: of an optional that of its value."""
        return self.of[0] if self.kind is Kind.OPTIONAL else self

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


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a text, or a parameter's value, as a Python value."""

    type: Type
    value: bool | int | float | Decimal | str


@dataclass(frozen=True, slots=True)
class ParameterOf:
    """A parameter of the query; an instance's plan has none."""

    type: Type
    name: str


@dataclass(frozen=True, slots=True)
class KeyOf:
    """A key of the partition, by its position in `QueryPlan.keys`."""

    type: Type
    index: int


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A field of the event bound to a term.

    In an input's own expressions term 0 is its event. In the condition of a `without`, the term
    after the last one is the `without` event.
    """

    type: Type
    term: int
    field: str


@dataclass(frozen=True, slots=True)
class EventOf:
    """The event bound to a term. In a block an `or` term is an optional of its event type."""

    type: Type
    term: int


@dataclass(frozen=True, slots=True)
class SelectOf:
    """The value of the `select` clause at this position, for `having` and the block."""

    type: Type
    index: int


@dataclass(frozen=True, slots=True)
class LocalOf:
    """A local variable or an action's parameter. In an event's action slot 0 is the event."""

    type: Type
    slot: int


@dataclass(frozen=True, slots=True)
class MemberOf:
    """A field of an event that is the value of a variable, of a field, of a call."""

    type: Type
    receiver: Expression
    field: str


@dataclass(frozen=True, slots=True)
class IndexOf:
    """An element of a sequence (from 0), a value of a dictionary; a missing one is a failure."""

    type: Type
    receiver: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` on numbers, `not x` on booleans; `x is null`, which is never null, on any type."""

    type: Type
    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Both operands have one type."""

    type: Type
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a built-in method: `receiver.method(arguments)`.

    Events have `toString getTime clone`.

    A method of a type has the type's name before a dot, `integer.parse`, and its first argument as
    receiver.
    """

    type: Type
    method: str
    receiver: Expression
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call of an action of the query (`receiver` None) or of the receiver's event type.

    `type` None: the action returns nothing.
    """

    type: Type | None
    action: str
    receiver: Expression | None
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class New:
    """An event or a location with one part per field, or an optional with one part or none."""

    type: Type
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence with its elements, or a dictionary with keys and values in turn."""

    type: Type
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over all candidates: `avg(a.x)`; only in `select` and `having`."""

    type: Type
    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class PrevOf:
    """A field of the candidate's event directly before the one that is bound to a term.

    `field` empty: its time in seconds.
    """

    type: Type
    term: int
    field: str


@dataclass(frozen=True, slots=True)
class EndOf:
    """The first or the last event of a run; in a block an optional if the run may be empty."""

    type: Type
    function: str
    term: int


@dataclass(frozen=True, slots=True)
class Fold:
    """`sum(a.v)`: over the events of a run, or over runs of one group in pairs.

    In `argument` a run's term is one of its events. `terms`: the runs. In a block it is an optional
    if it may have no value.
    """

    type: Type
    function: str
    argument: Expression
    terms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a table beside the stream says of a key: `Asset[a.host].owner`, `Asset.hasKey(a.host)`.

    - `field`: of the key's row; empty: whether there is a row.
    - `keys`: the values of the table's keys, in their order.
    - `has_default`: without a row it is the default of its type; else that is a failure.
    """

    type: Type
    table: str
    field: str
    keys: tuple[Expression, ...]
    has_default: bool = False


Expression = (
    Literal
    | ParameterOf
    | KeyOf
    | FieldOf
    | EventOf
    | SelectOf
    | LocalOf
    | MemberOf
    | IndexOf
    | Unary
    | Binary
    | Call
    | Invoke
    | New
    | Items
    | Aggregate
    | PrevOf
    | EndOf
    | Fold
    | Lookup
)

NODES: tuple[type, ...] = (
    *(Literal, ParameterOf, KeyOf, FieldOf, EventOf, SelectOf, LocalOf, MemberOf, IndexOf, Unary, Binary, Call),
    *(Invoke, New, Items, Aggregate, PrevOf, EndOf, Fold, Lookup),
)


def type_of(node: Expression) -> Type:
    """The type of an expression; only calls of actions that return nothing have no type."""
    assert node.type is not None, "the checker accepts only values where values are needed"
    return node.type


def children(node: Expression) -> tuple[Expression, ...]:
    """The direct parts of the expression, in text order."""
    match node:
        case MemberOf(receiver=receiver):
            return (receiver,)
        case IndexOf(receiver=receiver, index=index):
            return (receiver, index)
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Call(receiver=receiver, arguments=arguments):
            return (receiver, *arguments)
        case Invoke(receiver=receiver, arguments=arguments):
            return arguments if receiver is None else (receiver, *arguments)
        case Fold(argument=argument):
            return (argument,)
        case New(arguments=inner) | Items(items=inner) | Aggregate(arguments=inner) | Lookup(keys=inner):
            return inner
        case _:
            return ()


def walk(node: Expression) -> Iterator[Expression]:
    """The expression and all its parts, each before its own parts."""
    yield node
    for child in children(node):
        yield from walk(child)


def terms_of(node: Expression) -> frozenset[int]:
    """The indexes of the terms that the expression mentions."""
    return frozenset(item.term for item in walk(node) if isinstance(item, FieldOf | EventOf | PrevOf | EndOf))


def each_terms_of(node: Expression) -> frozenset[int]:
    """The indexes of the terms that the expression mentions outside of folds, one event each."""
    if isinstance(node, FieldOf | EventOf | PrevOf):
        return frozenset((node.term,))
    if isinstance(node, Fold):
        return frozenset()
    return frozenset().union(*map(each_terms_of, children(node)))


def rewritten(node: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with `change` applied to each node, parts first."""

    def inner(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(inner(item) for item in value)
        return rewritten(value, change) if type(value) in NODES else value

    if not children(node):
        return change(node)
    return change(replace(node, **{item.name: inner(getattr(node, item.name)) for item in fields(node)}))
