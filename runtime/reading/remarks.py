"""What of tables may surprise people, and rows that cannot be read.

Remarks are kept by kind and column, as a count with the first place.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from enum import StrEnum, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field
from querylang.errors import counted
from runtime.instants import NO_TIME, SECOND
from runtime.policies.settings_text import UNIT_NAMES, TimeForm, look_of, patterns_of, time_format_options, unit_of
from runtime.reading.column_names import NOWHERE, Elsewhere
from runtime.reading.formats.raw_table import RawTable
from runtime.timestamps import NUMBER, format_time, is_text


class RemarkKind(StrEnum):
    """What surprises. Records are used nevertheless.

    MISSING_COLUMN: a table lacks a column that others have; it is null there
    UNREAD_VALUES: values of a field that no query reads are wrong; they are null
    CUT_TIMES: times have nanoseconds, which are cut
    ODD_TIMES: times are hardly meant as they are read
    IDLE_COLUMN: a column that users name does nothing
    """

    MISSING_COLUMN = auto()
    UNREAD_VALUES = auto()
    CUT_TIMES = auto()
    ODD_TIMES = auto()
    IDLE_COLUMN = auto()


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark about one table.

    column: that it is about; "" = none
    count: of rows; 1 for what concerns a table as a whole
    text: a line for people, which names the table and the first place
    """

    kind: RemarkKind
    column: str
    count: int
    text: str


@dataclass(slots=True, eq=False)
class LackedColumns(Elsewhere):
    """Columns of other tables; it keeps which of them tables lack.

    others: the columns that may be absent
    remarks: so far, each once
    """

    others: Container[str] = NOWHERE
    remarks: dict[Remark, None] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        """Whether another table has a column of this name."""
        return name in self.others

    def tell(self, table: str, column: str) -> None:
        """Keep that a table lacks one."""
        self.remarks[Remark(RemarkKind.MISSING_COLUMN, column, 1, lacks_column(table, column))] = None


def lacks_column(table: str, column: str) -> str:
    """The line about a column that a table lacks."""
    return f"{table}: has no column {column!r}, which other tables have: it is null there"


# Rows that cannot be read, collected over the stages of reading.

_LONGEST_NUMBER = 1_000
"""Longer text is not looked at as a number."""


class Refusals:
    """The rows of one table that cannot be read, each with the first reason found."""

    def __init__(self, raw: RawTable) -> None:
        self._raw = raw
        self._reasons: dict[int, str] = {}
        self._notes: dict[str, dict[int, str]] = {}

    def note(self, field: str, row: int, reason: str) -> None:
        """Note a row (from 0) in which a field, or a part of it, is null, because it is wrong."""
        self._notes.setdefault(field, {}).setdefault(row, reason)

    def notes(self) -> Iterator[Remark]:
        """The fields that were noted; rows that are refused do not count."""
        for name, reasons in self._notes.items():
            rows = sorted(row for row in reasons if row not in self._reasons)
            if rows:
                place, _ = self._raw.describe(int(self._raw.numbers[rows[0]]))
                more = f", and {counted(len(rows) - 1, 'row')} more" if len(rows) > 1 else ""
                text = f"{self._raw.name}: {place}: {reasons[rows[0]]}{more}; it is null there, as no query reads it"
                yield Remark(RemarkKind.UNREAD_VALUES, name, len(rows), text)

    def refuse(self, row: int, reason: str) -> None:
        """Refuse a row (from 0); an earlier reason is kept."""
        self._reasons.setdefault(row, reason)

    def refuse_time(self, row: int, name: str, form: TimeForm) -> None:
        """Refuse a row whose cell in a column of times is empty or not a time of this form."""
        cell = self._raw.cell(name, row)
        if cell is None or self._raw.is_missing(name, row):
            self.refuse(row, f"{name!r} is empty")
            return
        self.refuse(row, f"{self._raw.shown(name, row)} in {name!r} {_why(cell, form)}")

    @property
    def rows(self) -> list[int]:
        """The refused rows."""
        return list(self._reasons)

    def reports(self) -> Iterator[tuple[int, str]]:
        """Every refused row with its place, the reason and the raw row."""
        for row, reason in self._reasons.items():
            place, raw = self._raw.describe(int(self._raw.numbers[row]))
            yield row, f"{place}: {reason}: {raw}"


