"""Rows that cannot be read, collected over the stages of reading."""

from __future__ import annotations

from collections.abc import Iterator

from querylang.errors import counted
from runtime.policies.settings_text import UNIT_NAMES, TimeForm, patterns_of, time_format_options, unit_of
from runtime.reading.formats.raw_table import RawTable
from runtime.reading.remarks import Remark, RemarkKind

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
        for field, reasons in self._notes.items():
            rows = sorted(row for row in reasons if row not in self._reasons)
            if rows:
                place, _ = self._raw.describe(int(self._raw.numbers[rows[0]]))
                more = f", and {counted(len(rows) - 1, 'row')} more" if len(rows) > 1 else ""
                text = f"{self._raw.name}: {place}: {reasons[rows[0]]}{more}; it is null there, as no query reads it"
                yield Remark(RemarkKind.UNREAD_VALUES, field, len(rows), text)

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
