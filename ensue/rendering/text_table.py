"""Aligned tables of text, and text that fits into their cells."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

from querylang.dataclass import dataclass
from querylang.printable import one_line
from runtime.instants import LATEST, NO_TIME
from runtime.timestamps import format_time


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()) -> str:
    """Columns two spaces apart, with a line under the header.

    Cells are put on one line each; what acts on a terminal is escaped.

    right: the columns aligned to the right; the others are aligned to the left
    """
    is_right = [name in right for name in header]
    header, *rows = [[*map(one_line, line)] for line in (header, *rows)]
    widths = [max(map(width_of, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            _padded(cell, width, of_right) for cell, width, of_right in zip(line, widths, is_right, strict=True)
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, width: int, is_right: bool) -> str:
    spaces = " " * (width - width_of(cell))
    return spaces + cell if is_right else cell + spaces


def width_of(text: str) -> int:
    """How many columns of a terminal a text fills.

    A wide East Asian letter fills two, a combining mark none.
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def shortened(text: str, most: int = 200) -> str:
    """Text for people, cut after `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


NARROWEST = 16
"""Columns of the terminal that a cut cell should have; otherwise columns are left out first."""

Rows = Sequence[Sequence[str]]


def fitted(
    header: Sequence[str], rows: Rows, width: int | None, less_wanted: Sequence[str] = ()
) -> tuple[Sequence[str], Rows]:
    """The header and the rows of a table that is at most `width` wide; None = as they are.

    The widest columns are cut with an ellipsis. Where little of them would remain, columns are left
    out first.
    """
    columns = [[*map(one_line, column)] for column in zip(header, *rows, strict=True)]
    if width is None:
        return header, rows
    for name in less_wanted:
        if sum(min(_widest(column), NARROWEST) + 2 for column in columns) - 2 > width:
            columns = [column for column in columns if column[0] != name]
    widths = [*map(_widest, columns)]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    cut = [[_cut(cell, most) for cell in column] for column, most in zip(columns, widths, strict=True)]
    first, *others = zip(*cut, strict=True)
    return first, others


def _widest(column: Sequence[str]) -> int:
    return max(map(width_of, column))


def _cut(text: str, most: int) -> str:
    """Text that fills at most so many columns of a terminal."""
    if width_of(text) <= most:
        return text
    while width_of(text) >= most:
        text = text[:-1]
    return f"{text}…"


# The times of one table in one format: no longer than needed to tell them apart.

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How the times of one table are written.

    day: the day of all times, not written in the cells; None = each time is written with its day
    digits: digits after the seconds, the same for all times: 0, 3 or 6
    has_latest: whether a record has the last instant there is, which for bounds else means no end
    """

    day: str | None
    digits: int
    has_latest: bool = False

    @staticmethod
    def of(times: Sequence[int], bounds: Sequence[int] = ()) -> TimeFormat:
        """The shortest format that shows these times (µs) exactly.

        times: of records
        bounds: up to where time is definitive, or where a clock is
        """
        has_latest = LATEST in times
        written = [time for time in (*times, *bounds) if time != NO_TIME and (has_latest or time < LATEST)]
        days = {time // _DAY for time in written} or {0}
        digits = next(digits for digits in (0, 3, 6) if all(time % 10 ** (6 - digits) == 0 for time in written))
        day = format_time(min(days) * _DAY).partition("T")[0] if len(days) == 1 else None
        return TimeFormat(day, digits, has_latest)

    def text(self, micros: int | None) -> str:
        """The time of a record; empty for no time."""
        if micros is None or micros == NO_TIME:
            return ""
        day, _, time = format_time(micros).removesuffix("Z").partition("T")
        time = time[: len("00:00:00.") + self.digits].removesuffix(".")
        return f"{day} {time}" if self.day is None else time

    def bound(self, micros: int | None) -> str:
        """A bound; `infinity` for the end of time."""
        if micros is not None and micros >= LATEST and not self.has_latest:
            return "infinity"
        return self.text(micros)
