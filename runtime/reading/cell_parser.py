"""Parse one cell of a table as a value of a type, for types to which Arrow cannot cast.

A cell holds native lists, pairs and mappings, or text in event syntax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from querylang.plan.expression import Kind, Type
from querylang.plan.library import LARGEST_INTEGER, LOCATION_FIELDS, SMALLEST_INTEGER
from querylang.plan.model import EventType, Field
from runtime.instants import SECOND, micros_of
from runtime.interpreter.decimals import decimal, of_float
from runtime.interpreter.values import Dictionary, EvaluationError, Event, Location, Value, World
from runtime.interpreter.written_values import EventTextError, JsonError, is_unicode, parse_json, parse_value
from runtime.reading.plan_needs import FieldPair


class CellError(ValueError):
    """A cell is not a value of the wanted type."""


@dataclass(slots=True)
class Cells:
    """How cells are parsed, and what was left out of them.

    world: knows the event types
    may_have_nulls: lists and dictionaries may have nulls in them, and text may be JSON
    unread: fields of parts that may be wrong; they are null then
    left_out: those that were wrong
    """

    world: World
    may_have_nulls: bool = False
    unread: frozenset[FieldPair] = frozenset()
    left_out: list[FieldPair] = field(default_factory=list)


def parse_cell(cell: Any, type_: Type, cells: Cells) -> Value:
    """The cell as a value; None = null. Raises CellError."""
    if cell is None:
        return None
    if type_.kind is Kind.OPTIONAL:
        return parse_cell(cell, type_.of[0], cells)
    try:
        if isinstance(cell, str) and type_ != Type.STRING:
            return _of_text(cell, type_, cells)
        return _of_native(cell, type_, cells)
    except (EventTextError, EvaluationError, OverflowError, ValueError) as error:  # ValueError: a signalling NaN
        raise CellError(str(error)) from error


def _of_text(text: str, type_: Type, cells: Cells) -> Value:
    """A value in event syntax; an event or location may also be a JSON object of its fields."""
    is_object = type_.kind in (Kind.EVENT, Kind.LOCATION) and text.lstrip().startswith("{")
    if is_object or (cells.may_have_nulls and type_.kind in (Kind.SEQUENCE, Kind.DICTIONARY)):
        try:
            return _of_native(parse_json(text), type_, cells)
        except JsonError as error:
            if is_object:
                raise CellError(str(error)) from error
    return parse_value(text, type_, cells.world)


def _of_native(cell: Any, type_: Type, cells: Cells) -> Value:
    """A value from native lists, pairs and mappings; raises CellError for any other cell."""
    match type_.kind, cell:
        case Kind.BOOLEAN, bool():
            return cell
        case Kind.STRING, str() if is_unicode(cell):
            return cell
        case Kind.STRING, UUID():
            return str(cell)
        case _, bool():
            raise CellError(f"a boolean is not a value of {type_}")
        case Kind.INTEGER, int() if SMALLEST_INTEGER <= cell <= LARGEST_INTEGER:
            return cell
        case Kind.FLOAT, int() | float() | Decimal():
            return float(cell)
        case Kind.FLOAT, date() | time():
            return _micros(cell) / SECOND
        case Kind.INTEGER, date() | time() if _micros(cell) % SECOND == 0:
            return _micros(cell) // SECOND
        case Kind.DECIMAL, float():
            return of_float(cell)
        case Kind.DECIMAL, int() | Decimal():
            return decimal(Decimal(cell))
        case Kind.SEQUENCE, list():
            return [_element(item, type_.of[0], cells) for item in cell]
        case Kind.DICTIONARY, Mapping():
            present = ((key, item) for key, item in cell.items() if item is not None)
            return _dictionary(present, type_, cells)
        case Kind.DICTIONARY, list():
            return _dictionary(cell, type_, cells)
        case Kind.LOCATION, Mapping() if cell.keys() == set(LOCATION_FIELDS):
            return Location(*(_part(cell[name], Type.FLOAT, cells) for name in LOCATION_FIELDS))
        case Kind.EVENT, Mapping():
            event = cells.world.event_type(type_.name)
            return Event(event, {item.name: _field(cell.get(item.name), event, item, cells) for item in event.fields})
    raise CellError(f"{type(cell).__name__} is not a value of {type_}")


def _micros(moment: date | time) -> int:
    """Microseconds of a time or date since 1970, of a time of the day since midnight."""
    if isinstance(moment, time):
        return micros_of(datetime.combine(date(1970, 1, 1), moment))
    return micros_of(moment if isinstance(moment, datetime) else datetime.combine(moment, time()))


def _field(cell: Any, event: EventType, item: Field, cells: Cells) -> Value:
    """A field of an event that is a part of a cell."""
    try:
        return parse_cell(cell, item.type, cells)
    except CellError:
        if (event.name, item.name) not in cells.unread:
            raise
        cells.left_out.append((event.name, item.name))
        return None


def _dictionary(pairs: Any, type_: Type, cells: Cells) -> Dictionary:
    entries = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise CellError("a dictionary consists of pairs")
        entries.append((_part(pair[0], type_.of[0], cells), _element(pair[1], type_.of[1], cells)))
    return Dictionary.of(entries)


def _element(cell: Any, type_: Type, cells: Cells) -> Any:
    """An element, or a dictionary's value."""
    return None if cell is None and cells.may_have_nulls else _part(cell, type_, cells)


def _part(cell: Any, type_: Type, cells: Cells) -> Any:
    """A part of a value; only an optional may be null."""
    if cell is None and type_.kind is not Kind.OPTIONAL:
        raise CellError(f"a {type_} is missing")
    return parse_cell(cell, type_, cells)
