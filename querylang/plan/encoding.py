"""Encode frozen data classes as plain data for JSON, and decode it.

An object becomes a dictionary with the class's name under `is`. Tuples become lists; floats that
JSON cannot express, decimals and types become text. Only the listed classes are ever constructed.

Fields that a later version added are left out where they have their defaults. So data that does not
use them is the same as before, and data of earlier versions can be read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from querylang.plan.value_types import Type


class Codec:
    """Encodes and decodes nested instances of `classes`, and of nothing else.

    added: by class the fields that may be left out, each with its default
    """

    def __init__(self, classes: Iterable[type], added: Mapping[type, Mapping[str, Any]]) -> None:
        self._fields: dict[type, tuple[str, ...]] = {
            kind: tuple(item.name for item in dataclasses.fields(kind)) for kind in classes
        }
        self._added = added
        self._kinds = {kind.__name__: kind for kind in self._fields}
        self._shapes: dict[tuple[str, ...], type] = {}

    def encode(self, value: Any) -> Any:
        """Plain data."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [self.encode(item) for item in value]
        fields = self._fields.get(kind)
        if fields is None:
            return [self.encode(item) for item in value] if isinstance(value, tuple) else _encoded(value)
        added = self._added.get(kind, {})
        written = (name for name in fields if name not in added or getattr(value, name) != added[name])
        return {"is": kind.__name__, **{name: self.encode(getattr(value, name)) for name in written}}

    def decode(self, data: Any) -> Any:
        """The inverse of `encode`; raises ValueError for data that this version does not know."""
        kind = type(data)
        if kind in _PLAIN:
            return data
        if kind is list:
            return tuple([self.decode(item) for item in data])
        match data:
            case {"is": "float" | "decimal" | "type" as name, "value": str(text)}:
                return _decoded(name, text)
            case {"is": str(name)}:
                return self._made(name, {field: value for field, value in data.items() if field != "is"})
        raise ValueError(f"{data!r} is not plain data of this format")

    def _made(self, name: str, values: dict[str, Any]) -> Any:
        shape = (name, *values)
        kind = self._shapes.get(shape)
        if kind is None:
            kind = self._kinds.get(name)
            if kind is None or values.keys() | self._added.get(kind, {}).keys() != set(self._fields[kind]):
                raise ValueError(
                    f"a {name!r} with {', '.join(values) or 'nothing'} is not of a kind that this version knows"
                )
            self._shapes[shape] = kind
        return kind(**{field: self.decode(value) for field, value in values.items()})


_PLAIN = frozenset({type(None), bool, int, str})
"""The types of values that JSON holds as they are."""


def _encoded(value: Any) -> Any:
    match value:
        case StrEnum():
            return value.value
        case int() | str():
            return value
        case float():
            return {"is": "float", "value": repr(value)}
        case Decimal():
            return {"is": "decimal", "value": str(value)}
        case Type():
            return {"is": "type", "value": str(value)}
    raise KeyError(type(value))


@lru_cache(maxsize=4096)  # the few types of many expressions
def _decoded(name: str, text: str) -> Any:
    match name:
        case "float":
            return float(text)
        case "decimal":
            return Decimal(text)
    return Type.parse(text)
