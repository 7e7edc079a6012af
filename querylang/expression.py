"""Checked expressions as plain data: one typed tree, read by everything that evaluates.

Takes nothing; gives frozen nodes and their dict form. What an operator means is not said here: every reading
of the tree (numpy columns, kernel program, per-match Python) lives in `runtime.expressions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never


class Type(StrEnum):
    """A value type of the language; the value is the word that users write."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the query text."""

    type: Type
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A field of the event bound to a term; in an input's filter term 0 is the event itself."""

    type: Type
    term: int
    field: str


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` on numbers, `not x` on booleans."""

    type: Type
    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Both operands have one type: nothing converts by itself."""

    type: Type
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in method of a value: `receiver.method(arguments)`."""

    type: Type
    method: str
    receiver: Expression
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class EventText:
    """`w.toString()` of the event bound to a term: `A(1,"x",2.5)`."""

    term: int
    type: Type = Type.STRING


Expression = Literal | FieldOf | Unary | Binary | Call | EventText


def terms_of(expression: Expression) -> frozenset[int]:
    """The indexes of the terms that the expression mentions."""
    match expression:
        case Literal():
            return frozenset()
        case FieldOf(term=term) | EventText(term=term):
            return frozenset((term,))
        case Unary(operand=operand):
            return terms_of(operand)
        case Binary(left=left, right=right):
            return terms_of(left) | terms_of(right)
        case Call(receiver=receiver, arguments=arguments):
            return frozenset().union(terms_of(receiver), *map(terms_of, arguments))
    assert_never(expression)


def to_dict(expression: Expression) -> dict[str, Any]:
    """Plain data: JSON can hold it, whatever its values (an infinity is text)."""
    match expression:
        case Literal(type=type_, value=value):
            return {"is": "literal", "type": str(type_), "value": repr(value) if type_ is Type.FLOAT else value}
        case FieldOf(type=type_, term=term, field=field):
            return {"is": "field", "type": str(type_), "term": term, "field": field}
        case Unary(type=type_, operator=operator, operand=operand):
            return {"is": "unary", "type": str(type_), "operator": operator, "operand": to_dict(operand)}
        case Binary(type=type_, operator=operator, left=left, right=right):
            return {
                "is": "binary",
                "type": str(type_),
                "operator": operator,
                "left": to_dict(left),
                "right": to_dict(right),
            }
        case Call(type=type_, method=method, receiver=receiver, arguments=arguments):
            return {
                "is": "call",
                "type": str(type_),
                "method": method,
                "receiver": to_dict(receiver),
                "arguments": [to_dict(argument) for argument in arguments],
            }
        case EventText(term=term):
            return {"is": "event_text", "term": term}
    assert_never(expression)


def from_dict(data: dict[str, Any]) -> Expression:
    """The inverse of `to_dict`; raises ValueError for a kind of node that this version does not know."""
    match data["is"]:
        case "literal":
            type_ = Type(data["type"])
            return Literal(type_, float(data["value"]) if type_ is Type.FLOAT else data["value"])
        case "field":
            return FieldOf(Type(data["type"]), data["term"], data["field"])
        case "unary":
            return Unary(Type(data["type"]), data["operator"], from_dict(data["operand"]))
        case "binary":
            return Binary(Type(data["type"]), data["operator"], from_dict(data["left"]), from_dict(data["right"]))
        case "call":
            arguments = tuple(from_dict(argument) for argument in data["arguments"])
            return Call(Type(data["type"]), data["method"], from_dict(data["receiver"]), arguments)
        case "event_text":
            return EventText(data["term"])
        case kind:
            raise ValueError(f"expression of unknown kind {kind!r}")
