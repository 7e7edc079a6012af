"""Convert raw columns to the types of fields, and mark the cells that are not values of the type.

A column without such cells costs one cast. Types that Arrow cannot cast to are parsed cell by cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.plan.expression import Kind, Type
from querylang.plan.library import DECIMAL_PLACES, LARGEST_INTEGER, LOCATION_FIELDS, SMALLEST_INTEGER
from querylang.plan.model import EventType, Field, Plan
from runtime.column_types import arrow_type
from runtime.columns.arrivals import to_cell
from runtime.instants import NO_TIME, SECOND, micros_of
from runtime.interpreter import Dictionary, EvaluationError, Event, Location, PlanWorld, Value, World, decimal, of_float
from runtime.interpreter.written_values import EventTextError, JsonError, is_unicode, parse_json, parse_value
from runtime.policies.settings_text import USUAL_TIMES, TimeForm
from runtime.reading.formats.raw_table import as_text, cell_of, plain_kind
from runtime.reading.plan_needs import NONE, FieldPair, Leniency
from runtime.timestamps import NUMBER, cast_or_null, cast_whole, given_times, is_text

# Parse one cell of a table as a value of a type, for types to which Arrow cannot cast. A cell holds
# native lists, pairs and mappings, or text in event syntax.


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


_FORMS = {
    pa.bool_(): r"(?i)^(true|false|0|1)$",
    pa.int64(): r"^-?\d{1,19}$|^0[xX][0-9a-fA-F]{1,16}$",
    pa.float64(): rf"(?i){NUMBER}|^[+-]?(inf|infinity|nan)$|^nan\([0-9a-z_]*\)$",
}
"""By type a regular expression that excludes most text that cannot be cast to it.

All text that can be cast matches: what a cell is must not depend on the cells beside it.
"""

_WHOLE = r"^\+?(\d+)(?:\.0*)?$|^(-\d+)(?:\.0*)?$"
"""A whole number, also with a sign or with zeros behind a point, which Arrow does not read."""

MOST_DIGITS = 38
"""Of a decimal, before and after its point."""

NO_PLAN = Plan((), ())
"""For types that contain no event type."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted column.

    values: null where the cell was null or bad
    bad: the cell was neither null nor a value of the type; None = no such cells
    cut: parts of the cell that no query reads were wrong, and are null; None = no such cells
    """

    values: pa.Array
    bad: NDArray[np.bool_] | None = None
    cut: NDArray[np.bool_] | None = None


def convert(
    column: pa.Array, type_: Type, times: TimeForm | None = None, plan: Plan = NO_PLAN, allowed: Leniency = NONE
) -> Converted:
    """Convert a column to a type.

    times: the field is a source time, written in this form; None = it is not one
    plan: defines the event types that the type contains
    allowed: what parts of a value may be wrong
    """
    if type_.kind is Kind.OPTIONAL:
        return convert(column, type_.of[0], times, plan, allowed)
    target = arrow_type(type_, plan)
    is_seconds = times is None or times.unit == "s"
    is_whole = bool(allowed.inferred)
    if column.type == target and is_seconds:
        if is_whole or not _is_incomplete(column, type_, plan):
            return Converted(column)
        return _by_cell(column, type_, plan, allowed)
    if pa.types.is_null(column.type):
        return Converted(pa.nulls(len(column), target))
    if type_ in (Type.FLOAT, Type.INTEGER) and (times is not None or is_time(column.type)):
        return _seconds(column, type_, times or USUAL_TIMES)
    if type_ == Type.STRING and pa.types.is_floating(column.type):
        return Converted(as_text(column.to_pylist()))  # Arrow writes 3.0 as 3
    if type_.is_scalar:
        return _all_cast(column, target) or _cast(_prepared(column, type_), target)
    if _is_exact(column.type, type_, plan):
        try:
            values = pc.cast(column, target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            pass  # some cell cannot be cast, or Arrow has no such cast
        else:
            if is_whole or not _is_incomplete(values, type_, plan):
                return Converted(values)
    return _by_cell(column, type_, plan, allowed)


def _is_incomplete(column: pa.Array, type_: Type, plan: Plan) -> bool:
    """Whether a cell lacks an element, a dictionary's value or a coordinate; fields may be null."""
    match type_.kind:
        case Kind.OPTIONAL:
            return _is_incomplete(column, type_.of[0], plan)
        case Kind.SEQUENCE:
            return _lacks(column.flatten(), type_.of[0], plan)
        case Kind.DICTIONARY:
            return _lacks(column.items, type_.of[1], plan)
        case Kind.LOCATION:
            return any(corner.null_count > column.null_count for corner in column.flatten())
        case Kind.EVENT:
            fields = plan.event(type_.name).fields
            return any(
                _is_incomplete(part, field.type, plan) for part, field in zip(column.flatten(), fields, strict=True)
            )
        case _:
            return False