def _why(cell: object, form: TimeForm) -> str:
    """Why a cell is not a time."""
    if form.pattern is not None and isinstance(cell, str):
        zones = "; of zones `%Z` reads UTC, GMT and offsets only" if "%Z" in form.pattern else ""
        return f"is not a time of the form {form.pattern!r}{zones}"
    number = _number(cell)
    if number is None:
        options = time_format_options(patterns_of([cell]) if isinstance(cell, str) else ())
        return "is not a time" + (f"; is it of the form {options}?" if options else "")
    unit = unit_of(number)
    if unit is None:
        options = time_format_options(patterns_of([str(cell)]))
        return "is outside of the years 1 to 9999" + (f"; is it of the form {options}?" if options else "")
    return f"is outside of the years 1 to 9999; is it in {UNIT_NAMES[unit]}? `--time-unit {unit}`"


def _number(cell: object) -> float | None:
    """A number, or text that is one; None = any other cell."""
    text = str(cell)
    # neither infinity nor NaN
    if len(text) > _LONGEST_NUMBER or "_" in text or not any(map(str.isdigit, text)):
        return None
    try:
        return float(text)
    except ValueError:
        return None


# Warn of times that are hardly meant: milliseconds or dates read as seconds, and cut nanoseconds.
# No record is refused for it; ordering policies decide what happens to such records.

MOST_DAYS = 1_000
"""No record is so late, and no clock so wrong, by chance."""

_MOST = MOST_DAYS * 86_400 * SECOND


def warning_of(
    name: str,
    numbers: NDArray[np.int64],
    happened: NDArray[np.int64],
    arrival: NDArray[np.int64],
    rows: NDArray[np.bool_],
) -> Remark | None:
    """A warning about a table; None = all times are plausible.

    name: the table's name
    numbers: by row: its number in the table
    happened: by row: source time, µs; NO_TIME = none
    arrival: by row: arrival time, µs; NO_TIME = none
    rows: the rows whose source time some query uses
    """
    if len(rows) and happened.min() != NO_TIME and arrival.min() != NO_TIME and _most(happened, arrival) <= _MOST:
        return None  # the usual case, in few passes
    known = rows & (happened != NO_TIME) & (arrival != NO_TIME)
    gap = np.where(known, np.abs(np.where(known, happened, 0) - np.where(known, arrival, 0)), 0)
    strange = np.flatnonzero(gap > _MOST)
    if not len(strange):
        return None
    first = strange[0]
    happens = "1 row happens" if len(strange) == 1 else f"{len(strange)} rows happen"
    text = (
        f"{name}: {happens} more than {MOST_DAYS:,} days before or after arrival, first row {numbers[first]}:"
        f" source time {format_time(int(happened[first]))}, arrival {format_time(int(arrival[first]))};"
        " is a column in milliseconds that should be in seconds?"
    )
    return Remark(RemarkKind.ODD_TIMES, "", len(strange), text)


def _most(happened: NDArray[np.int64], arrival: NDArray[np.int64]) -> int:
    """The greatest gap; both are within the years 1 to 9999."""
    gap = happened - arrival
    return int(max(gap.max(), -gap.min()))


_ROWS = 1_000
"""How many rows of a column of times are looked at."""

_HAS_NANOSECONDS = r"\d:\d{2}[.,]\d{6}\d*[1-9]"


def warnings_of_columns(raw: RawTable, names: Collection[str], form: TimeForm) -> Iterator[Remark]:
    """What is odd in these columns of times: numbers that look like dates, and nanoseconds."""
    for name in names:
        if not raw.has(name):
            continue
        column = raw.values(name, _ROWS).drop_null()
        if form.unit == "s" and len(column) and (look := _look(column, form)) is not None:
            text = f"{raw.name}: the times in {name!r} look like {look}; they are read as seconds since 1970"
            yield Remark(RemarkKind.ODD_TIMES, name, 1, text)
        if _has_nanoseconds(column, form):
            text = f"{raw.name}: times in {name!r} have nanoseconds, which are cut to microseconds"
            yield Remark(RemarkKind.CUT_TIMES, name, 1, text)


def _look(column: pa.Array, form: TimeForm) -> str | None:
    """What numbers, or text that is numbers, look like; None = like seconds, or like no number."""
    if is_text(column.type):
        if form.pattern is not None or not pc.all(pc.match_substring_regex(column, NUMBER)).as_py():
            return None
        return look_of(list(map(float, column.to_pylist())))
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    return look_of(column.to_pylist()) if form.pattern is None else None


def _has_nanoseconds(column: pa.Array, form: TimeForm) -> bool:
    kind = column.type
    if is_text(kind):
        return form.pattern is None and bool(
            pc.any(pc.match_substring_regex(column, _HAS_NANOSECONDS), min_count=0).as_py()
        )
    is_fine = (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit == "ns"
    if not is_fine and not (pa.types.is_integer(kind) and form.unit == "ns"):
        return False
    return bool((pc.cast(column, pa.int64(), safe=False).to_numpy(zero_copy_only=False) % 1_000).any())
