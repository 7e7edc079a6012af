"""Event tables as arrivals, for a plan.

Columns of a table:

at: arrival time
event: an event type, or an event written as text
ts: source time
source, partition, offset: where the row came from
start, end, shape: of events that are intervals

All others are fields of events, by name. A row that cannot be read becomes a MALFORMED record that
says where and why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.file_forms import Asked, kind_of
from runtime.instants import NO_TIME
from runtime.reading.assembly import assemble, in_order_of_arrival, read_times
from runtime.reading.column_names import (
    ARRIVAL,
    SOURCE,
    STANDARD,
    TYPE,
    ColumnNames,
    Roles,
    find_roles,
    needed_names,
    with_names,
)
from runtime.reading.field_columns import check_columns, read_fields, without_unreadable
from runtime.reading.files import FORMATS, Progress, iter_raw, read_raw
from runtime.reading.formats.encodings import BrokenCell, without_broken_text
from runtime.reading.formats.raw_table import RawTable, numbered_from
from runtime.reading.plan_needs import (
    Leniency,
    interval_events,
    leniency,
    source_time_fields,
    timed_events,
    unused_source_time,
)
from runtime.reading.remarks import Refusals, Remark, RemarkKind, warning_of, warnings_of_columns
from runtime.reading.row_kinds import read_kinds, refuse_types
from runtime.timestamps import given_times

SUFFIXES = tuple(FORMATS)
"""How the names of files end that can be tables."""


def is_table(name: str) -> bool:
    """Whether a file of this name can be a table, compressed or not."""
    return kind_of(Path(name))[0] in FORMATS


@dataclass(frozen=True, slots=True)
class TableRecords:
    """The records of a table.

    arrivals: the records
    numbers: by record: its number in the table, from 1
    is_history: the table has no arrival times; records arrive at their source time, sorted by it
    has_offsets: a column says the offsets: they order records that arrive together
    remarks: what may surprise people
    """

    arrivals: Arrivals
    numbers: NDArray[np.int64]
    is_history: bool
    has_offsets: bool = False
    remarks: tuple[Remark, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The remarks, a line each."""
        return tuple(remark.text for remark in self.remarks)


def read_arrivals(table: Any, plan: Plan, names: ColumnNames = STANDARD, *, source: str | None = None) -> Arrivals:
    """Read a whole table for a plan.

    table: a path, a pandas, Polars or Arrow table, or a list of mappings
    names: names of columns, instead of `at`, `event`, `ts`
    source: the source's name if the table has no such column; None = the file's name

    Without an arrival column the table is history: rows arrive at their source time, in its order.
    Raises InputError for anything that is not a table, and for a column that is missing.
    """
    return read_table(table, plan, names, source).arrivals


def read_table(
    table: Any,
    plan: Plan,
    names: ColumnNames,
    source: str | None = None,
    place: int = 0,
    progress: Progress | None = None,
) -> TableRecords:
    """As `read_arrivals`, with what else is known about the table; `place` as in `Arrivals`."""
    return _read(read_raw(table, source, _asked(plan, names), progress), plan, names, place)


def read_following(table: Any, plan: Plan, names: ColumnNames, source: str, first: int, before: int) -> TableRecords:
    """As `read_table`, of rows that follow others of their source.

    first: the number of the first row
    before: arrival, µs, of the row before it; NO_TIME = there is none
    """
    return _read(numbered_from(read_raw(table, source, _asked(plan, names)), first), plan, names, 0, before)


def iter_arrivals(
    table: Any, plan: Plan, names: ColumnNames = STANDARD, *, source: str | None = None, place: int = 0
) -> Iterator[Arrivals]:
    """As `read_arrivals`, in parts: files in blocks, anything else at once.

    place: `_place` of all records, as in `Arrivals`

    Each part is sorted by arrival. A part may begin before the one before it ends.
    """
    for part in iter_table(table, plan, names, source, place):
        yield part.arrivals


def iter_table(
    table: Any,
    plan: Plan,
    names: ColumnNames,
    source: str | None = None,
    place: int = 0,
    rows: int | None = None,
) -> Iterator[TableRecords]:
    """As `iter_arrivals`, with what else is known about each part.

    rows: most rows of a part, if the reader can choose; None = as it likes
    """
    before = NO_TIME
    for part in iter_raw(table, source, _asked(plan, names, rows)):
        read = _read(part, plan, names, place, before)
        if len(read.arrivals):
            before = int(read.arrivals.system("arrival")[np.argmax(read.numbers)])
        yield read