def _lacks(parts: pa.Array, type_: Type, plan: Plan) -> bool:
    is_missing = type_.kind is not Kind.OPTIONAL and parts.null_count > 0
    return is_missing or _is_incomplete(parts, type_, plan)


def _is_exact(kind: pa.DataType, type_: Type, plan: Plan) -> bool:
    """Whether Arrow's cast gives our result.

    Arrow's decimal of a float has digits that the float's text does not have. A decimal with more
    digits than fit becomes another number (Arrow 26).
    """
    if type_ == Type.DECIMAL:
        fits = pa.types.is_decimal(kind) and kind.precision - kind.scale <= MOST_DIGITS - DECIMAL_PLACES
        return bool(pa.types.is_integer(kind) or fits)
    return "decimal" not in str(arrow_type(type_, plan)) and agrees(kind, type_, plan=plan)


def _by_cell(column: pa.Array, type_: Type, plan: Plan, allowed: Leniency) -> Converted:
    parsing = Cells(PlanWorld(plan), bool(allowed.inferred), allowed.unread)
    cells: list[Any] = []
    bad, cut = np.zeros(len(column), np.bool_), np.zeros(len(column), np.bool_)
    for row, cell in enumerate(map(cell_of, column)):
        try:
            cells.append(to_cell(parse_cell(cell, type_, parsing)))
        except CellError:
            cells.append(None)
            bad[row] = True
        cut[row] = bool(parsing.left_out)
        parsing.left_out.clear()
    return Converted(pa.array(cells, arrow_type(type_, plan)), _some(bad), _some(cut & ~bad))


def agrees(kind: pa.DataType, type_: Type, is_source_time: bool = False, plan: Plan = NO_PLAN) -> bool:
    """Whether a column of this declared type can be a field of a type.

    Integers may be floats, seconds may be times, and a source time may be text. A dictionary may be
    a struct with one field per key, as in JSON.
    """
    kind = plain_kind(kind)
    if pa.types.is_null(kind):
        return True
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    match type_.kind:
        case Kind.BOOLEAN:
            return bool(pa.types.is_boolean(kind))
        case Kind.STRING:
            return is_text(kind)
        case Kind.INTEGER | Kind.FLOAT:
            return is_number or is_time(kind) or (is_source_time and is_text(kind))
        case Kind.DECIMAL:
            return is_number
        case Kind.OPTIONAL:
            return agrees(kind, type_.of[0], is_source_time, plan)
        case Kind.SEQUENCE:
            return _is_list(kind) and agrees(kind.value_type, type_.of[0], plan=plan)
        case Kind.DICTIONARY if pa.types.is_map(kind):
            return agrees(kind.key_type, type_.of[0], plan=plan) and agrees(kind.item_type, type_.of[1], plan=plan)
        case Kind.DICTIONARY:
            return pa.types.is_struct(kind) and all(agrees(item.type, type_.of[1], plan=plan) for item in kind)
        case Kind.LOCATION:
            return _has_fields(kind, dict.fromkeys(LOCATION_FIELDS, Type.FLOAT), plan)
        case Kind.EVENT:
            return _has_fields(kind, {field.name: field.type for field in plan.event(type_.name).fields}, plan)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _has_fields(kind: pa.DataType, fields: dict[str, Type], plan: Plan) -> bool:
    if not pa.types.is_struct(kind):
        return False
    declared = {item.name: item.type for item in kind}
    return all(name in declared and agrees(declared[name], type_, plan=plan) for name, type_ in fields.items())


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds times."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)


