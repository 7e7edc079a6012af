"""Lengths of time, sizes and forms of times, as users write them in settings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, listed
from querylang.plan.library import UNITS
from querylang.plan.model import Plan
from runtime.instants import LONGEST_TEXT, NEVER

# Lengths of time: `1 min 30 s` as in the language, or short, as in `15s` and `2us`. What a plain
# number, a sign or `none` means is decided per setting, in `runtime.policies.plan_policies`.

_SHORT = {"d": "day", "h": "hour", "m": "min", "s": "sec", "ms": "msec"}
LENGTHS = {
    **UNITS,
    **{short: UNITS[unit] for short, unit in _SHORT.items()},
    **dict.fromkeys(("us", "microsecond", "microseconds", "tick", "ticks"), 1),
}
"""Unit to microseconds: those of the language, short forms, and the tick, one microsecond."""

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]+)\s*")


def parse_duration(text: str) -> int | None:
    """Microseconds, to the nearest; None for anything else.

    A length needs a unit with each number. Units go from large to small, without duplicates.
    """
    total, at, before = Fraction(0), 0, None
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        return None
    while at < len(text):
        part = _PART.match(text, at)
        length = None if part is None else LENGTHS.get(part[2].lower())
        if part is None or length is None or (before is not None and length >= before):
            return None
        total, at, before = total + Fraction(part[1]) * length, part.end(), length
    return None if before is None else round(total)


_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,9})\s*([A-Za-z]{2})")

SMALLEST, LARGEST = 1 << 10, 1 << 30


def parse_size(text: str) -> int | None:
    """Bytes of `16 MB`, from 1 kB to 1 GB; None for anything else. A kB is 1,024 bytes."""
    found = _SIZE.fullmatch(text.strip())
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        return None
    size = int(found[1]) * unit
    return size if SMALLEST <= size <= LARGEST else None


# The setting `forget_keys`: after which length of arrival time without records a key is forgotten.
#
# It is part of the plan, so that embedded, batch and stream agree.

EXPECTED = "a length of time such as `30 days`"

ForgetKeys = str | timedelta | None
"""The setting as users give it; None = no key is forgotten."""


def parse_forget_keys(given: ForgetKeys) -> int | None:
    """The length in µs; None = no key is forgotten. Raises InputError."""
    if given is None:
        return None
    length = given // timedelta(microseconds=1) if isinstance(given, timedelta) else None
    if isinstance(given, str):
        length = forget_length(given)
    if length is None or length <= 0:
        raise InputError(f"forget_keys: {given!r} is not {EXPECTED}")
    return length


def forget_length(text: str) -> int | None:
    """The length in µs; None = it is not a length, or 0, or beyond all times."""
    length = parse_duration(text)
    return length if length is not None and 0 < length < NEVER else None


def with_forget_keys(plan: Plan, length: int | None) -> Plan:
    """The plan whose queries forget keys after this length, µs; None = they forget none."""
    if all(query.forget_keys == length for query in plan.queries):
        return plan
    return replace(plan, queries=tuple(replace(query, forget_keys=length) for query in plan.queries))


# How times are written: the unit of those that are numbers, the pattern of those that are text.

PER_SECOND: Mapping[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""By name of a unit: how many of it a second has."""

UNIT_NAMES: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

_LEAST, _MOST = 157_766_400, 4_102_444_800
"""Seconds since 1970 of the years 1975 to 2099, of which most data is."""

_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d", "%d %b %Y", "%b %d %Y", "%b %d, %Y")
_CLOCKS = (" %H:%M:%S", " %H:%M", " %H:%M:%S.%f", " %I:%M:%S %p", " %I:%M %p", "")
_OF_PROGRAMS = (
    "%d/%b/%Y:%H:%M:%S %z",
    *("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %Y %z", "%a %b %d %H:%M:%S %Z %Y"),
    *("%a, %d %b %Y %H:%M:%S %Z", "%a, %d %b %Y %H:%M:%S %z"),
)
"""Those of web servers, Unix, git and mail."""

_PATTERNS = (*(date + clock for date in _DATES for clock in _CLOCKS), "%Y%m%d%H%M%S", *_OF_PROGRAMS)
"""Forms of times that are met often, beside ISO 8601."""


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
    return next((unit for unit, count in PER_SECOND.items() if _LEAST <= number / count <= _MOST), None)


_LOOKS = (("dates", "%Y%m%d", 8), ("months", "%Y%m", 6), ("years", "%Y", 4))
_FIRST_DAY, _LAST_DAY = 36_526, 54_788
"""Days of a spreadsheet: of 2000-01-01 and 2049-12-31, counted from the end of 1899."""


def look_of(numbers: Sequence[float]) -> str | None:
    """What all these numbers look like, and the way to read them; None = seconds since 1970.

    A year or a day of a spreadsheet is also a time of the day in seconds: one alone says nothing.
    """
    first = numbers[0]
    if not all(map(math.isfinite, numbers)):
        return None
    if first == int(first):
        for called, pattern, digits in _LOOKS:
            texts = [f"{number:.0f}" for number in numbers]
            if (digits == 8 or len(set(texts)) > 1) and all(_is_recent(text, pattern, digits) for text in texts):
                return f'{called} such as {texts[0]} (`--time-format "{pattern}"`)'
    are_days = len(set(numbers)) > 1 and all(_FIRST_DAY <= number < _LAST_DAY + 1 for number in numbers)
    if are_days and all(abs(number * 86_400 - round(number * 86_400)) < 0.1 for number in numbers):
        day = date(1899, 12, 30) + timedelta(days=int(first))
        return f"days of a spreadsheet, {first:.10g} for {day}: write them as dates"
    return None


