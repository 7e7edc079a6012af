"""Default values: of declarations without a value, `new T`, and fields that `%send` leaves out."""

from __future__ import annotations

from decimal import Decimal

from querylang.checker.names.namespaces import Namespace
from querylang.plan.expression import Expression, Items, Kind, Literal, New, Type

LARGEST = 1000
"""The most parts of a default value, nested ones included."""

_SIMPLE: dict[Type, Expression] = {
    Type.BOOLEAN: Literal(Type.BOOLEAN, False),
    Type.INTEGER: Literal(Type.INTEGER, 0),
    Type.FLOAT: Literal(Type.FLOAT, 0.0),
    Type.DECIMAL: Literal(Type.DECIMAL, Decimal(0)),
    Type.STRING: Literal(Type.STRING, ""),
    Type.LOCATION: New(Type.LOCATION, (Literal(Type.FLOAT, 0.0),) * 4),
}


class TooLargeError(Exception):
    """The default value would have more than `LARGEST` parts."""


def default_of(type_: Type, namespace: Namespace) -> Expression | None:
    """The default value; None for an event type that is open. Raises TooLargeError."""
    return _Defaults(namespace).of(type_)


class _Defaults:
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._parts = 0

    def of(self, type_: Type) -> Expression | None:
        self._parts += 1
        if self._parts > LARGEST:
            raise TooLargeError
        match type_.kind:
            case Kind.SEQUENCE | Kind.DICTIONARY:
                return Items(type_, ())
            case Kind.OPTIONAL:
                return New(type_, ())
            case Kind.EVENT:
                return self._event(type_)
            case _:
                return _SIMPLE[type_]

    def _event(self, type_: Type) -> Expression | None:
        schema = self._namespace.of(type_)
        parts = [] if schema.is_open else [self.of(item.type) for item in schema.fields]
        values = tuple(part for part in parts if part is not None)
        return New(type_, values) if not schema.is_open and len(values) == len(parts) else None
