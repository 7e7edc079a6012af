"""Event tables as arrivals: what every column of a table means for a plan.

Takes files (CSV, JSON lines, Parquet, YAML rows) and tables (pandas, Polars, Arrow) and a plan; gives `Arrivals`.
Columns: `at` arrival time, `event` type or an event written as text, `ts` source time, `source`, `partition`,
`offset` where the row came from, `start`, `end`, `shape` of events that last, all others the events' fields by name. A row that cannot be read becomes a MALFORMED
record that says where and why; the rest goes on. A table that cannot be one raises InputError. Order, clocks and
judgement are left to the engine.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import InputError
from querylang.plan.model import EventType, Field, Plan, plain_field
from querylang.plan.value_types import Kind, Type
from runtime.arrow_types import arrow_type
from runtime.columns.arrivals import SHAPE_FIELDS, Arrivals, RecordKind, arrivals_schema, column_name
from runtime.columns.cell_values import to_cell
from runtime.columns.expressions import as_array
from runtime.columns.sorting import stable_order
from runtime.columns.timestamps import NUMBER, microseconds, parse_times
from runtime.instants import NO_TIME
from runtime.interpreter.values import Event
from runtime.policies.per_input import uses_source_time
from runtime.reading.conversion import agrees, convert
from runtime.reading.event_column import event_index, read_event_column
from runtime.reading.files import iter_raw, read_raw
from runtime.reading.formats.raw_table import RawTable, cell_of
from runtime.reading.intervals import read_shapes
from runtime.reading.plausibility import warning_of
from runtime.reading.schema_inference import PLACES, infer_schemas

__all__ = ["ColumnNames", "infer_schemas", "iter_arrivals", "read_arrivals", "read_rows"]

EVENT = "event"
"""The column that says what a row is, where no other is named."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of the columns that say when and what; None: the standard name, which may be absent."""

    arrival: str | None = None
    type: str | None = None
    source_time: str | None = None


