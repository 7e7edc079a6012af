"""The fields of events: from raw columns, and from events written as text, to typed columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import InputError, listed
from querylang.plan.expression import NUMBERS, Kind, Type
from querylang.plan.model import EventType, Field, Plan
from runtime.column_types import arrow_type
from runtime.columns.arrivals import RecordKind, column_name, to_cell
from runtime.file_forms import COMMA, POINT, hint_of_cell
from runtime.policies.settings_text import TimeForm, look_of, patterns_of, time_format_options, unit_of
from runtime.reading import plan_needs
from runtime.reading.column_names import ARRIVAL, NOWHERE, SOURCE_TIME, Elsewhere, Roles, did_you_mean
from runtime.reading.conversion import agrees, convert, is_time
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.remarks import Refusals
from runtime.reading.row_kinds import RowKinds
from runtime.timestamps import NUMBER, cast_or_null, is_text, parse_times

_ROWS = 100
"""How many rows are looked at."""


def time_candidates(raw: RawTable, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The columns that hold times, and the option that reads each; "" where none is needed."""
    for name in names:
        column = raw.values(name, _ROWS).drop_null()
        if is_time(column.type):
            yield name, ""
        elif len(column) and _holds_numbers(column.type):
            yield from _numbers(name, column)
        elif len(column) and is_text(column.type):
            yield from _texts(name, column)


