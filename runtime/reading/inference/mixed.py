"""The type of values that no type holds together, such as objects beside text: that of most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from querylang.plan.expression import Type
from querylang.plan.library import LARGEST_INTEGER, SMALLEST_INTEGER
from runtime.interpreter.written_values import JsonError, parse_json
from runtime.reading.formats.asked import MOST_NAMES
from runtime.reading.inference.types import EventsOfStructs, nested_name

_NUMBER, _OBJECT, _LIST, _TEXT, _BOOLEAN = range(5)
"""Kinds of values of JSON."""


def type_of_mixed(column: pa.Array, name: str, structs: EventsOfStructs) -> Type | None:
    """The type of a column of JSON: objects and lists as text; None = most of them have no type.

    name: of the event type that objects become
    """
    return type_of_most([_parsed(cell) for cell in column.to_pylist() if cell is not None], name, structs)


def _parsed(text: str) -> Any:
    try:
        return parse_json(text.encode("utf-8", "surrogatepass"))
    except JsonError:
        return text


def type_of_most(values: Iterable[Any], name: str, structs: EventsOfStructs) -> Type | None:
    """The type that most values have; of parts alike. None = they have none."""
    given = [value for value in values if value is not None]
    kinds = Counter(map(_kind, given))
    if not kinds:
        return None
    ((most, _),) = kinds.most_common(1)
    chosen = [value for value in given if _kind(value) == most]
    if most == _OBJECT:
        return _event(chosen, name, structs)
    if most == _LIST:
        element = type_of_most((item for value in chosen for item in value), name, structs)
        return None if element is None else Type.sequence(element)
    if most == _NUMBER:
        are_whole = all(isinstance(value, int) and SMALLEST_INTEGER <= value <= LARGEST_INTEGER for value in chosen)
        return Type.INTEGER if are_whole else Type.FLOAT
    return Type.BOOLEAN if most == _BOOLEAN else Type.STRING


def _event(objects: Sequence[dict[str, Any]], name: str, structs: EventsOfStructs) -> Type | None:
    names = list(dict.fromkeys(key for value in objects for key in value))
    if len(names) > MOST_NAMES:
        return None
    types = {key: type_of_most((value.get(key) for value in objects), nested_name(name, key), structs) for key in names}
    return structs.event_of({key: type_ for key, type_ in types.items() if type_ is not None}, name)


def _kind(value: Any) -> int:
    if isinstance(value, dict):
        return _OBJECT
    if isinstance(value, list):
        return _LIST
    if isinstance(value, bool):
        return _BOOLEAN
    return _TEXT if isinstance(value, str) else _NUMBER