def read_arrivals(
    table: Any,
    plan: Plan,
    *,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    source: str | None = None,
) -> Arrivals:
    """Read a whole table for a plan.

    `table`: a path, a pandas, Polars or Arrow table, or a list of mappings. `arrival`, `type`, `source_time` name other
    columns than `at`, `event`, `ts`; `source` is the source's name where the table has no such column (else the file's
    name). Without an arrival column the table is history: rows arrive at their source time, in its order. Raises
    InputError for what is no table, and for a column that the plan needs and the table lacks.
    """
    return read_rows(table, plan, ColumnNames(arrival, type, source_time), source).arrivals


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of a table; `numbers`: that of each in its table, from 1; `warning`: what can hardly be meant, for people."""

    arrivals: Arrivals
    numbers: NDArray[np.int64]
    warning: str | None = None


def read_rows(table: Any, plan: Plan, columns: ColumnNames, source: str | None = None) -> Rows:
    """As `read_arrivals`, with what else there is to know about the table."""
    reading = _Reading(read_raw(table, source, few_values=(columns.type or EVENT,)), plan, columns)
    arrivals = reading.arrivals()
    return Rows(arrivals, reading.rows, reading.warning)


def iter_arrivals(
    table: Any,
    plan: Plan,
    *,
    arrival: str | None = None,
    type: str | None = None,  # noqa: A002  the word that users write
    source_time: str | None = None,
    source: str | None = None,
) -> Iterator[Arrivals]:
    """The same in parts (a Parquet file's row groups), in the order of the file; arrival never decreases across them.

    History comes in parts too: each is in order of source time, but only within itself.
    """
    floor = NO_TIME
    for part in iter_raw(table, source, few_values=(type or EVENT,)):
        reading = _Reading(part, plan, ColumnNames(arrival, type, source_time), floor)
        arrivals = reading.arrivals()
        if len(arrivals) and not reading.is_history:
            floor = max(floor, int(arrivals.system("arrival").max()))
        yield arrivals


class _Reading:
    """One table on its way to arrivals: marks rows as malformed while it goes through the columns."""

    def __init__(self, raw: RawTable, plan: Plan, columns: ColumnNames, floor: int = NO_TIME) -> None:
        self.raw = raw
        self.plan = plan
        self.count = len(raw.columns)
        self.names = raw.columns.column_names
        self.floor = floor
        self.rows = raw.numbers
        self.reasons: dict[int, str] = {}
        self.arrival = self._declared(columns.arrival, "at")
        self.type = self._declared(columns.type, EVENT)
        self.lasting = _lasting_events(plan)
        self.source_time = self._declared(columns.source_time, "ts")
        self.start = self._declared(None, "start") if self.lasting else None
        self.is_history = self.arrival is None
        self.kinds = np.empty(self.count, np.int16)
        self.text: NDArray[np.object_] | None = None
        self.written: dict[int, Event] = {}
        self.warning: str | None = None

    def arrivals(self) -> Arrivals:
        self._read_kinds()
        self._check_columns()
        self._check_types()
        fields = self._fields()
        source_time = self._source_times()
        happened = self._happened(fields, source_time)
        shapes = self._shapes(happened)
        moments = happened if self.is_history else self._arrival_times()
        rows = self._rows_of(_timed_events(self.plan))
        self.warning = warning_of(self.raw.name, self.raw.numbers, happened, moments, rows)
        return self._assemble({**fields, **shapes}, source_time, moments)

    def _declared(self, name: str | None, standard: str) -> str | None:
        if name is None:
            return standard if standard in self.names else None
        if name not in self.names:
            raise InputError(f"{self.raw.name}: has no column {name!r}{_did_you_mean(name, self.names)}")
        return name

    def _column(self, name: str) -> pa.Array:
        column = self.raw.columns.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            return pc.cast(column, column.type.value_type)
        return column

    def _refuse(self, row: int, reason: str) -> None:
        self.reasons.setdefault(row, reason)

    # ------------------------------------------------------------------------------------------------ event types

    def _read_kinds(self) -> None:
        if self.type is None:
            self.kinds = np.full(self.count, self._only_event(), np.int16)
            return
        found = read_event_column(self.raw.columns.column(self.type).combine_chunks(), self.plan)
        self.kinds, self.text, self.written = found.kinds, found.text, found.written
        self.reasons.update(found.malformed)

    def _set_text(self, rows: NDArray[np.int64], text: str) -> None:
        if self.text is None:
            self.text = np.full(self.count, None, np.object_)
        self.text[rows] = text

    def _only_event(self) -> int:
        inputs = dict.fromkeys(item.event for query in self.plan.queries for item in query.inputs)
        if len(inputs) != 1:
            takes = f"the queries take {', '.join(inputs)}" if inputs else "no query takes an event"
            raise InputError(f"{self.raw.name}: has no column 'event', and {takes}{_did_you_mean('event', self.names)}")
        index = event_index(self.plan, next(iter(inputs)))
        assert index is not None, "an input's event type is one of the plan's"
        return index

    # ---------------------------------------------------------------------------------------------------- columns

    @cached_property
    def _present_events(self) -> list[tuple[int, EventType]]:
        """The event types with rows whose fields stand in columns."""
        kinds = np.delete(self.kinds, list(self.written)) if self.written else self.kinds
        counts = np.bincount(kinds - np.int16(min(RecordKind)), minlength=-min(RecordKind))
        present = np.flatnonzero(counts[-min(RecordKind) :])
        return [(int(index), self.plan.events[index]) for index in present]

    def _check_columns(self) -> None:
        for _, event in self._present_events:
            for field in event.fields:
                if field.name not in self.names and field.type.kind is not Kind.OPTIONAL:
                    near = _did_you_mean(field.name, self.names)
                    raise InputError(f"{self.raw.name}: has no column {field.name!r}, a field of {event.name!r}{near}")
            has_start = self.start is not None and event.name in self.lasting
            if (
                self.source_time is None
                and not has_start
                and _needs_source_time(self.plan, event.name, self.is_history)
            ):
                raise InputError(
                    f"{self.raw.name}: has no column 'ts', the source time of {event.name!r}"
                    f"{_did_you_mean('ts', self.names)}; another column can be named as the source time"
                )

    def _check_types(self) -> None:
        """A schema must agree with a definition of each field; where several types of events share a column, with one."""
        times = _source_time_fields(self.plan)
        uses: dict[str, list[tuple[EventType, Field]]] = {}
        for _, event in self._present_events:
            for field in event.fields:
                if field.name in self.names:
                    uses.setdefault(field.name, []).append((event, field))
        for name, found in uses.items():
            kind = self.raw.columns.schema.field(name).type
            fits = any(agrees(kind, field.type, (event.name, name) in times, self.plan) for event, field in found)
            if name in self.raw.declared and not fits:
                event, field = found[0]
                raise InputError(
                    f"{self.raw.name}: column {name!r} is {kind}, but field {name!r} of {event.name!r} is {field.type}"
                )

    def _fields(self) -> dict[str, pa.Array]:
        """The columns of all events' fields, null on the rows of other types."""
        times = _source_time_fields(self.plan)
        columns: dict[str, list[tuple[int, Field, bool]]] = {}
        for index, event in self._present_events:
            for field in event.fields:
                is_time = (event.name, field.name) in times
                columns.setdefault(column_name(field.name, field.type), []).append((index, field, is_time))
        fields = {name: self._field(uses) for name, uses in columns.items()}
        return self._with_written(fields)

    def _field(self, uses: Sequence[tuple[int, Field, bool]]) -> pa.Array:
        field = uses[0][1]
        if field.name not in self.names:
            return pa.nulls(self.count, arrow_type(field.type, self.plan))
        is_time = any(use[2] for use in uses)
        converted = convert(self._column(field.name), field.type, is_time, self.plan)
        owners = self._is_of([index for index, _, _ in uses])
        if self.written:
            owners[list(self.written)] = False
        if converted.bad is not None:
            for row in np.flatnonzero(converted.bad & owners):
                cell = cell_of(self.raw.columns, field.name, int(row))
                self._refuse(int(row), f"{cell!r} is not a value of {field.name!r} ({field.type})")
        if owners.all():
            return converted.values
        return pc.if_else(pa.array(owners), converted.values, pa.nulls(self.count, converted.values.type))

    def _with_written(self, fields: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """The fields of events that are written as text, put into the columns."""
        values: dict[str, dict[int, Any]] = {}
        types: dict[str, Type] = {}
        for row, event in self.written.items():
            for field in event.type.fields:
                name = column_name(field.name, field.type)
                values.setdefault(name, {})[row] = to_cell(event.values[field.name])
                types[name] = field.type
        for name, cells in values.items():
            rows = np.fromiter(cells, np.int64)
            mask = np.zeros(self.count, np.bool_)
            mask[rows] = True
            order = np.argsort(rows)
            kind = arrow_type(types[name], self.plan)
            given = pa.array([list(cells.values())[i] for i in order], kind)
            fields[name] = _replaced(fields.get(name, pa.nulls(self.count, kind)), mask, given)
        return fields

    # ------------------------------------------------------------------------------------------------------ times

    def _source_times(self) -> NDArray[np.int64]:
        micros = np.full(self.count, NO_TIME)
        if self.source_time is not None:
            micros = self._filled_from(self.source_time, micros, np.ones(self.count, np.bool_))
        return micros if self.start is None else self._filled_from(self.start, micros, self._rows_of(self.lasting))

    def _filled_from(self, name: str, micros: NDArray[np.int64], rows: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The times that are missing on these rows, from a column; what is no time there spoils its row."""
        moments = parse_times(self._column(name))
        is_open = rows & (micros == NO_TIME)
        for row in np.flatnonzero(moments.bad & is_open):
            if not self._is_field(int(row), name):
                self._refuse_time(int(row), name)
        return np.where(is_open, moments.micros, micros)

    def _is_field(self, row: int, name: str) -> bool:
        kind = self.kinds[row]
        return kind >= 0 and any(field.name == name for field in self.plan.events[kind].fields)

    def _refuse_time(self, row: int, name: str) -> None:
        cell = cell_of(self.raw.columns, name, row)
        if cell is None:
            self._refuse(row, f"{name!r} is empty")
            return
        is_number = re.fullmatch(NUMBER, str(cell).strip()) is not None
        why = "lies outside of the years 1 to 9999; is it in milliseconds?" if is_number else "is not a time"
        self._refuse(row, f"{cell!r} in {name!r} {why}")

    def _arrival_times(self) -> NDArray[np.int64]:
        assert self.arrival is not None, "a table with arrivals has the column"
        micros = parse_times(self._column(self.arrival)).micros
        if (micros == NO_TIME).any():
            for row in np.flatnonzero(micros == NO_TIME):
                self._refuse_time(int(row), self.arrival)
        return micros

    def _happened(self, fields: Mapping[str, pa.Array], source_time: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every row's own source time."""
        moments = source_time.copy()
        for name, source in self.plan.time_sources():
            rows = self.kinds == event_index(self.plan, name)
            if rows.any():
                own = microseconds(as_array(source, pa.table(dict(fields)), self.plan, self.plan.event(name)))
                moments = np.where(rows, own, moments)
        return moments

    def _shapes(self, start: NDArray[np.int64]) -> dict[str, pa.Array]:
        """The columns of events that last, where there are such; `start`: when each row's event begins."""
        given = {name: self._column(name) for name in ("end", "shape") if name in self.names}
        if not given or not self.lasting:
            return {}
        found = read_shapes(given.get("end"), given.get("shape"), self._rows_of(self.lasting), start)
        for row, problem in found.problems.items():
            self._refuse(row, problem)
        return {"_end": pa.array(found.end), "_shape": pa.array(found.shape)}

    def _rows_of(self, events: Collection[str]) -> NDArray[np.bool_]:
        """The rows of these event types."""
        return self._is_of([number for number, event in enumerate(self.plan.events) if event.name in events])

    def _is_of(self, numbers: Sequence[int]) -> NDArray[np.bool_]:
        """The rows of event types by number; what is no event has negative numbers, which count from the end."""
        is_one = np.zeros(len(self.plan.events) - min(RecordKind), np.bool_)
        is_one[list(numbers)] = True
        return is_one[self.kinds]

    # --------------------------------------------------------------------------------------------------- assembly

    def _assemble(
        self, fields: Mapping[str, pa.Array], source_time: NDArray[np.int64], moments: NDArray[np.int64]
    ) -> Arrivals:
        source, partition, offset = self._places()
        self._refuse_marked()
        columns: dict[str, pa.Array] = {
            "_kind": pa.array(self.kinds),
            "_arrival": pa.array(moments),
            "_source": source,
            "_partition": pa.array(partition),
            "_offset": pa.array(offset),
            "_source_time": pa.array(source_time),
            "_text": pa.nulls(self.count, pa.string()) if self.text is None else pa.array(self.text, pa.string()),
        }
        schema = arrivals_schema(self.plan)
        for field in SHAPE_FIELDS:
            schema = schema.append(field) if field.name in fields else schema
        for field in schema:
            if field.name not in columns:
                columns[field.name] = fields.get(field.name, pa.nulls(self.count, field.type))
        table = pa.table([columns[name] for name in schema.names], schema=schema)
        return self._ordered(self._with_unreadable(table))

    def _refuse_marked(self) -> None:
        for row, reason in self.reasons.items():
            place, raw = self.raw.describe(int(self.raw.numbers[row]))
            self._set_text(np.array([row]), f"{place}: {reason}: {raw}")
            self.kinds[row] = RecordKind.MALFORMED

    def _places(self) -> tuple[pa.DictionaryArray, NDArray[np.int32], NDArray[np.int64]]:
        own = {field.name for _, event in self._present_events for field in event.fields}
        given = {name: self._column(name) for name in PLACES if name in self.names and name not in own}
        if "source" in given:
            source = pc.dictionary_encode(pc.fill_null(pc.cast(given["source"], pa.string()), self.raw.name))
        else:
            source = _constant(self.raw.name, self.count)
        partition = self._number(given, "partition", np.zeros(self.count, np.int64)).astype(np.int32)
        return source, partition, self._number(given, "offset", self.raw.numbers)

    def _number(self, given: Mapping[str, pa.Array], name: str, default: NDArray[np.int64]) -> NDArray[np.int64]:
        if name not in given:
            return default
        converted = convert(given[name], Type.INTEGER)
        if converted.bad is not None:
            for row in np.flatnonzero(converted.bad):
                self._refuse(int(row), f"{given[name][int(row)].as_py()!r} in {name!r} is not a whole number")
        return np.where(
            pc.is_valid(converted.values).to_numpy(zero_copy_only=False),
            pc.fill_null(converted.values, 0).to_numpy(zero_copy_only=False),
            default,
        )

    def _with_unreadable(self, table: pa.Table) -> pa.Table:
        """The records that are no rows, each where it stood."""
        unreadable = self.raw.unreadable
        if not unreadable:
            return table
        count = len(unreadable)
        columns: dict[str, pa.Array] = {
            "_kind": pa.array(np.full(count, RecordKind.MALFORMED, np.int16)),
            "_arrival": pa.array(np.full(count, NO_TIME)),
            "_source": _constant(self.raw.name, count),
            "_partition": pa.array(np.zeros(count, np.int32)),
            "_offset": pa.array([record.number for record in unreadable], pa.int64()),
            "_source_time": pa.array(np.full(count, NO_TIME)),
            "_text": pa.array([f"{record.place}: {record.reason}: {record.raw}" for record in unreadable]),
        }
        schema = table.schema
        added = pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in schema], schema=schema)
        numbers = np.concatenate([self.raw.numbers, [record.number for record in unreadable]])
        order = np.argsort(numbers, kind="stable")
        self.rows = numbers[order]
        return pa.concat_tables([table, added]).unify_dictionaries().take(pa.array(order))

    def _ordered(self, table: pa.Table) -> Arrivals:
        moments = table.column("_arrival").to_numpy().copy()
        if self.is_history:
            moments = _filled(moments, self.floor)
            order = stable_order(moments)
            table = _with_arrival(table, moments)
            self.rows = self.rows[order]
            return Arrivals(table if (order == np.arange(len(order))).all() else table.take(pa.array(order)))
        return Arrivals(_with_arrival(table, _clamped(table, moments, self.floor)))


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([text], pa.string()))


