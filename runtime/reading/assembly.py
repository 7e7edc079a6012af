"""The records of a table, put together: times, places and order of arrival."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import nearest
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.columns.arrivals import SHAPE_FIELDS, Arrivals, RecordKind, Shape, arrivals_schema
from runtime.columns.expressions import as_array
from runtime.columns.rows import stable_order
from runtime.instants import NO_TIME
from runtime.policies.settings_text import TimeForm
from runtime.reading.column_names import END, OFFSET, PARTITION, SHAPE, SOURCE, Roles
from runtime.reading.conversion import convert
from runtime.reading.field_columns import FieldColumns
from runtime.reading.formats.raw_table import RawTable, cell_of, cell_text, text_column
from runtime.reading.plan_needs import interval_events
from runtime.reading.remarks import Refusals
from runtime.reading.row_kinds import RowKinds, event_index
from runtime.timestamps import Timestamps, given_times, is_text, microseconds

# When each row arrived and when its event happened; which events are intervals.

WORDS = {shape.name.lower(): shape for shape in Shape}
"""What may be in the column `shape`."""

_UNKNOWN = -1
_NEEDS_END = (Shape.INTERVAL, Shape.END_EDGE)
_CALLED = {
    Shape.POINT: "a point",
    Shape.INTERVAL: "an interval",
    Shape.START_EDGE: "a start edge",
    Shape.END_EDGE: "an end edge",
}


@dataclass(frozen=True, slots=True)
class Intervals:
    """How the events lie in time.

    shape: by row: a `Shape`
    end: by row: when the event ends, µs UTC; NO_TIME = it has no end
    """

    shape: NDArray[np.int8]
    end: NDArray[np.int64]


def read_intervals(
    end: pa.Array | None,
    shape: pa.Array | None,
    rows: NDArray[np.bool_],
    start: NDArray[np.int64],
    form: TimeForm,
    refusals: Refusals,
) -> Intervals:
    """Read the two columns. Without a shape a row with an end is an interval, any other a point.

    end, shape: the columns; None = absent
    rows: rows of event types that may be intervals; all others are points
    start: by row: when the event starts, µs UTC; NO_TIME = unknown
    form: how times are written
    refusals: gets the rows whose shape and end are wrong or do not fit together
    """
    ends = given_times(pa.nulls(len(rows)) if end is None else end, form)
    has_end = ends.micros != NO_TIME
    shapes = np.where(has_end, np.int8(Shape.INTERVAL), np.int8(Shape.POINT))
    if shape is not None:
        words = pc.utf8_lower(pc.utf8_trim_whitespace(text_column(shape)))
        found = pc.index_in(words, value_set=pa.array(list(WORDS)))
        known = pc.fill_null(found, _UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int8)
        shapes = np.where(pc.is_null(words).to_numpy(zero_copy_only=False), shapes, known)
    needs_end = np.isin(shapes, _NEEDS_END)
    is_backwards = has_end & needs_end & (start != NO_TIME) & (ends.micros <= start)
    wrong = rows & ((shapes == _UNKNOWN) | ends.bad | (has_end != needs_end) | is_backwards)
    for row in np.flatnonzero(wrong).tolist():
        is_bad, ends_here = bool(ends.bad[row]), bool(has_end[row])
        refusals.refuse(row, _problem(int(shapes[row]), _cell(shape, row), _cell(end, row), is_bad, ends_here))
    is_event = rows & ~wrong
    return Intervals(
        np.where(is_event, shapes, np.int8(Shape.POINT)).astype(np.int8),
        np.where(is_event, ends.micros, NO_TIME),
    )


def _cell(column: pa.Array | None, row: int) -> object:
    return None if column is None else cell_of(column[row])


def _problem(shape: int, word: object, end: object, is_bad: bool, has_end: bool) -> str:
    if shape == _UNKNOWN:
        meant = nearest(str(word), WORDS)
        hint = f"; did you mean '{meant}'?" if meant is not None else f"; known: {' '.join(WORDS)}"
        return f"{word!r} in 'shape' is not a shape{hint}"
    if is_bad:
        return f"{end!r} in 'end' is not a time"
    if not has_end:
        return f"{_CALLED[Shape(shape)]} needs an 'end'"
    if shape in _NEEDS_END:
        return f"its 'end' {end!r} is not after its start"
    return f"{_CALLED[Shape(shape)]} has no 'end'"


@dataclass(frozen=True, slots=True)
class RowTimes:
    """By row, in microseconds UTC; NO_TIME = unknown.

    declared: source time in the table's column of source times
    source: source time of the event: from its own field if some query says so, else as declared
    arrival: arrival time; if the table is history, `source`
    intervals: ends and shapes; None = all events are points
    """

    declared: NDArray[np.int64]
    source: NDArray[np.int64]
    arrival: NDArray[np.int64]
    intervals: Intervals | None


def read_times(
    raw: RawTable,
    plan: Plan,
    roles: Roles,
    kinds: RowKinds,
    fields: FieldColumns,
    form: TimeForm,
    refusals: Refusals,
) -> RowTimes:
    """The times of all rows; rows with a cell that is not a time are refused."""
    lasting = interval_events(plan)
    may_last = kinds.is_event_of(lasting, plan)
    declared = np.full(len(raw), NO_TIME)
    if roles.source_time is not None:
        declared = _with_source_times(declared, raw, roles.source_time, None, plan, kinds, form, refusals)
    if roles.start is not None:
        declared = _with_source_times(declared, raw, roles.start, may_last, plan, kinds, form, refusals)
    source = _own_times(declared, plan, kinds, fields)
    columns = {name: raw.values(name) for name in (END, SHAPE) if lasting and raw.has(name)}
    intervals = None
    if columns:
        intervals = read_intervals(columns.get(END), columns.get(SHAPE), may_last, source, form, refusals)
    arrival = source if roles.arrival is None else _arrival_times(raw, roles.arrival, form, refusals)
    return RowTimes(declared, source, arrival, intervals)


def _with_source_times(
    micros: NDArray[np.int64],
    raw: RawTable,
    name: str,
    rows: NDArray[np.bool_] | None,
    plan: Plan,
    kinds: RowKinds,
    form: TimeForm,
    refusals: Refusals,
) -> NDArray[np.int64]:
    """The times with those that are missing on `rows` taken from a column; None = no time is known.

    A cell that is not a time refuses its row, unless the column is also a field of the row's event.
    """
    times = _times(raw, name, form)
    if rows is None and not times.bad.any():
        return times.micros
    is_missing = np.ones(len(raw), np.bool_) if rows is None else rows & (micros == NO_TIME)
    for row in np.flatnonzero(times.bad & is_missing).tolist():
        kind = kinds.kinds[row]
        if kind < 0 or all(field.name != name for field in plan.events[kind].fields):
            refusals.refuse_time(row, name, form)
    return np.where(is_missing, times.micros, micros)


def _own_times(declared: NDArray[np.int64], plan: Plan, kinds: RowKinds, fields: FieldColumns) -> NDArray[np.int64]:
    """Source times, from the events' own fields where some query reads them there."""
    sources = list(plan.time_sources())
    times = declared.copy() if sources else declared
    for name, source in sources:
        rows = kinds.kinds == event_index(plan, name)
        if rows.any():
            own = microseconds(as_array(source, pa.table(dict(fields)), plan, plan.event(name)))
            times = np.where(rows, own, times)
    return times