def _holds_numbers(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(name: str, column: pa.Array) -> Iterator[tuple[str, str]]:
    units = {unit_of(number) for number in column.to_pylist()}
    look = look_of(column.to_pylist())
    if look is not None and "%" in look:
        yield name, f"`{look.partition('`')[2].partition('`')[0]}`"
    elif len(units) == 1 and None not in units:
        unit = units.pop()
        yield name, "" if unit == "s" else f"`--time-unit {unit}`"


def _texts(name: str, column: pa.Array) -> Iterator[tuple[str, str]]:
    numbers = pc.match_substring_regex(column, NUMBER)
    if pc.all(numbers).as_py():
        yield from _numbers(name, cast_or_null(column, pa.float64()).drop_null())
    elif not pc.any(numbers).as_py() and not parse_times(column).bad.any():
        yield name, ""
    elif options := time_format_options(patterns_of(column.to_pylist())):
        yield name, options


_MOST_NAMED = 5

FieldColumns = Mapping[str, pa.Array]
"""By column name (`name:type`): the values of a field, null on the rows of other event types."""


def check_columns(raw: RawTable, plan: Plan, roles: Roles, kinds: RowKinds, elsewhere: Elsewhere = NOWHERE) -> None:
    """Raise InputError for a missing column, and for one whose declared type does not fit.

    elsewhere: as of `ColumnNames`
    """
    _check_presence(raw, plan, roles, kinds, elsewhere)
    _check_types(raw, plan, kinds)


def without_unreadable(
    raw: RawTable, plan: Plan, roles: Roles, kinds: RowKinds, refusals: Refusals, elsewhere: Elsewhere
) -> RowKinds:
    """The rows, with those refused whose event type the table has no columns for."""
    readable, found = [], kinds.kinds.copy()
    for index, event in kinds.present:
        try:
            _check_presence(raw, plan, roles, replace(kinds, present=[(index, event)]), elsewhere)
        except InputError as mistake:
            for row in np.flatnonzero(kinds.kinds == index).tolist():
                if row not in kinds.written:
                    refusals.refuse(row, str(mistake))
                    found[row] = RecordKind.MALFORMED
        else:
            readable.append((index, event))
    if len(readable) == len(kinds.present):
        return kinds
    return replace(kinds, kinds=found, present=readable, is_plain=False)


def _check_presence(raw: RawTable, plan: Plan, roles: Roles, kinds: RowKinds, elsewhere: Elsewhere) -> None:
    names, intervals = set(raw.names), plan_needs.interval_events(plan)
    others = [name for name in raw.names if name not in (roles.arrival, roles.type, roles.source_time)]
    for _, event in kinds.present:
        lacked = [field.name for field in event.fields if field.name not in names]
        for field in event.fields:
            if field.name in names or field.type.kind is Kind.OPTIONAL:
                continue
            if len(lacked) == len(event.fields) or field.name not in elsewhere:
                hint = did_you_mean(field.name, others)
                raise InputError(f"{raw.name}: has no column {field.name!r}, a field of {event.name!r}{hint}")
            if field.name in plan_needs.indispensable_fields(plan, event.name):
                raise InputError(
                    f"{raw.name}: has no column {field.name!r}, which {event.name!r} has as its key or time"
                )
            elsewhere.tell(raw.name, field.name)
        has_time = roles.source_time is not None or (roles.start is not None and event.name in intervals)
        if roles.is_history and not has_time and plan_needs.needs_source_time(plan, event.name, is_history=True):
            raise InputError(
                f"{raw.name}: has neither a column {ARRIVAL!r}, the arrival time, nor a column {SOURCE_TIME!r}, the"
                f" source time of {event.name!r}; name the column of arrival times, `--arrival NAME`, or, if the table"
                f" is history, of source times, `--source-time NAME`{_meant(raw, others)}"
            )
        if not has_time and plan_needs.needs_source_time(plan, event.name, roles.is_history):
            raise InputError(
                f"{raw.name}: has no column {SOURCE_TIME!r}, the source time of {event.name!r}"
                f"; name it, `--source-time NAME`{_meant(raw, others)}"
            )


def _meant(raw: RawTable, names: Sequence[str]) -> str:
    """The end of a message: which of these columns could hold the times."""
    found = [f"{name!r} ({option})" if option else repr(name) for name, option in time_candidates(raw, names)]
    return f"; {listed(found[:_MOST_NAMED], 'or')} could be meant" if found else ""


def _check_types(raw: RawTable, plan: Plan, kinds: RowKinds) -> None:
    """Raise InputError for a column whose declared type fits none of the fields of its name."""
    times = plan_needs.source_time_fields(plan)
    uses: dict[str, list[tuple[EventType, Field]]] = {}
    for _, event in kinds.present:
        for field in event.fields:
            if field.name in raw.declared or field.name in raw.unknown:
                uses.setdefault(field.name, []).append((event, field))
    for name, found in uses.items():
        kind = raw.columns.schema.field(name).type
        fits = any(agrees(kind, field.type, (event.name, name) in times, plan) for event, field in found)
        if name in raw.unknown or not fits:
            event, field = found[0]
            raise InputError(
                f"{raw.name}: column {name!r} is {raw.unknown.get(name, kind)}, but field {name!r} of {event.name!r} is {field.type};"
                " convert the column, or give the field another type"
            )


def read_fields(
    raw: RawTable, plan: Plan, kinds: RowKinds, form: TimeForm, refusals: Refusals, allowed: plan_needs.Leniency
) -> FieldColumns:
    """The fields of all event types that occur; rows with a wrong value are refused.

    allowed: what may be wrong: it is null then, and noted
    """
    times = plan_needs.source_time_fields(plan)
    uses: dict[str, list[tuple[int, Field, bool]]] = {}
    for index, event in kinds.present:
        for field in event.fields:
            is_time = (event.name, field.name) in times
            uses.setdefault(column_name(field.name, field.type), []).append((index, field, is_time))
    fields = {name: _read_field(raw, plan, kinds, found, form, refusals, allowed) for name, found in uses.items()}
    return fields | _from_text(kinds, plan, fields)


def _read_field(
    raw: RawTable,
    plan: Plan,
    kinds: RowKinds,
    uses: Sequence[tuple[int, Field, bool]],
    form: TimeForm,
    refusals: Refusals,
    allowed: plan_needs.Leniency,
) -> pa.Array:
    """The column of one field.

    uses: the event types that have the field, by index; and whether it is their source time
    """
    field = uses[0][1]
    events = [plan.events[index].name for index, _, _ in uses]
    if not allowed.inferred.issuperset(events):
        allowed = plan_needs.NONE
    if not raw.has(field.name):
        return pa.nulls(len(raw), arrow_type(field.type, plan))
    times = form if any(is_time for _, _, is_time in uses) else None
    column = raw.column(field.name)
    if times is None and _is_number(field.type):
        column = raw.with_points(column)
    elif not _is_string(field.type):
        column = raw.without_missing(column)
    converted = convert(column, field.type, times, plan, allowed)
    if converted.bad is not None and not raw.has_types and not _is_string(field.type):
        converted = convert(raw.without_blanks(column), field.type, times, plan, allowed)
    if (
        converted.bad is None
        and converted.cut is None
        and not raw.nested.get(field.name)
        and kinds.are_all_of([index for index, _, _ in uses])
    ):
        return converted.values
    owners = kinds.is_one_of([index for index, _, _ in uses], plan)
    if kinds.written:
        owners[list(kinds.written)] = False
    bad = converted.bad
    if raw.nested.get(field.name) and _is_string(field.type):
        nested = raw.are_nested(field.name)
        bad = nested if bad is None else bad | nested
    values = converted.values
    is_unread = all((event, field.name) in allowed.unread for event in events)
    if bad is not None:
        for row in np.flatnonzero(bad & owners).tolist():
            reason = f"{raw.shown(field.name, row)} is not a value of {field.name!r} ({field.type})"
            if is_unread:
                refusals.note(field.name, row, reason)
            else:
                refusals.refuse(row, f"{reason}{_hint(raw, field, row)}")
        owners &= ~bad
    if converted.cut is not None:
        for row in np.flatnonzero(converted.cut & owners).tolist():
            refusals.note(
                field.name, row, f"a part of {raw.shown(field.name, row)} is not of its type in {field.name!r}"
            )
    return values if owners.all() else pc.if_else(pa.array(owners), values, pa.nulls(len(raw), values.type))


def _is_string(type_: Type) -> bool:
    return type_ == Type.STRING or (type_.kind is Kind.OPTIONAL and type_.of[0] == Type.STRING)


def _is_number(type_: Type) -> bool:
    return type_ in NUMBERS or (type_.kind is Kind.OPTIONAL and type_.of[0] in NUMBERS)


def _hint(raw: RawTable, field: Field, row: int) -> str:
    """How to read a cell that is a number written in another way, or stands for no value."""
    if raw.has_types or _is_string(field.type):
        return ""
    decimal = COMMA if raw.has_comma else POINT
    return hint_of_cell(str(raw.cell(field.name, row)), decimal=decimal if raw.thousands is None else None)


def _from_text(kinds: RowKinds, plan: Plan, fields: FieldColumns) -> dict[str, pa.Array]:
    """The columns of the fields of events written as text, with these values filled in."""
    cells: dict[str, dict[int, Any]] = {}
    types: dict[str, Type] = {}
    for row, event in kinds.written.items():
        for field in event.type.fields:
            name = column_name(field.name, field.type)
            cells.setdefault(name, {})[row] = to_cell(event.values[field.name])
            types[name] = field.type
    columns = {}
    for name, by_row in cells.items():
        type_ = arrow_type(types[name], plan)
        mask = np.zeros(len(kinds), np.bool_)
        mask[list(by_row)] = True
        column = fields[name] if name in fields else pa.nulls(len(kinds), type_)
        columns[name] = _replaced(column, mask, pa.array(list(by_row.values()), type_))
    return columns


def _replaced(column: pa.Array, mask: NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """The column with other values, in order, on the rows of the mask."""
    place = np.arange(len(column))
    place[mask] = np.arange(len(column), len(column) + len(values))
    return pa.concat_arrays([column, values]).take(pa.array(place))