def _filled(moments: NDArray[np.int64], floor: int) -> NDArray[np.int64]:
    """Rows without a time take that of the row before, the first ones the earliest."""
    known = moments != NO_TIME
    if known.all():
        return moments
    if not known.any():
        return np.full(len(moments), max(floor, 0))
    latest = np.maximum.accumulate(np.where(known, np.arange(len(moments)), -1))
    return np.where(latest >= 0, moments[np.maximum(latest, 0)], moments[known].min())


def _clamped(table: pa.Table, moments: NDArray[np.int64], floor: int) -> NDArray[np.int64]:
    """Arrival never goes back along the offsets of one source partition."""
    if not len(moments):
        return moments
    partition, offset = table.column("_partition").to_numpy(), table.column("_offset").to_numpy()
    codes = table.column("_source").combine_chunks().indices.to_numpy(zero_copy_only=False)
    group = codes.astype(np.int64) << 32 | partition.astype(np.int64) & 0xFFFFFFFF
    order = np.lexsort((offset, group)) if (group != group[0]).any() or (np.diff(offset) < 0).any() else None
    ordered = moments if order is None else moments[order]
    starts = np.zeros(len(moments), np.int64) if order is None else group[order]
    ordered = np.maximum(ordered, floor)
    for part in np.split(np.arange(len(ordered)), np.flatnonzero(np.diff(starts)) + 1):
        ordered[part] = np.maximum.accumulate(ordered[part])
    unknown = ordered == NO_TIME
    if unknown.any():  # nothing readable before them: they arrive with the first that is
        ordered[unknown] = ordered[~unknown].min() if (~unknown).any() else 0
    if order is None:
        return ordered
    clamped = np.empty_like(ordered)
    clamped[order] = ordered
    return clamped


