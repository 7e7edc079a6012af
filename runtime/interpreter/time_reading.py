"""Text to times by the letters of `querylang.plan.time_patterns`.

The text has to fit from beginning to end; no number may be out of its range. What it does not tell
is that of 1970-01-01, 00:00:00. Numbers without anything between them have as many digits as the
pattern has letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, tzinfo

from querylang.plan.time_patterns import Piece, TimePatternError, offset_of, zone_of
from runtime.interpreter.calendar import DAY, date_of, days_of, offsets_of_local
from runtime.interpreter.time_writing import HOUR, JULIAN, MINUTE, MONTHS, SECOND, WEEKDAYS

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


def read(text: str, pieces: Sequence[Piece], zone: tzinfo) -> int:
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


def _fields(text: str, pieces: Sequence[Piece]) -> Fields:
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


def _value(text: str, position: int, piece: Piece, *, is_joined: bool) -> tuple[int | str, int]:
    """The value of a letter, and where the rest of the text begins."""
    if piece.is_number:
        return _number(text, position, piece, is_joined=is_joined)
    return _TEXTS[piece.letter](text, position)


def _number(text: str, position: int, piece: Piece, *, is_joined: bool) -> tuple[int, int]:
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


def _offset(text: str, position: int) -> tuple[int, int]:
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
    "Z": _offset,
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
