"""The type of a column that no definition knows, from its Arrow type or what its text shows.

A struct becomes an event type of its own, with the names of event and field: `A_customer`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from querylang.plan.expression import SIMPLE, Kind, Type
from querylang.plan.library import DECIMAL_PLACES, LARGEST_INTEGER, SMALLEST_INTEGER
from runtime.column_types import arrow_type
from runtime.file_forms import MOST_NAMES, POINT, WITH_COMMA, WITH_THOUSANDS, hint_of_cell, hint_of_number
from runtime.interpreter.written_values import JsonError, parse_json
from runtime.reading.conversion import NO_PLAN, convert, is_time
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


# The type of a column of text, such as one of CSV, and why it is that where it is not plain.

_PLAIN_WHOLE = r"^-?(0|[1-9]\d{0,18})$"
"""An integer as people and programs write one."""

_WHOLE = r"^[+-]?\d+$"

_BEGINS_WITH_ZERO = r"^[+-]?0\d"
"""Numbers are not written like this, but identifiers and postal codes are."""


_ANY_COMMA = rf"{WITH_COMMA}|{WITH_THOUSANDS}"

TOO_LARGE = ", more than an integer holds"


class TextType(NamedTuple):
    """What a column of text holds.

    row: of the cell that made it so, from 0; None = it is plain
    reason: what is special about this cell, to be written behind it
    mostly: the type of most cells, if these are numbers beside others
    """

    type: Type
    row: int | None = None
    reason: str = ""
    mostly: Type | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether users may have meant numbers even where text is written as text, as in JSON."""
        return self.type == Type.STRING and self.reason in ("", TOO_LARGE)


def type_of_text(column: pa.Array, *, is_csv: bool = True, decimal: str = POINT) -> TextType:
    """The narrowest type that holds all cells without a loss; cells without text say nothing.

    column: with points in its decimals
    is_csv: settings of CSV can change what the cells are
    decimal: what their fractions begin with in the table
    """
    text = pc.utf8_trim_whitespace(column)
    filled = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    if filled.null_count == len(filled):
        return TextType(Type.STRING)
    if _all(filled, _PLAIN_WHOLE) and convert(filled, Type.INTEGER).bad is None:
        return TextType(Type.INTEGER)
    bad = convert(filled, Type.FLOAT).bad
    if bad is None:
        return _number(filled)
    if convert(filled, Type.BOOLEAN).bad is None:
        return TextType(Type.BOOLEAN)
    if not (bad & ~_are(filled, _ANY_COMMA)).any():
        is_decimal = bad & ~_are(filled, WITH_THOUSANDS)
        telling = int(np.argmax(is_decimal if is_decimal.any() else bad))
        hint = hint_of_number(filled[telling].as_py(), decimal) if is_csv else ""
        return TextType(Type.STRING, int(np.argmax(bad)), hint)
    if 2 * int(bad.sum()) > len(filled) - filled.null_count:
        return TextType(Type.STRING)
    number = _number(filled.filter(pa.array(~bad))).type
    are_whole = _all(filled.filter(pa.array(~bad)), _PLAIN_WHOLE)
    mostly = Type.INTEGER if are_whole else number if number == Type.FLOAT else None
    first = int(np.argmax(bad))
    hint = hint_of_cell(filled[first].as_py(), decimal=None) if is_csv else ""
    return TextType(Type.STRING, first, hint, mostly)


def has_padded(column: pa.Array) -> bool:
    """Whether a column of text has a number with zeros in front."""
    return is_text(column.type) and bool(_are(pc.utf8_trim_whitespace(column), f"{_BEGINS_WITH_ZERO}*$").any())


def _number(column: pa.Array) -> TextType:
    """The type of a column whose cells are all numbers, but not all plain integers."""
    padded = _are(column, _BEGINS_WITH_ZERO)
    if padded.any():
        return TextType(Type.STRING, int(np.argmax(padded)), ", and a number would lose its zeros")
    if _all(column, _WHOLE):
        too_large = convert(column, Type.INTEGER).bad
        if too_large is not None:
            return TextType(Type.STRING, int(np.argmax(too_large)), TOO_LARGE)
        return TextType(Type.STRING, int(np.argmax(_are(column, r"\+"))), ", and a number would lose its sign")
    if _are(column, r"\.").any():
        return TextType(Type.FLOAT)
    return TextType(
        Type.FLOAT, int(np.argmax(~_are(column, _WHOLE) & column.is_valid().to_numpy(zero_copy_only=False)))
    )


def _all(column: pa.Array, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, form)).as_py())


def _are(column: pa.Array, form: str) -> NDArray[np.bool_]:
    """By cell: whether it has this form; nulls have none."""
    found: NDArray[np.bool_] = pc.fill_null(pc.match_substring_regex(column, form), False).to_numpy(
        zero_copy_only=False
    )
    return found


# The type of values that no type holds together, such as objects beside text: that of most.

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