def _with_arrival(table: pa.Table, moments: NDArray[np.int64]) -> pa.Table:
    position = table.schema.get_field_index("_arrival")
    return table.set_column(position, table.schema.field(position), pa.array(moments))


def _replaced(column: pa.Array, mask: NDArray[np.bool_], given: pa.Array) -> pa.Array:
    """The column with other values where the mask says so."""
    place = np.arange(len(column))
    place[mask] = np.arange(len(column), len(column) + len(given))
    return pa.concat_arrays([column, given]).take(pa.array(place))


def _source_time_fields(plan: Plan) -> set[tuple[str, str]]:
    """The (event type, field) pairs that say when an event happened: they may be written in any form of time."""
    pairs = ((event, plain_field(source)) for event, source in plan.time_sources())
    return {(event, field) for event, field in pairs if field is not None}


def _needs_source_time(plan: Plan, event: str, is_history: bool) -> bool:
    """Whether some query reads the time of this type's events from the source's declared column."""
    for query in plan.queries:
        for item in query.inputs:
            if not (uses_source_time(item) or is_history):
                continue
            for taken in (item, item.heartbeat):
                if taken is not None and taken.event == event and taken.time_from is None:
                    return True
    return False


def _timed_events(plan: Plan) -> set[str]:
    """The event types whose source time some query looks at."""
    inputs = [item for query in plan.queries for item in query.inputs]
    beats = {item.heartbeat.event for item in inputs if item.heartbeat is not None}
    return beats | {item.event for item in inputs if uses_source_time(item)}


def _lasting_events(plan: Plan) -> set[str]:
    """The event types whose events some query takes as intervals."""
    inputs = [item for query in plan.queries for item in query.inputs]
    return {item.event for item in inputs if item.policy is not None and item.policy.events_last}


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