def _arrival_times(raw: RawTable, name: str, form: TimeForm, refusals: Refusals) -> NDArray[np.int64]:
    times = _times(raw, name, form).micros
    for row in np.flatnonzero(times == NO_TIME).tolist():
        refusals.refuse_time(row, name, form)
    return times


def _times(raw: RawTable, name: str, form: TimeForm) -> Timestamps:
    """The times of a column; a cell without a value has none."""
    times = given_times(raw.without_missing(raw.column(name)), form)
    return given_times(raw.values(name), form) if times.bad.any() and not raw.has_types else times


# The stages' results as one table of arrivals: places, refused rows, order.

_ROW_BITS = 30
"""Bits of a row's number in an offset that also tells tables apart."""


@dataclass(frozen=True, slots=True)
class NumberedRecords:
    """Records, and the number of each in its table (from 1).

    has_offsets: a column of the table says the offsets
    """

    table: pa.Table
    numbers: NDArray[np.int64]
    has_offsets: bool


def assemble(
    raw: RawTable,
    plan: Plan,
    roles: Roles,
    kinds: RowKinds,
    fields: FieldColumns,
    times: RowTimes,
    refusals: Refusals,
    place: int,
) -> NumberedRecords:
    """All records in the table's order; refused and unreadable ones become MALFORMED.

    place: `_place` of all records
    """
    given = _given_places(roles, kinds)
    source, partition, offset = _places(raw, given, roles.declared, refusals)
    kind, text = _with_refused(kinds, refusals)
    columns: dict[str, pa.Array] = {
        **fields,
        "_kind": pa.array(kind),
        "_arrival": pa.array(times.arrival),
        "_source": source,
        "_partition": pa.array(partition),
        "_offset": pa.array(offset),
        "_source_time": pa.array(times.declared),
        "_text": pa.nulls(len(raw), pa.string()) if text is None else text,
        "_place": pa.array(np.full(len(raw), place)),
    }
    schema = arrivals_schema(plan)
    if times.intervals is not None:
        columns |= {"_end": pa.array(times.intervals.end), "_shape": pa.array(times.intervals.shape)}
        for field in SHAPE_FIELDS:
            schema = schema.append(field)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(len(raw), f.type) for f in schema]
    numbered = NumberedRecords(pa.table(arrays, schema=schema), raw.numbers, OFFSET in given)
    return _with_unreadable(raw, numbered, place)


