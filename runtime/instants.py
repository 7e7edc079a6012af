"""Times as integer microseconds since 1970-01-01 UTC: limits, sentinels, a parser without Arrow.

`runtime.timestamps` reads the same forms in whole columns: ISO 8601 (UTC unless it names a
zone), `HH:MM:SS[.ffffff]` (of 1970-01-01), or seconds since 1970. REWRITTEN is the table of what
else is read: other forms of ISO 8601, and those of git, BigQuery and logs.
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
_DAY = 86_400 * SECOND

_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)"

REWRITTEN = (
    (r"^(\d{4})(\d{2})(\d{2})[Tt](\d{2})(\d{2})(\d{2})", r"\1-\2-\3T\4:\5:\6"),
    (r"^(\d{4})(\d{2})(\d{2})[Tt](\d{2})(\d{2})([^0-9]|$)", r"\1-\2-\3T\4:\5\6"),
    (r"^(\d{4}-\d{2}-\d{2})t(\d)", r"\1T\2"),
    (r"(\d{2}:\d{2}:\d{2}),(\d)", r"\1.\2"),
    (r"(\d{2}:\d{2}[0-9:.]*) ([+-]\d{2}(?::?\d{2})?)$", r"\1\2"),
    (r"(\d{2}:\d{2}[0-9:.]*) ?(?:[Zz]|[Uu][Tt][Cc]|[Gg][Mm][Tt])$", r"\1Z"),
    (rf"(:\d{{2}}\.\d{{6}})\d+({_ZONE}|)$", r"\1\2"),
)
"""Regular expressions of forms of a time, and what each is rewritten to, one after the other.

The last one cuts nanoseconds to microseconds. Python's `re` reads them, and RE2 for columns.
"""

MIDNIGHT = rf"(\d{{4}}-\d{{2}}-\d{{2}}[T ]|)24((?::00(?::00(?:\.0*)?)?)?(?:{_ZONE})?)"
"""A rewritten time at the end of a day, which is the beginning of the next one."""

_REWRITTEN = tuple((re.compile(form, re.ASCII), usual) for form, usual in REWRITTEN)
_MIDNIGHT = re.compile(MIDNIGHT, re.ASCII)
_CLOCK = re.compile(r"\d{2}:\d{2}:\d{2}(\.\d+)?", re.ASCII)
_ISO = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}([T ]\d{{2}}(:\d{{2}}(:\d{{2}}(\.\d{{1,6}})?)?)?{_ZONE}?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)

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
    for form, usual in _REWRITTEN:
        text = form.sub(usual, text)
    midnight = _MIDNIGHT.fullmatch(text)
    if midnight is not None:
        text = f"{midnight[1]}00{midnight[2]}"
    if _CLOCK.fullmatch(text):
        text = f"1970-01-01T{text}"
    moment = _of_iso(text) if _ISO.fullmatch(text) else None
    if moment is not None and midnight is not None:
        moment += _DAY
    return moment if moment is not None and is_known_time(moment) else None


def is_known_time(micros: int) -> bool:
    """Whether a time is within the years 1 to 9999."""
    return EARLIEST <= micros <= LATEST


def micros_of(moment: datetime) -> int:
    """Microseconds UTC; a `datetime` without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _of_iso(text: str) -> int | None:
    try:
        return micros_of(datetime.fromisoformat(text))
    except ValueError:
        return None
