"""Rows that cannot be read, collected over the stages of reading."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.reading.formats.raw_table import RawTable

_LONGEST_NUMBER = 1_000
"""Longer text is not looked at as a number."""


class Refusals:
    """The rows of one table that cannot be read, each with the first reason found."""

    def __init__(self, raw: RawTable) -> None:
        self._raw = raw
        self._reasons: dict[int, str] = {}

    def refuse(self, row: int, reason: str) -> None:
        """Refuse a row (from 0); an earlier reason is kept."""
        self._reasons.setdefault(row, reason)

    def refuse_time(self, row: int, name: str) -> None:
        """Refuse a row whose cell in a column of times is empty or not a time."""
        cell = self._raw.cell(name, row)
        if cell is None:
            self.refuse(row, f"{name!r} is empty")
            return
        why = "is outside of the years 1 to 9999; is it in milliseconds?" if _is_number(cell) else "is not a time"
        self.refuse(row, f"{self._raw.shown(name, row)} in {name!r} {why}")

    def reports(self) -> Iterator[tuple[int, str]]:
        """Every refused row with its place, the reason and the raw row."""
        for row, reason in self._reasons.items():
            place, raw = self._raw.describe(int(self._raw.numbers[row]))
            yield row, f"{place}: {reason}: {raw}"


def _is_number(cell: object) -> bool:
    """Whether a cell is a number, or text that is one."""
    text = str(cell)
    if len(text) > _LONGEST_NUMBER:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and any(map(str.isdigit, text))  # neither infinity nor NaN