def _with_refused(kinds: RowKinds, refusals: Refusals) -> tuple[NDArray[np.int16], pa.StringArray | None]:
    """The rows' kinds and texts; those of refused rows are MALFORMED and the report."""
    reports = list(refusals.reports())
    if not reports:
        return kinds.kinds, kinds.text
    kind = kinds.kinds.copy()
    texts = [None] * len(kinds) if kinds.text is None else kinds.text.to_pylist()
    for row, report in reports:
        kind[row] = RecordKind.MALFORMED
        texts[row] = report
    return kind, pa.array(texts, pa.string())


def _given_places(roles: Roles, kinds: RowKinds) -> Mapping[str, str]:
    """By role: the column of places. One that is a field of the events is not, unless named."""
    fields = {field.name for _, event in kinds.present for field in event.fields} - roles.declared
    named = {SOURCE: roles.source, PARTITION: roles.partition, OFFSET: roles.offset}
    return {role: name for role, name in named.items() if name is not None and name not in fields}


def _places(
    raw: RawTable, given: Mapping[str, str], declared: Collection[str], refusals: Refusals
) -> tuple[pa.DictionaryArray, NDArray[np.int64], NDArray[np.int64]]:
    """Source, partition and offset by row."""
    source = sources_of(raw, given[SOURCE]) if SOURCE in given else _constant(raw.name, len(raw))
    partition = np.full(len(raw), raw.partition or 0)
    if PARTITION in given:
        partition = partitions_of(raw.values(given[PARTITION]), given[PARTITION], partition, refusals)
    offset = raw.numbers + _first_offset(raw.name) if SOURCE in given else raw.numbers
    if OFFSET in given:
        offset = integers_of(raw.values(given[OFFSET]), given[OFFSET], offset, refusals)
        if given[OFFSET] in declared:
            _refuse_repeated(raw, source, partition, offset, refusals)
    return source, partition, offset


def _refuse_repeated(
    raw: RawTable,
    source: pa.DictionaryArray,
    partition: NDArray[np.int64],
    offset: NDArray[np.int64],
    refusals: Refusals,
) -> None:
    """Refuse rows whose place a row before them has: matches are known by the places of events."""
    code = source.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((np.arange(len(raw)), offset, partition, code))
    same = (np.diff(code[order]) == 0) & (np.diff(partition[order]) == 0) & (np.diff(offset[order]) == 0)
    for place in np.flatnonzero(same).tolist():
        before, row = order[place], int(order[place + 1])
        refusals.refuse(row, f"has the place of row {raw.numbers[before]}, offset {offset[row]}")


def sources_of(raw: RawTable, name: str) -> pa.DictionaryArray:
    """The column of sources; where it is null, the table is one."""
    return pc.dictionary_encode(pc.fill_null(text_column(raw.column(name)), raw.name))


def _first_offset(name: str) -> int:
    """The offset before the first row of a table whose column `source` says where rows come from.

    Several tables may then have rows of one source, and offsets tell them apart.
    """
    return _number_of(name, 4) << _ROW_BITS


