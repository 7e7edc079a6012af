"""The methods of TimeFormat: times to text, text to times. Without a zone they are UTC.

So the answer is the same on every machine. A time is rounded to microseconds, then each letter of
a pattern (`querylang.plan.text_forms`) cuts off what it does not show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from querylang.dataclass import dataclass
from querylang.plan.constants import LONGEST, of_seconds
from querylang.plan.text_forms import PatternPiece, TimePatternError, offset_of, pieces_of, zone_of
from runtime.interpreter.values import EvaluationError

# Days of the Gregorian calendar, before and after the years that `datetime` knows, and zones.
#
# The calendar repeats after 400 years, so a year beyond stands for one that `datetime` has.

DAY = 86_400_000_000
_CYCLE = 146_097
_OF_1970 = date(1970, 1, 1).toordinal()
_LOWEST, _HIGHEST = (day.toordinal() - _OF_1970 for day in (date(2, 1, 1), date(9998, 12, 31)))


def date_of(days: int) -> tuple[int, date]:
    """The year of a day since 1970-01-01, and the same day of a year from 1 to 400."""
    cycles, rest = divmod(days + _OF_1970 - 1, _CYCLE)
    day = date.fromordinal(rest + 1)
    return day.year + 400 * cycles, day


def days_of(year: int, month: int, day: int) -> int:
    """The days since 1970-01-01; raises ValueError if there is no such day."""
    cycles, rest = divmod(year - 1, 400)
    return date(rest + 1, month, day).toordinal() + cycles * _CYCLE - _OF_1970


def offset_at(micros: int, zone: tzinfo) -> tuple[int, str]:
    """The offset of a zone at a time, in microseconds, and its short name then."""
    local = _moment(micros).replace(tzinfo=UTC).astimezone(zone)
    return _micros(local.utcoffset()), local.tzname() or ""


def offsets_of_local(micros: int, zone: tzinfo) -> list[tuple[int, str]]:
    """What `offset_at` gives for a local time, at first what holds if it is skipped or repeated.

    A skipped time is counted on from before the change; of a repeated one the later is meant.
    """
    moment = _moment(micros)
    both = [moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
    return sorted((_micros(item.utcoffset()), item.tzname() or "") for item in both)


def _moment(micros: int) -> datetime:
    days, rest = divmod(micros, DAY)
    if not _LOWEST <= days <= _HIGHEST:
        days = _LOWEST + (days - _LOWEST) % _CYCLE if days < _LOWEST else _HIGHEST - (_HIGHEST - days) % _CYCLE
    return datetime.fromordinal(days + _OF_1970) + timedelta(microseconds=rest)


def _micros(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // timedelta(microseconds=1)


# Times to text; names are English.

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


def written(micros: int, pieces: Sequence[PatternPiece], zone: tzinfo) -> str:
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


def _offset_text(local: _Local, count: int) -> str:
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
    "Z": _offset_text,
    "V": lambda local, _count: local.zone,
}


# Text to times. The text has to fit from beginning to end; no number may be out of its range. What
# it does not tell is that of 1970-01-01, 00:00:00. Numbers without anything between them have as
# many digits as the pattern has letters.

Fields = dict[str, int | str]

_RANGES = {
    "M": (1, 12),
    "d": (1, 31),
    "D": (1, 366),
    "h": (1, 12),
    "H": (0, 23),
    "k": (1, 24),
    "K": (0, 11),
    "m": (0, 59),
    "s": (0, 59),
    "A": (0, 86_399_999),
    "y": (1, 999_999),
    "u": (-999_999, 999_999),
}
_WIDTHS = {"y": 9, "u": 9, "D": 3, "g": 9, "S": 18, "A": 8}
_ERAS, _HALVES = ("BC", "AD"), ("AM", "PM")
_OFFSET = re.compile(r"Z|(?:GMT|UTC)?([+-]\d{1,2}(?::?\d{2})?)(:?\d{2})?|GMT|UTC")
_WORD = re.compile(r"(?:GMT|UTC)?[+-]\d{1,2}(?::?\d{2})?|[A-Za-z][\w+/-]*", re.ASCII)
_AMERICAN = {"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}
"""The zones that RFC 822 knows by name, in hours."""


class UnfitTextError(Exception):
    """A text that is not a time by its pattern; the text gives the reason."""


def read(text: str, pieces: Sequence[PatternPiece], zone: tzinfo) -> int:
    """The time in microseconds; `zone` holds unless the text names one. Raises UnfitTextError."""
    fields = _fields(text, pieces)
    days = _days(fields)
    local = days * DAY + _time_of_day(fields)
    if "E" in fields:
        _check_weekday(days, str(fields["E"]))
    if "Z" in fields:
        return local - int(fields["Z"])
    try:
        held = zone_of(str(fields["V"])) if "V" in fields else zone
    except TimePatternError as error:
        raise UnfitTextError(str(error)) from None
    return local - _offset_of_zone(local, held, fields.get("z"))


def _fields(text: str, pieces: Sequence[PatternPiece]) -> Fields:
    fields: Fields = {}
    position = 0
    for place, piece in enumerate(pieces):
        if not piece.letter:
            if not text.startswith(piece.text, position):
                raise _expected(f"{piece.text!r}", position)
            position += len(piece.text)
            continue
        is_joined = piece.is_number and place + 1 < len(pieces) and pieces[place + 1].is_number
        value, position = _value(text, position, piece, is_joined=is_joined)
        if fields.setdefault(piece.letter, value) != value:
            raise UnfitTextError(f"`{piece.letter}` stands for {fields[piece.letter]} and for {value}")
    if position < len(text):
        raise UnfitTextError(f"there is more text from character {position + 1} on")
    return fields


def _expected(what: str, position: int) -> UnfitTextError:
    return UnfitTextError(f"expected {what} at character {position + 1}")


def _value(text: str, position: int, piece: PatternPiece, *, is_joined: bool) -> tuple[int | str, int]:
    """The value of a letter, and where the rest of the text begins."""
    if piece.is_number:
        return _number(text, position, piece, is_joined=is_joined)
    return _TEXTS[piece.letter](text, position)


def _number(text: str, position: int, piece: PatternPiece, *, is_joined: bool) -> tuple[int, int]:
    letter, start = piece.letter, position
    is_negative = letter in "ug" and text.startswith("-", position)
    start += is_negative
    most = piece.count if is_joined else max(piece.count, _WIDTHS.get(letter, 2))
    end = start
    while end < len(text) and end - start < most and text[end] in "0123456789":
        end += 1
    if end == start or (is_joined and end - start < most):
        raise _expected(f"{most} digits for `{piece.text}`" if is_joined else f"a number for `{piece.text}`", position)
    digits = text[start:end]
    if letter == "S":
        return int(digits[:6].ljust(6, "0")), end
    number = -int(digits) if is_negative else int(digits)
    if letter == "y" and piece.count == 2 and len(digits) == 2:
        return number + (2000 if number < 69 else 1900), end
    least, largest = _RANGES.get(letter, (number, number))
    if not least <= number <= largest:
        raise UnfitTextError(f"{number} is not between {least} and {largest}, as `{piece.text}` has to be")
    return number, end


def _one_of(names: Sequence[str], what: str, first: int) -> Callable[[str, int], tuple[int, int]]:
    """Reads one of these names, in full or by three letters, small or capital."""

    def name(text: str, position: int) -> tuple[int, int]:
        for shown in (names, [item[:3] for item in names]):
            for number, item in enumerate(shown, first):
                if text[position : position + len(item)].lower() == item.lower():
                    return number, position + len(item)
        raise _expected(what, position)

    return name


def _weekday(text: str, position: int) -> tuple[str, int]:
    number, end = _one_of(WEEKDAYS, "a day of the week", 0)(text, position)
    return WEEKDAYS[number], end


def _read_offset(text: str, position: int) -> tuple[int, int]:
    match = _OFFSET.match(text, position)
    length = None if match is None else timedelta(0) if match[1] is None else offset_of(match[1])
    if match is None or length is None:
        raise _expected("an offset like +0100", position)
    seconds = timedelta(seconds=int((match[2] or "0").lstrip(":")))
    exact = length - seconds if (match[1] or "+").startswith("-") else length + seconds
    return exact // timedelta(microseconds=1), match.end()


def _word(text: str, position: int) -> tuple[str, int]:
    match = _WORD.match(text, position)
    if match is None:
        raise _expected("the name of a time zone", position)
    return match[0], match.end()


_TEXTS: Mapping[str, Callable[[str, int], tuple[int | str, int]]] = {
    "G": _one_of(_ERAS, "`AD` or `BC`", 0),
    "M": _one_of(MONTHS, "the name of a month", 1),
    "E": _weekday,
    "a": _one_of(_HALVES, "`AM` or `PM`", 0),
    "z": _word,
    "Z": _read_offset,
    "V": _word,
}


def _days(fields: Fields) -> int:
    if "g" in fields:
        return int(fields["g"]) - JULIAN
    year = int(fields.get("u", fields.get("y", 1970)))
    if fields.get("G") == 0 and "u" not in fields:
        year = 1 - year
    if "D" in fields and not {"M", "d"} & fields.keys():
        days = days_of(year, 1, 1) + int(fields["D"]) - 1
        if days >= days_of(year + 1, 1, 1):
            raise UnfitTextError(f"the year {year} has no day {fields['D']}")
        return days
    month, day = int(fields.get("M", 1)), int(fields.get("d", 1))
    try:
        return days_of(year, month, day)
    except ValueError:
        raise UnfitTextError(f"there is no {MONTHS[month - 1]} {day} in {year}") from None


def _time_of_day(fields: Fields) -> int:
    if "A" in fields:
        return int(fields["A"]) * 1000
    noon = 12 * int(fields.get("a", 0))
    if "H" in fields:
        hour = int(fields["H"])
    elif "k" in fields:
        hour = int(fields["k"]) % 24
    else:
        hour = int(fields.get("h", fields.get("K", 0))) % 12 + noon
    minutes = int(fields.get("m", 0)) * MINUTE
    return hour * HOUR + minutes + int(fields.get("s", 0)) * SECOND + int(fields.get("S", 0))


def _check_weekday(days: int, wanted: str) -> None:
    found = WEEKDAYS[date_of(days)[1].weekday()]
    if found != wanted:
        raise UnfitTextError(f"that day is a {found}, not a {wanted}")


def _offset_of_zone(local: int, zone: tzinfo, name: int | str | None) -> int:
    """The offset that holds at a local time, or the one that a zone's short name means."""
    offsets = offsets_of_local(local, zone)
    if name is None:
        return offsets[0][0]
    word = str(name)
    if word in ("UTC", "GMT", "UT", "Z"):
        return 0
    named = [offset for offset, short_name in offsets if short_name == word]
    if named:
        return named[0]
    length = timedelta(hours=_AMERICAN[word]) if word in _AMERICAN else offset_of(word)
    if length is None:
        raise UnfitTextError(f"'{word[:20]}' is not the short name of {zone} then; an offset is read by `Z`")
    return length // timedelta(microseconds=1)


def _format(seconds: float, pattern: str, zone: str = "UTC") -> str:
    micros = of_seconds(seconds)
    if abs(micros) > LONGEST:
        raise EvaluationError(f"{seconds} is not a time that can be written")
    try:
        return written(round(micros), pieces_of(pattern), zone_of(zone))
    except TimePatternError as error:
        raise EvaluationError(str(error)) from error


def _parse(pattern: str, text: str, zone: str = "UTC") -> float:
    try:
        return read(text, pieces_of(pattern), zone_of(zone)) / SECOND
    except TimePatternError as error:
        raise EvaluationError(str(error)) from error
    except UnfitTextError as error:
        raise EvaluationError(f"cannot parse {text[:40]!r} as {pattern[:40]!r}: {error}") from error


TIME_FORMAT_METHODS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("format", "formatUTC", "formatWithTimeZone"), _format),
    **dict.fromkeys(("parse", "parseTime", "parseUTC", "parseTimeUTC"), _parse),
    **dict.fromkeys(("parseWithTimeZone", "parseTimeWithTimeZone"), _parse),
}
