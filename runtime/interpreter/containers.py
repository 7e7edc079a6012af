"""Methods of sequences, dictionaries, optionals, locations and events.

Methods in the tables `..._OF_TYPE` also take the world and the receiver's type, for default values
and texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from querylang.errors import counted
from querylang.plan.expression import Type
from runtime.exact_times import MICROSECONDS
from runtime.interpreter.strings import join
from runtime.interpreter.value_text import inner_text, text_of
from runtime.interpreter.values import (
    Dictionary,
    EvaluationError,
    Event,
    Location,
    Value,
    World,
    default_value,
    equal,
    limit_parts,
    limit_size,
    order_key,
    seconds,
)

Sequence = list[Any]


def element(sequence: Sequence, index: int) -> Value:
    """The element at an index, from 0; EvaluationError if there is none."""
    return sequence[_checked(sequence, index, len(sequence))]


def put(sequence: Sequence, index: int, value: Value) -> None:
    """Replace the element at an index; EvaluationError if there is none."""
    sequence[_checked(sequence, index, len(sequence))] = value


def _checked(sequence: Sequence, index: int, limit: int) -> int:
    if not 0 <= index < limit:
        raise EvaluationError(f"index {index} is outside of a sequence of {counted(len(sequence), 'element')}")
    return index


def _index_of(sequence: Sequence, wanted: Value) -> int:
    limit_parts(sequence)
    return next((index for index, item in enumerate(sequence) if equal(item, wanted)), -1)


def _append(sequence: Sequence, value: Value) -> None:
    limit_size(len(sequence) + 1)
    sequence.append(value)


def _append_sequence(sequence: Sequence, more: Sequence) -> None:
    limit_size(len(sequence) + len(more))
    sequence.extend(list(more))


def _insert(sequence: Sequence, value: Value, index: int) -> None:
    limit_size(len(sequence) + 1)
    sequence.insert(_checked(sequence, index, len(sequence) + 1), value)


def _remove(sequence: Sequence, index: int) -> None:
    del sequence[_checked(sequence, index, len(sequence))]


def _sort(sequence: Sequence) -> None:
    limit_parts(sequence)
    sequence.sort(key=order_key)


def _set_size(world: World, type_: Type, sequence: Sequence, size: int) -> None:
    if size < 0:
        raise EvaluationError(f"a sequence cannot have {size} elements")
    limit_size(size)
    del sequence[size:]
    sequence.extend(default_value(type_.of[0], world) for _ in range(size - len(sequence)))


SEQUENCE_METHODS: dict[str, Callable[..., Any]] = {
    "size": len,
    "isEmpty": lambda sequence: not sequence,
    "contains": lambda sequence, wanted: _index_of(sequence, wanted) >= 0,
    "indexOf": _index_of,
    "getOr": lambda sequence, index, other: sequence[index] if 0 <= index < len(sequence) else other,
    "append": _append,
    "appendSequence": _append_sequence,
    "insert": _insert,
    "remove": _remove,
    "clear": list.clear,
    "setCapacity": lambda _sequence, _capacity: None,
    "sort": _sort,
    "reverse": list.reverse,
}

SEQUENCE_METHODS_OF_TYPE: dict[str, Callable[..., Any]] = {
    "setSize": _set_size,
    "join": lambda _world, type_, sequence, separator: join(
        separator, [text_of(item, type_.of[0]) for item in sequence]
    ),
}


def value_at(dictionary: Dictionary, key: Value) -> Value:
    """The value of a key; EvaluationError if the dictionary does not have it."""
    _require(dictionary, key)
    return dictionary[key]


def _require(dictionary: Dictionary, key: Value) -> None:
    if key not in dictionary:
        raise EvaluationError(f"the dictionary has no key {inner_text(key)}")


def _remove_key(dictionary: Dictionary, key: Value) -> None:
    _require(dictionary, key)
    del dictionary[key]


def _get_or(dictionary: Dictionary, key: Value, other: Value) -> Value:
    entry = dictionary.entries.get(order_key(key))
    return other if entry is None else entry[1]


def _get_or_add(dictionary: Dictionary, key: Value, other: Value) -> Value:
    if key not in dictionary:
        dictionary[key] = other
    return dictionary[key]


def _get_or_default(world: World, type_: Type, dictionary: Dictionary, key: Value, *other: Value) -> Value:
    if key in dictionary:
        return dictionary[key]
    return other[0] if other else default_value(type_.of[1], world)


def _get_or_add_default(world: World, type_: Type, dictionary: Dictionary, key: Value) -> Value:
    if key not in dictionary:
        dictionary[key] = default_value(type_.of[1], world)
    return dictionary[key]


DICTIONARY_METHODS: dict[str, Callable[..., Any]] = {
    "size": len,
    "isEmpty": lambda dictionary: not dictionary.entries,
    "hasKey": lambda dictionary, key: key in dictionary,
    "getOr": _get_or,
    "getOrAdd": _get_or_add,
    "keys": lambda dictionary: [key for key, _value in dictionary.items()],
    "values": lambda dictionary: [value for _key, value in dictionary.items()],
    "add": Dictionary.__setitem__,
    "remove": _remove_key,
    "clear": lambda dictionary: dictionary.entries.clear(),
}

DICTIONARY_METHODS_OF_TYPE: dict[str, Callable[..., Any]] = {
    "getOrDefault": _get_or_default,
    "getOrAddDefault": _get_or_add_default,
}


def _get_or_throw(value: Value) -> Value:
    if value is None:
        raise EvaluationError("the optional is empty")
    return value


OPTIONAL_METHODS: dict[str, Callable[..., Any]] = {
    "empty": lambda value: value is None,
    "getOrThrow": _get_or_throw,
    "getOr": lambda value, other: other if value is None else value,
}


def _expand(location: Location, by: float) -> Location:
    return Location(location.x1 - by, location.y1 - by, location.x2 + by, location.y2 + by)


def _inside(inner: Location, outer: Location) -> bool:
    across = min(outer.x1, outer.x2) <= min(inner.x1, inner.x2) and max(inner.x1, inner.x2) <= max(outer.x1, outer.x2)
    along = min(outer.y1, outer.y2) <= min(inner.y1, inner.y2) and max(inner.y1, inner.y2) <= max(outer.y1, outer.y2)
    return across and along


LOCATION_METHODS: dict[str, Callable[..., Any]] = {"expand": _expand, "inside": _inside}


def _microseconds(event: Event) -> int:
    if event.time is None:
        raise EvaluationError(f"this {event.type.name} has no time: the program made it")
    return event.time


EVENT_METHODS: dict[str, Callable[..., Any]] = {
    "getTime": lambda event: seconds(_microseconds(event)),
    MICROSECONDS: _microseconds,
    "getName": lambda event: event.type.name,
    "getFieldNames": lambda event: [field.name for field in event.type.fields],
    "getFieldTypes": lambda event: [str(field.type) for field in event.type.fields],
    "getFieldValues": lambda event: [text_of(event.values.get(field.name), field.type) for field in event.type.fields],
}