def _number_of(text: str, size: int) -> int:
    """A number of so many bytes that is made of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest())


_OF_TEXT = 1 << 62
"""The least partition that stands for a text; those that are numbers are less, or nearly so."""


def partitions_of(column: pa.Array, name: str, default: NDArray[np.int64], refusals: Refusals) -> NDArray[np.int64]:
    """A column of partitions: integers, or texts, for which numbers stand that are made of them."""
    if is_text(column.type) and convert(column, Type.INTEGER).bad is not None:
        encoded = column.dictionary_encode()
        cells = encoded.dictionary.to_pylist()
        numbers = pa.array([_partition_number(cell) for cell in cells], pa.int64())
        column = numbers.take(encoded.indices)
    return integers_of(column, name, default, refusals)


def _partition_number(text: str) -> int | None:
    """An integer is itself, whatever the other cells are; None = no text."""
    stripped = text.strip()
    if not stripped:
        return None
    number = convert(pa.array([stripped]), Type.INTEGER)
    if number.bad is None:
        return int(number.values[0].as_py())
    return _OF_TEXT | _number_of(stripped, 8) >> 2


def integers_of(column: pa.Array, name: str, default: NDArray[np.int64], refusals: Refusals) -> NDArray[np.int64]:
    """A column of integers, nulls replaced by the default; rows with anything else are refused."""
    converted = convert(column, Type.INTEGER)
    if converted.bad is not None:
        for row in np.flatnonzero(converted.bad).tolist():
            refusals.refuse(row, f"{cell_text(column[row])} in {name!r} is not an integer")
    is_given = pc.is_valid(converted.values).to_numpy(zero_copy_only=False)
    return np.where(is_given, pc.fill_null(converted.values, 0).to_numpy(zero_copy_only=False), default)


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text], pa.string()))


def _with_unreadable(raw: RawTable, records: NumberedRecords, place: int) -> NumberedRecords:
    """The rows together with the records that are not rows, in the order of the table."""
    table, unreadable = records.table, raw.unreadable
    if not unreadable:
        return records
    count = len(unreadable)
    columns: dict[str, pa.Array] = {
        "_kind": pa.array(np.full(count, RecordKind.MALFORMED, np.int16)),
        "_arrival": pa.array(np.full(count, NO_TIME)),
        "_source": _constant(raw.name, count),
        "_partition": pa.array(np.full(count, raw.partition or 0)),
        "_offset": pa.array([record.number for record in unreadable], pa.int64()),
        "_source_time": pa.array(np.full(count, NO_TIME)),
        "_place": pa.array(np.full(count, place)),
        "_text": pa.array([f"{record.place}: {record.reason}: {record.raw}" for record in unreadable]),
    }
    schema = table.schema
    added = pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in schema], schema=schema)
    numbers = np.concatenate([raw.numbers, [record.number for record in unreadable]])
    order = np.argsort(numbers, kind="stable")
    both = pa.concat_tables([table, added]).unify_dictionaries().take(pa.array(order))
    return NumberedRecords(both, numbers[order], records.has_offsets)


def in_order_of_arrival(records: NumberedRecords, before: int) -> tuple[Arrivals, NDArray[np.int64]]:
    """Records sorted by arrival, those of equal arrival as in the table; and their numbers.

    before: arrival, µs, of the table's row before them; NO_TIME = there is none
    """
    micros = _filled(records.table.column("_arrival").to_numpy(), before)
    table = _with_arrival(records.table, micros)
    if (micros[1:] >= micros[:-1]).all():
        return Arrivals(table), records.numbers
    order = stable_order(micros)
    return Arrivals(table.take(pa.array(order))), records.numbers[order]


def _filled(micros: NDArray[np.int64], before: int) -> NDArray[np.int64]:
    """Rows without a time take that of the row before; the first ones take the earliest."""
    known = micros != NO_TIME
    if known.all():
        return micros
    first = before if before != NO_TIME else int(micros[known].min()) if known.any() else 0
    latest = np.maximum.accumulate(np.where(known, np.arange(len(micros)), -1))
    return np.where(latest >= 0, micros[np.maximum(latest, 0)], first)


def _with_arrival(table: pa.Table, micros: NDArray[np.int64]) -> pa.Table:
    position = table.schema.get_field_index("_arrival")
    return table.set_column(position, table.schema.field(position), pa.array(micros))