def iter_arrival_times(
    table: Any, plan: Plan, names: ColumnNames, source: str | None = None
) -> Iterator[NDArray[np.int64]]:
    """When the rows of a table arrive, µs, in parts as of `iter_arrivals`; but no rows are made.

    A row that does not say it is left out, unless a whole part does not: then all of it is read.
    """
    role = names.of(ARRIVAL)
    if role is not None:
        wanted = frozenset((role.casefold(),))
        for raw in iter_raw(table, source, replace(names.asked(wanted=wanted), only=wanted)):
            known = _arrival_times(names.as_written(with_names(raw, [role])), role, names)
            if not len(known):
                break
            yield known
        else:
            return
    for part in iter_arrivals(table, plan, names, source=source):
        if len(part):
            yield part.system("arrival")


def _arrival_times(raw: RawTable, role: str, names: ColumnNames) -> NDArray[np.int64]:
    """Those that a table says."""
    if not raw.has(role):
        return np.empty(0, np.int64)
    micros = given_times(raw.column(role), names.times).micros
    return micros[micros != NO_TIME]


def names_of_columns(path: Path) -> Collection[str]:
    """The names of the columns that a file begins with; raises InputError."""
    return next((part.names for part in iter_raw(path)), ())


def _asked(plan: Plan, names: ColumnNames, rows: int | None = None) -> Asked:
    """What the readers of files need to know about a plan."""
    wanted = frozenset(name.casefold() for name in needed_names(plan, names))
    return names.asked(texts_of_roles(names)[:1], wanted, rows)


def texts_of_roles(names: ColumnNames) -> tuple[str, ...]:
    """The columns of roles that are text also where they are declared as bytes: type and source."""
    return tuple(name for role in (TYPE, SOURCE) if (name := names.of(role)) is not None)


def _read(raw: RawTable, plan: Plan, names: ColumnNames, place: int, before: int = NO_TIME) -> TableRecords:
    """Run the stages of reading; the first reason to refuse a row is the one that is reported."""
    needed = needed_names(plan, names)
    raw, broken = without_broken_text(
        names.as_written(with_names(raw, needed)), needed, texts_of_roles(names), names.csv
    )
    refusals, allowed = Refusals(raw), leniency(plan, names.inferred, names.unread)
    _refuse_broken(broken, plan, allowed, refusals)
    roles = find_roles(raw, names, has_intervals=bool(interval_events(plan)))
    if names.is_typeless:
        refuse_types(raw, plan, refusals)
    kinds = read_kinds(raw, plan, roles.type, refusals, names.elsewhere)
    if names.is_mixed:
        kinds = without_unreadable(raw, plan, roles, kinds, refusals, names.elsewhere)
    check_columns(raw, plan, roles, kinds, names.elsewhere)
    fields = read_fields(raw, plan, kinds, names.times, refusals, allowed)
    times = read_times(raw, plan, roles, kinds, fields, names.times, refusals)
    timed = kinds.is_event_of(timed_events(plan), plan)
    odd_times = [*warnings_of_columns(raw, _time_columns(roles, plan), names.times)]
    implausible = warning_of(raw.name, raw.numbers, times.source, times.arrival, timed)
    odd_times += [] if implausible is None or odd_times else [implausible]
    if not odd_times and not roles.is_history:
        unused = unused_source_time(plan, names.source_time)
        odd_times += [] if unused is None else [Remark(RemarkKind.IDLE_COLUMN, names.source_time or "", 1, unused)]
    records = assemble(raw, plan, roles, kinds, fields, times, refusals, place)
    arrivals, numbers = in_order_of_arrival(records, before)
    return TableRecords(arrivals, numbers, roles.is_history, records.has_offsets, (*refusals.notes(), *odd_times))


def _refuse_broken(cells: Sequence[BrokenCell], plan: Plan, allowed: Leniency, refusals: Refusals) -> None:
    """Refuse the rows with text that is not UTF-8, unless no query reads it."""
    for cell in cells:
        uses = [(event.name, field) for event in plan.events for field in event.fields if field.name == cell.column]
        if uses and all((event, field.name) in allowed.unread for event, field in uses):
            refusals.note(cell.column, cell.row, cell.reason)
        else:
            refusals.refuse(cell.row, cell.reason)


def _time_columns(roles: Roles, plan: Plan) -> list[str]:
    """The columns that some query reads times from."""
    named = [name for name in (roles.arrival, roles.source_time, roles.start) if name is not None]
    return list(dict.fromkeys([*named, *sorted(field for _, field in source_time_fields(plan))]))
