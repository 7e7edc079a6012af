"""The type of a column that no definition knows, from its Arrow type.

A struct becomes an event type of its own, with the names of event and field: `A_customer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from querylang.errors import InputError
from querylang.plan.expression import SIMPLE, Kind, Type
from querylang.plan.library import DECIMAL_PLACES
from runtime.arrow_types import arrow_type
from runtime.reading.conversion import NO_PLAN, is_time
from runtime.reading.formats.raw_table import plain_kind
from runtime.timestamps import is_text

Fields = Mapping[str, Type]
"""The fields of an event type, in order."""

_WHOLE_DIGITS = 38 - DECIMAL_PLACES


@dataclass(slots=True)
class EventsOfStructs:
    """The event types that structs become, by name."""

    found: dict[str, Fields] = field(default_factory=dict)

    def type_of(self, kind: pa.DataType, name: str) -> Type | None:
        """The type whose values a column of this Arrow type holds; None = there is none.

        name: of the event type, if it becomes one. Decimals with more digits than ours are floats.
        """
        kind = plain_kind(kind)
        if pa.types.is_map(kind):
            key, value = self.type_of(kind.key_type, name), self.type_of(kind.item_type, name)
            return None if key is None or value is None or key not in SIMPLE else Type.dictionary(key, value)
        if is_list(kind):
            element = self.type_of(kind.value_type, name)
            return None if element is None else Type.sequence(element)
        if pa.types.is_struct(kind):
            return Type.LOCATION if kind == arrow_type(Type.LOCATION, NO_PLAN) else self._event(kind, name)
        return _scalar(kind)

    def _event(self, kind: pa.StructType, name: str) -> Type | None:
        types = ((part.name, self.type_of(part.type, nested_name(name, part.name))) for part in kind)
        return self.event_of({part: type_ for part, type_ in types if type_ is not None}, name)

    def event_of(self, fields: Fields, name: str) -> Type | None:
        """The event type with these fields, and others that were found; None = there are none."""
        if not fields:
            return None
        self.found[name] = joined_fields(self.found.get(name, {}), fields, name)
        return Type.event(name)


def parts_without_type(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    """The parts of a column whose values no type holds, such as `user.age`, with their Arrow types.

    path: of the column. The type of what has no value is null.
    """
    kind = plain_kind(kind)
    if pa.types.is_struct(kind) and kind.num_fields:
        for part in kind:
            yield from parts_without_type(part.type, f"{path}.{part.name}")
    elif is_list(kind):
        for inner, own in parts_without_type(kind.value_type, path):
            yield inner, kind if inner == path and not pa.types.is_null(own) else own
    elif pa.types.is_map(kind):
        parts = [*parts_without_type(kind.key_type, path), *parts_without_type(kind.item_type, path)]
        if pa.types.is_nested(plain_kind(kind.key_type)):
            yield path, kind
        elif parts:
            yield path, pa.null() if all(pa.types.is_null(own) for _, own in parts) else kind
    elif _scalar(kind) is None:
        yield path, pa.null() if pa.types.is_struct(kind) else kind


def is_list(kind: pa.DataType) -> bool:
    """Whether its values are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def joined_fields(before: Fields, found: Fields, event: str, table: str = "") -> Fields:
    """The fields that two tables show of an event type. Raises InputError if they disagree.

    An integer here and a float there is a float.
    """
    fields = dict(before)
    for name, type_ in found.items():
        known = fields.setdefault(name, type_)
        if {known, type_} == {Type.INTEGER, Type.FLOAT}:
            fields[name] = Type.FLOAT
        elif known != type_:
            place = f"{table}: " if table else ""
            raise InputError(f"{place}field {name!r} of {event!r} is {type_} here and {known} before")
    return fields


def with_nested(schemas: Mapping[str, Fields], names: Iterable[str]) -> dict[str, Fields]:
    """These of the event types, and those that their fields have."""
    found: dict[str, Fields] = {}
    waiting = [name for name in names if name in schemas]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = schemas[name]
            waiting += [event for type_ in schemas[name].values() for event in _events_in(type_)]
    return found


def _events_in(type_: Type) -> list[str]:
    inner = [event for part in type_.of for event in _events_in(part)]
    return [type_.name] if type_.kind is Kind.EVENT else inner


def nested_name(event: str, part: str) -> str:
    """The name of the event type of a part; every character that no name may have is a `_`."""
    return re.sub(r"\W", "_", f"{event}_{part}")


def _scalar(kind: pa.DataType) -> Type | None:
    if is_text(kind):
        return Type.STRING
    if pa.types.is_boolean(kind):
        return Type.BOOLEAN
    if pa.types.is_integer(kind):
        return Type.INTEGER
    if pa.types.is_decimal(kind) and kind.scale <= DECIMAL_PLACES and kind.precision - kind.scale <= _WHOLE_DIGITS:
        return Type.DECIMAL
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or is_time(kind):
        return Type.FLOAT
    return None
