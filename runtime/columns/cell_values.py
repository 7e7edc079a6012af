"""Convert cells of Arrow columns to values of the language, and back.

Arrow gives lists for sequences, pairs for dictionaries, and mappings for locations and events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.model import EventType
from querylang.plan.value_types import Kind, Type
from runtime.arrow_types import has_column
from runtime.columns.arrivals import column_name
from runtime.interpreter.values import Dictionary, Event, Location, Value, World

Cell = Any
"""A cell as Arrow's `to_pylist` gives it: a scalar, list, mapping, or pairs; None = null."""


def from_cell(cell: Cell, type_: Type, world: World) -> Value:
    """A cell as a value; None = a null, or an empty optional."""
    if cell is None or type_.is_scalar:
        return _scalar(cell)
    match type_.kind:
        case Kind.SEQUENCE:
            return [from_cell(item, type_.of[0], world) for item in cell]
        case Kind.DICTIONARY:
            pairs = cell.items() if isinstance(cell, Mapping) else cell
            return Dictionary.of(
                (from_cell(key, type_.of[0], world), from_cell(item, type_.of[1], world)) for key, item in pairs
            )
        case Kind.OPTIONAL:
            return from_cell(cell, type_.of[0], world)
        case Kind.EVENT:
            return event_of(world.event_type(type_.name), cell, world)
        case Kind.LOCATION:
            corners = [cell[name] for name in LOCATION_FIELDS]
            return None if None in corners else Location(*corners)
        case _:
            return _scalar(cell)


def _scalar(cell: Cell) -> Value:
    value: Value = cell
    return value


def event_of(event: EventType, cells: Mapping[str, Cell], world: World, time: int | None = None) -> Event:
    """An event with these cells as fields; missing ones are null.

    time: microseconds since 1970; None = unknown
    """
    values = {field.name: from_cell(cells.get(field.name), field.type, world) for field in event.fields}
    return Event(event, values, time)


def to_cell(value: Value) -> Cell:
    """The inverse of `from_cell`: what `pa.array` accepts."""
    match value:
        case list():
            return [to_cell(item) for item in value]
        case Dictionary():
            return [(to_cell(key), to_cell(item)) for key, item in value.items()]
        case Event():
            return {name: to_cell(item) for name, item in value.values.items()}
        case Location():
            return dict(zip(LOCATION_FIELDS, value.corners, strict=True))
        case _:
            return value


def column_values(table: pa.Table, field: str, type_: Type, world: World) -> list[Value]:
    """The values of a field on all rows; all null if the table has no such column."""
    name = column_name(field, type_)
    if not has_column(table, name):
        return [None] * len(table)
    cells = table.column(name).to_pylist()
    return cells if type_.is_scalar else [from_cell(cell, type_, world) for cell in cells]


def row_events(event: EventType, table: pa.Table, world: World, times: Sequence[int | None]) -> list[Event]:
    """Every row as an event of a type.

    table: fields in columns named by `column_name`
    times: by row: microseconds since 1970; None = unknown
    """
    columns = [column_values(table, field.name, field.type, world) for field in event.fields]
    names = [field.name for field in event.fields]
    rows: Iterable[tuple[Value, ...]] = zip(*columns, strict=True) if columns else [()] * len(table)
    return [Event(event, dict(zip(names, row, strict=True)), time) for row, time in zip(rows, times, strict=True)]