def _is_recent(text: str, pattern: str, digits: int) -> bool:
    """Whether these are digits of a time between 1900 and 2100."""
    return len(text) == digits and "1900" <= text[:4] <= "2100" and _fits(text, pattern)


def patterns_of(texts: Iterable[str]) -> list[str]:
    """The usual patterns that fit all of these texts: two where day and month may be exchanged."""
    found = list(_PATTERNS)
    for text in texts:
        found = [pattern for pattern in found if _fits(text.strip(), pattern)]
    return found


def _fits(text: str, pattern: str) -> bool:
    found = re.fullmatch(pattern_form(pattern), text.lower())
    if found is None:
        return False
    parts = found.groupdict()
    if "d" not in parts:
        return True
    month = int(parts["m"]) if "m" in parts else MONTHS.index(parts["b"]) + 1
    try:
        date(int(parts["Y"]), month, int(parts["d"]))
    except ValueError:
        return False
    return True


def time_format_options(patterns: Iterable[str]) -> str:
    """How users write one of these patterns as an option; empty if there is none."""
    return " or ".join(f'`--time-format "{pattern}"`' for pattern in patterns)


def read_time_form(unit: str | None, pattern: str | None) -> TimeForm:
    """The form of times as users give it; raises InputError."""
    if unit is not None and unit not in PER_SECOND:
        raise InputError(f"time_unit: unknown unit {unit!r}; expected {listed(PER_SECOND, 'or')}")
    return TimeForm(unit or "s", None if pattern is None else read_pattern(pattern))


def read_pattern(text: str) -> str:
    """A pattern of times in the letters of strptime; raises InputError."""
    try:
        pattern_form(text)
        if WEEKS.search(text):
            sample = datetime(2021, 3, 4, 5, 6, 7, 89, UTC)
            datetime.strptime(sample.strftime(text), text)  # noqa: DTZ007  a pattern may have no zone
    except ValueError as error:
        raise InputError(
            f"time_format: {text!r} is not a form of times ({error}); write one such as '%d.%m.%Y %H:%M:%S'"
        ) from None
    if not re.search("%[YyGcxHIX]", text):
        raise InputError(f"time_format: {text!r} has neither a date nor a time; write one such as '%d.%m.%Y %H:%M:%S'")
    return text


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FULL_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

WEEKS = re.compile("%[UWGV]")
"""Letters of weeks."""

_OFFSET = "[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9](?::?[0-5][0-9])?)?"

_LETTERS: Mapping[str, str] = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "1[0-2]|0[1-9]|[1-9]",
    "b": "|".join(MONTHS),
    "B": "|".join(FULL_MONTHS),
    "d": "3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9]",
    "j": "36[0-6]|3[0-5][0-9]|[12][0-9]{2}|0[1-9][0-9]|00[1-9]|[1-9][0-9]|0[1-9]|[1-9]",
    "a": "|".join(day[:3] for day in _DAYS),
    "A": "|".join(_DAYS),
    "w": "[0-6]",
    "u": "[1-7]",
    "U": "5[0-3]|[0-4][0-9]|[0-9]",
    "W": "5[0-3]|[0-4][0-9]|[0-9]",
    "G": "[0-9]{4}",
    "V": "5[0-3]|0[1-9]|[1-4][0-9]|[0-9]",
    "H": "2[0-4]|[01][0-9]|[0-9]",
    "I": "1[0-2]|0[1-9]|[1-9]| [1-9]",
    "p": "am|pm",
    "M": "[0-5][0-9]|[0-9]",
    "S": "[0-5][0-9]|[0-9]",
    "f": "[0-9]{1,9}",
    "z": f"{_OFFSET}|z",
    "Z": f"utc?|gmt|z|{_OFFSET}",
}
"""By letter a regular expression for its text in lower case. Names are English on every machine.

Of zones only those are read that are the same everywhere: UTC, GMT and offsets.
"""

_SHORTHANDS = {"c": "%a %b %d %H:%M:%S %Y", "x": "%m/%d/%y", "X": "%H:%M:%S"}
_SPACE = "[ \t\u00a0\u202f]+"


@lru_cache(64)
def pattern_form(pattern: str) -> str:
    """A regular expression with a group for each letter; ValueError for what is not a pattern.

    For lower-case text, in the syntax that Python and RE2 share.
    """
    pattern = re.sub("%[cxX]", lambda found: _SHORTHANDS[found[0][1]], pattern)
    form, seen = "", ""
    for piece in re.findall(r"%.?|\s+|[^%\s]+", pattern, re.DOTALL):
        letter = piece[1:]
        if piece.isspace():
            form += _SPACE
        elif piece[0] != "%" or letter == "%":
            form += re.escape((letter or piece).lower() if piece[0] == "%" else piece.lower())
        elif letter not in _LETTERS:
            raise ValueError(f"'{piece}' has no meaning")
        elif letter in seen:
            raise ValueError(f"'{piece}' occurs twice")
        else:
            seen += letter
            form += f"(?P<{letter}>{_LETTERS[letter]})"
    return form