def _seconds(column: pa.Array, type_: Type, form: TimeForm) -> Converted:
    if form.unit == "s" and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return _cast(column, arrow_type(type_, NO_PLAN))
    times = given_times(column, form)
    missing = times.micros == NO_TIME
    if type_ == Type.FLOAT:
        seconds = pa.array(np.where(missing, 0, times.micros) / SECOND, mask=missing)
        written = _numbers_as_written(column) if form.is_usual else pa.nulls(len(column), pa.float64())
        return Converted(pc.coalesce(written, seconds), _some(times.bad & written.is_null().to_numpy(False)))
    broken = ~missing & (times.micros % SECOND != 0)
    whole = pa.array(np.where(missing, 0, times.micros) // SECOND, mask=missing | broken)
    return Converted(whole, _some(times.bad | broken))


def _numbers_as_written(column: pa.Array) -> pa.Array:
    """The numbers in a column of text, which, unlike times, are not rounded to microseconds."""
    if not is_text(column.type):
        return pa.nulls(len(column), pa.float64())
    text = pc.utf8_trim_whitespace(column)
    is_number = pc.match_substring_regex(text, NUMBER)
    return cast_or_null(pc.if_else(is_number, text, pa.scalar(None, text.type)), pa.float64())


def _all_cast(column: pa.Array, target: pa.DataType) -> Converted | None:
    """Text as it is; None = some cell cannot be cast so, or it is not text."""
    if not is_text(column.type):
        return None
    try:
        whole = cast_whole(column, target)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return None if whole is None else Converted(whole)


def _prepared(column: pa.Array, type_: Type) -> pa.Array:
    """White space around the text of a number or boolean is ignored. `+5` and `5.0` are `5`."""
    if type_ == Type.STRING or not is_text(column.type):
        return column
    text = pc.utf8_trim_whitespace(column)
    return pc.replace_substring_regex(text, _WHOLE, r"\1\2") if type_ == Type.INTEGER else text


def _cast(column: pa.Array, target: pa.DataType) -> Converted:
    try:
        values = cast_or_null(_in_range(column, target), target, _FORMS.get(target))
    except (
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
    ):  # no such cast, as of a list to a number: no cell is a value
        values = pa.nulls(len(column), target)
    if values.null_count == column.null_count:
        return Converted(values)
    bad = pc.and_(pc.is_valid(column), pc.is_null(values))
    return Converted(values, bad.to_numpy(zero_copy_only=False))


def _in_range(column: pa.Array, target: pa.DataType) -> pa.Array:
    """The cells, with null where the target cannot hold them; others are then cast at once.

    A mixed column comes as text. So what is not a value there must not be one here: a boolean is
    not a number, and only 0 and 1 are booleans.
    """
    kind = column.type
    if pa.types.is_boolean(kind) and not (pa.types.is_boolean(target) or pa.types.is_string(target)):
        return pa.nulls(len(column), kind)
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return column
    if pa.types.is_integer(kind) and pa.types.is_floating(target):
        return pc.cast(column, target, safe=False)  # large ones are rounded, as their text is
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(target):
        fits = (values == 0) | (values == 1)
    elif target != pa.int64():
        return column
    elif pa.types.is_floating(kind):
        with np.errstate(invalid="ignore", over="ignore"):
            fits = (np.floor(values) == values) & (np.abs(values) < 2.0**63)
    elif kind == pa.uint64():
        fits = values < np.uint64(2**63)
    else:
        return column
    return column if fits.all() else pc.if_else(pa.array(fits), column, pa.scalar(None, kind))


def _some(bad: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    return bad if bad.any() else None
