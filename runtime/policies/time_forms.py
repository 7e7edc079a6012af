"""How times are written: the unit of those that are numbers, the pattern of those that are text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from querylang.errors import InputError, listed

UNITS: Mapping[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""By name of a unit: how many of it a second has."""

UNIT_NAMES: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

_LEAST, _MOST = 157_766_400, 4_102_444_800
"""Seconds since 1970 of the years 1975 to 2099, of which most data is."""

_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d", "%d %b %Y", "%b %d %Y", "%b %d, %Y")
_CLOCKS = (" %H:%M:%S", " %H:%M", " %H:%M:%S.%f", " %I:%M:%S %p", " %I:%M %p", "")
_PATTERNS = (*(date + clock for date in _DATES for clock in _CLOCKS), "%d/%b/%Y:%H:%M:%S %z", "%a %b %d %H:%M:%S %Y")
"""Forms of times that are met often, beside ISO 8601: of spreadsheets, web servers and Unix."""


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How times are written.

    unit: of times that are numbers, one of UNITS
    pattern: of times that are text, in the letters of strptime; None = ISO 8601 or HH:MM:SS
    """

    unit: str = "s"
    pattern: str | None = None

    @property
    def is_usual(self) -> bool:
        """Whether times are read as they are everywhere else."""
        return self.unit == "s" and self.pattern is None


USUAL_TIMES = TimeForm()


def unit_of(number: float) -> str | None:
    """The unit in which a number is a time of the years 1975 to 2099; None = there is none."""
    return next((unit for unit, count in UNITS.items() if _LEAST <= number / count <= _MOST), None)


def patterns_of(texts: Iterable[str]) -> list[str]:
    """The usual patterns that fit all of these texts: two where day and month may be exchanged."""
    found = list(_PATTERNS)
    for text in texts:
        found = [pattern for pattern in found if _fits(text.strip(), pattern)]
    return found


def _fits(text: str, pattern: str) -> bool:
    try:
        datetime.strptime(text, pattern)  # noqa: DTZ007  a pattern may have no zone
    except ValueError:
        return False
    return True


def time_format_options(patterns: Iterable[str]) -> str:
    """How users write one of these patterns as an option; empty if there is none."""
    return " or ".join(f'`--time-format "{pattern}"`' for pattern in patterns)


def read_time_form(unit: str | None, pattern: str | None) -> TimeForm:
    """The form of times as users give it; raises InputError."""
    if unit is not None and unit not in UNITS:
        raise InputError(f"time_unit: unknown unit {unit!r}; expected {listed(UNITS, 'or')}")
    return TimeForm(unit or "s", None if pattern is None else read_pattern(pattern))


def read_pattern(text: str) -> str:
    """A pattern of times in the letters of strptime; raises InputError."""
    sample = datetime(2021, 3, 4, 5, 6, 7, 89, UTC)
    try:
        found = datetime.strptime(sample.strftime(text), text)  # noqa: DTZ007  a pattern may have no zone
    except (ValueError, re.error) as error:
        raise InputError(
            f"time_format: {text!r} is not a form of times ({error}); write one such as '%d.%m.%Y %H:%M:%S'"
        ) from None
    if "%" not in text or (found.year, found.hour) == (1900, 0):
        raise InputError(f"time_format: {text!r} has neither a date nor a time; write one such as '%d.%m.%Y %H:%M:%S'")
    return text
