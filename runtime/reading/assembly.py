"""The stages' results as one table of arrivals: places, refused rows, order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.columns.arrivals import SHAPE_FIELDS, Arrivals, RecordKind, arrivals_schema
from runtime.columns.rows import stable_order
from runtime.instants import NO_TIME
from runtime.reading.column_names import OFFSET, PARTITION, SOURCE, Roles
from runtime.reading.conversion import convert
from runtime.reading.field_columns import FieldColumns
from runtime.reading.formats.raw_table import RawTable, cell_text, text_column
from runtime.reading.remarks import Refusals
from runtime.reading.row_kinds import RowKinds
from runtime.reading.row_times import RowTimes
from runtime.timestamps import is_text

_ROW_BITS = 30
"""Bits of a row's number in an offset that also tells tables apart."""


@dataclass(frozen=True, slots=True)
class Numbered:
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
) -> Numbered:
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
    numbered = Numbered(pa.table(arrays, schema=schema), raw.numbers, OFFSET in given)
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


def _with_unreadable(raw: RawTable, records: Numbered, place: int) -> Numbered:
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
    return Numbered(both, numbers[order], records.has_offsets)


def in_order_of_arrival(records: Numbered, before: int) -> tuple[Arrivals, NDArray[np.int64]]:
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
