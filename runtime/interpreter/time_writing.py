"""Times to text by the letters of `querylang.plan.time_patterns`; names are English."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo

from querylang.plan.time_patterns import Piece
from runtime.interpreter.calendar import DAY, date_of, offset_at

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
JULIAN = 2_440_588
"""The Julian day number of 1970-01-01."""

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class _Local:
    """A local time: its days since 1970, its year, the same day of a year that `date` has."""

    days: int
    year: int
    day: date
    rest: int
    offset: int
    short_name: str
    zone: str

    @property
    def hour(self) -> int:
        return self.rest // HOUR


def written(micros: int, pieces: Sequence[Piece], zone: tzinfo) -> str:
    """The time as text."""
    offset, short_name = offset_at(micros, zone)
    days, rest = divmod(micros + offset, DAY)
    local = _Local(days, *date_of(days), rest, offset, short_name, str(zone))
    return "".join(piece.text if not piece.letter else _WRITERS[piece.letter](local, piece.count) for piece in pieces)


def _digits(value: Callable[[_Local], int]) -> Callable[[_Local, int], str]:
    def text(local: _Local, count: int) -> str:
        number = value(local)
        return f"{'-' if number < 0 else ''}{abs(number):0{count}}"

    return text


def _year(local: _Local, count: int) -> str:
    year = local.year if local.year > 0 else 1 - local.year
    return f"{year % 100:02}" if count == 2 else f"{year:0{count}}"


def _month(local: _Local, count: int) -> str:
    number = local.day.month
    return f"{number:0{count}}" if count < 3 else _name(MONTHS[number - 1], count)


def _name(name: str, count: int) -> str:
    return name if count > 3 else name[:3]


def _offset(local: _Local, count: int) -> str:
    """`+0100`, `GMT+01:00` or `+01:00`, with seconds if there are any, as in old local times."""
    if local.offset == 0 and count > 3:
        return "GMT" if count == 4 else "Z"
    minutes, seconds = divmod(abs(local.offset) // SECOND, 60)
    parts = [f"{minutes // 60:02}", f"{minutes % 60:02}", *([f"{seconds:02}"] if seconds else [])]
    sign = "-" if local.offset < 0 else "+"
    return f"{'GMT' if count == 4 else ''}{sign}{(':' if count > 3 else '').join(parts)}"


_WRITERS: Mapping[str, Callable[[_Local, int], str]] = {
    "G": lambda local, _count: "AD" if local.year > 0 else "BC",
    "y": _year,
    "u": _digits(lambda local: local.year),
    "M": _month,
    "d": _digits(lambda local: local.day.day),
    "D": _digits(lambda local: local.day.timetuple().tm_yday),
    "E": lambda local, count: _name(WEEKDAYS[local.day.weekday()], count),
    "g": _digits(lambda local: local.days + JULIAN),
    "a": lambda local, _count: "AM" if local.hour < 12 else "PM",
    "h": _digits(lambda local: (local.hour - 1) % 12 + 1),
    "H": _digits(lambda local: local.hour),
    "k": _digits(lambda local: local.hour or 24),
    "K": _digits(lambda local: local.hour % 12),
    "m": _digits(lambda local: local.rest // MINUTE % 60),
    "s": _digits(lambda local: local.rest // SECOND % 60),
    "S": lambda local, count: f"{local.rest % SECOND:06}".ljust(count, "0")[:count],
    "A": _digits(lambda local: local.rest // 1000),
    "z": lambda local, _count: local.short_name,
    "Z": _offset,
    "V": lambda local, _count: local.zone,
}
