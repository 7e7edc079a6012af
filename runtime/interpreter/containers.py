"""The methods of all types (`querylang.plan.library`), by kind of receiver and name.

Those of sequences, dictionaries, optionals, locations and events are here, too. The arguments of a
method are the receiver and those of the call; it raises EvaluationError if there is no value.
Before them, methods of a table `..._OF_TYPE` take the world and the receiver's type, for default
values and texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from querylang.dataclass import dataclass
from querylang.errors import counted
from querylang.plan.constants import NoValueError, is_constant, value_of
from querylang.plan.expression import Call, IndexOf, Items, Kind, Type
from querylang.plan.library import TIME_FORMAT
from runtime.exact_times import MICROSECONDS
from runtime.interpreter import decimals
from runtime.interpreter.decimals import DECIMAL_METHODS
from runtime.interpreter.numbers import FLOAT_METHODS, INTEGER_METHODS, larger, smaller
from runtime.interpreter.strings import STRING_METHODS, join
from runtime.interpreter.times import TIME_FORMAT_METHODS
from runtime.interpreter.values import (
    Dictionary,
    EvaluationError,
    Event,
    Location,
    Value,
    World,
    clone,
    default_value,
    equal,
    inner_text,
    limit_parts,
    limit_size,
    order_key,
    seconds,
    text_of,
)
from runtime.interpreter.written_values import EventTextError, parse_value

# Containers that a text spells out: made once, and looked up by hash.
#
# `[1, 2, 3].contains(a.code)` is the usual way to ask for one of many values. Made anew for each
# event such a list costs length times events, though its elements are known before the first one.

_READS = {
    Kind.SEQUENCE: frozenset({"contains", "getOr", "indexOf", "isEmpty", "join", "size"}),
    Kind.DICTIONARY: frozenset({"getOr", "getOrDefault", "hasKey", "isEmpty", "size"}),
}
"""Methods that leave their receiver as it is; no other may get a container that calls share."""

_MOST_KEPT = 1_000
"""Containers that are kept; few programs have as many."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A container of scalars that is the same for all events; it is made once, and equals itself.

    value: shared by all that read it
    places: of a sequence, by `order_key` of an element: where it is first. NaN equals nothing
    """

    value: list[Value] | Dictionary
    places: Mapping[object, int]

    def place_of(self, wanted: Value) -> int:
        """`indexOf` of a sequence."""
        return self.places.get(order_key(wanted), -1)


def constant_receiver(node: Call | IndexOf) -> Constant | None:
    """The container that a node reads, if it is constant; None = it has to be made anew."""
    receiver = node.receiver
    if not isinstance(receiver, Items) or not receiver.items:
        return None
    if isinstance(node, Call) and node.method not in _READS[receiver.type.kind]:
        return None
    return _constant(_Same(receiver))


class _Same:
    """A node by its identity: to compare long lists costs as much as to make them."""

    __slots__ = ("node",)

    def __init__(self, node: Items) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.node is self.node


@lru_cache(_MOST_KEPT)
def _constant(same: _Same) -> Constant | None:
    node = same.node
    if not all(part.is_scalar for part in node.type.of) or not all(map(is_constant, node.items)):
        return None
    try:
        values = [value_of(item) for item in node.items]
    except NoValueError:
        return None
    if node.type.kind is Kind.DICTIONARY:
        return Constant(Dictionary.of(zip(values[::2], values[1::2], strict=True)), {})
    return Constant([*values], _first_places(values))


def _first_places(values: Iterable[Value]) -> dict[object, int]:
    places: dict[object, int] = {}
    for place, value in enumerate(values):
        if value == value:  # noqa: PLR0124 # all but NaN
            places.setdefault(order_key(value), place)
    return places


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


Method = Callable[..., Any]

METHODS: Mapping[Kind, Mapping[str, Method]] = {
    Kind.BOOLEAN: {},
    Kind.INTEGER: {**INTEGER_METHODS, "toDecimal": decimals.of_integer},
    Kind.FLOAT: {**FLOAT_METHODS, "toDecimal": decimals.of_float},
    Kind.DECIMAL: DECIMAL_METHODS,
    Kind.STRING: STRING_METHODS,
    Kind.LOCATION: LOCATION_METHODS,
    Kind.SEQUENCE: SEQUENCE_METHODS,
    Kind.DICTIONARY: DICTIONARY_METHODS,
    Kind.OPTIONAL: OPTIONAL_METHODS,
    Kind.EVENT: EVENT_METHODS,
}

METHODS_OF_TYPE: Mapping[Kind, Mapping[str, Method]] = {
    **{kind: {} for kind in Kind},
    Kind.SEQUENCE: SEQUENCE_METHODS_OF_TYPE,
    Kind.DICTIONARY: DICTIONARY_METHODS_OF_TYPE,
}

_OF_ALL: Mapping[str, Method] = {
    "toString": lambda _world, type_, value: text_of(value, type_),
    "clone": lambda _world, _type, value: clone(value),
}


def _parse(world: World, type_: Type, text: str) -> Value:
    try:
        return parse_value(text, type_, world)
    except EventTextError as error:
        raise EvaluationError(f"cannot parse {text[:40]!r} as {type_}: {error}") from error


def _can_parse(world: World, type_: Type, text: str) -> bool:
    try:
        parse_value(text, type_, world)
    except EventTextError:
        return False
    return True


STATIC_METHODS: Mapping[str, Method] = {
    "parse": _parse,
    "canParse": _can_parse,
    "min": lambda _world, _type, left, right: smaller(left, right),
    "max": lambda _world, _type, left, right: larger(left, right),
}


def bound_method(type_: Type, name: str, world: World) -> Method:
    """The function that a method call runs; it takes the receiver and the arguments.

    type_: the receiver's type
    name: the method's name; of a static method with the type before it: `integer.parse`
    """
    owner, _, short = name.rpartition(".")
    if owner == TIME_FORMAT:
        return TIME_FORMAT_METHODS[short]
    if owner:
        return _of_type(STATIC_METHODS[short], Type.parse(owner), world)
    method = METHODS[type_.kind].get(name)
    if method is not None:
        return method
    typed = METHODS_OF_TYPE[type_.kind].get(name) or _OF_ALL[name]
    return _of_type(typed, type_, world)


def _of_type(method: Method, type_: Type, world: World) -> Method:
    def bound(*values: Value) -> Any:
        return method(world, type_, *values)

    return bound
