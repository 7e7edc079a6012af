"""Times as integer microseconds since 1970-01-01 UTC: limits, sentinels, a parser without Arrow.

`runtime.columns.timestamps` reads the same forms in whole columns: ISO 8601 (UTC unless it names a
zone), `HH:MM:SS[.ffffff]` (of 1970-01-01), or seconds since 1970.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

SECOND = 1_000_000
EARLIEST = -62_135_596_800 * SECOND
LATEST = 253_402_300_800 * SECOND - 1
"""The years 1 to 9999, which ISO 8601 writes with four digits. All times of records are within."""

NO_TIME = -(2**63)
"""No such time, in columns of microseconds: the smallest 64-bit integer."""

NEVER = 4 * 10**18
"""A time or duration, µs, beyond every time that can be written: never, without limit."""

EXPECTED = "a time: ISO 8601, HH:MM:SS, or seconds since 1970"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = re.compile(r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?")
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}(:?\d{2})?)?)?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")

LONGEST_TEXT = 400
"""Characters of a time or a length of time."""


def parse_moment(text: str) -> int | None:
    """Microseconds UTC; None = not a time, or outside of the years 1 to 9999."""
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        return None
    if _NUMBER.fullmatch(text):
        micros = round(Fraction(text) * SECOND)
        return micros if is_known_time(micros) else None
    if _CLOCK.fullmatch(text):
        text = f"1970-01-01T{text}"
    moment = _of_iso(text) if _ISO.fullmatch(text) else None
    return moment if moment is not None and is_known_time(moment) else None


def is_known_time(micros: int) -> bool:
    """Whether a time is within the years 1 to 9999."""
    return EARLIEST <= micros <= LATEST


def micros_of(moment: datetime) -> int:
    """Microseconds UTC; a `datetime` without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _of_iso(text: str) -> int | None:
    """Fractions of a second are rounded to six digits."""
    whole, point, rest = text.partition(".")
    digits = re.match(r"\d*", rest)
    assert digits is not None, "the empty text matches"
    zone = rest[digits.end() :]
    try:
        moment = datetime.fromisoformat(whole + zone)
    except ValueError:
        return None
    fraction = round(Fraction(f"0.{digits[0]}") * SECOND) if point else 0
    return micros_of(moment) + fraction
