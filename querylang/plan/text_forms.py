"""Forms that texts of users have: networks of IP addresses, patterns of times."""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, timedelta, timezone, tzinfo
from functools import lru_cache

from querylang.dataclass import dataclass

# Networks of IP addresses, as texts name them.

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_KEPT = 4096
"""So many networks are read once."""


class NotANetworkError(ValueError):
    """What is wrong with a text that should name a network.

    instead: what to write; None = it resembles none
    """

    def __init__(self, problem: str, instead: str | None) -> None:
        super().__init__(problem)
        self.instead = instead


@lru_cache(_KEPT)
def network_of(text: str) -> Network:
    """A network such as `10.0.0.0/8`; an address alone is one, too. Raises NotANetworkError."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        wanted = str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        problem = f"'{text}' is not a network of IP addresses, such as 10.0.0.0/8 or 2001:db8::/32"
        raise NotANetworkError(problem, None) from None
    raise NotANetworkError(f"'{text}' has bits behind the network's length: it is an address inside of it", wanted)


# Patterns of times as text, `yyyy.MM.dd 'at' HH:mm:ss`, and the zones in which they are read.
#
# Letters as in Apama's TimeFormat (those of ICU's SimpleDateFormat) if they mean the same
# everywhere. The checker refuses wrong literals with it; `runtime.interpreter.times` writes and
# reads times.

LETTERS = {
    "G": ("era", "`AD`", 3),
    "y": ("year of the era; `yy`: two digits, from 1969 to 2068", "`2026`, `26`", 9),
    "u": ("year; 0 and less before year 1", "`2026`", 9),
    "M": ("month; `MMM` and `MMMM`: its name", "`7`, `07`, `Jul`, `July`", 4),
    "d": ("day of the month", "`9`, `09`", 9),
    "D": ("day of the year", "`189`", 9),
    "E": ("day of the week; `EEEE`: in full", "`Tue`, `Tuesday`", 4),
    "g": ("Julian day number", "`2461368`", 9),
    "a": ("before or after noon", "`AM`, `PM`", 3),
    "h": ("hour, 1 to 12", "`12`", 9),
    "H": ("hour, 0 to 23", "`0`", 9),
    "k": ("hour, 1 to 24", "`24`", 9),
    "K": ("hour, 0 to 11", "`0`", 9),
    "m": ("minute", "`30`", 9),
    "s": ("second", "`55`", 9),
    "S": ("digits of the second's fraction, cut off", "`SSS`: `978`", 9),
    "A": ("milliseconds of the day", "`69540000`", 9),
    "z": ("short name of the zone", "`CET`", 3),
    "Z": ("offset from UTC; `ZZZZ` after `GMT`, `ZZZZZ` as in ISO 8601", "`+0100`, `GMT+01:00`, `+01:00`", 5),
    "V": ("`VV`: name of the zone", "`Europe/Berlin`", 2),
}
"""By letter: its meaning, an example, and how often it may be repeated."""

_NUMBERS = frozenset("yudDghHkKmsSA")
_OF_WEEKS = "weeks begin on different days in different places"
_REFUSED = {
    "Y": f"{_OF_WEEKS}; for the year write `y`",
    **dict.fromkeys("weWF", f"{_OF_WEEKS}; `E` is the day of the week, `D` the day of the year"),
    "v": "for the name of the zone write `VV`, for its offset `Z`",
    **dict.fromkeys("XxO", "for the offset write `Z` (+0100) or `ZZZZZ` (+01:00)"),
}
_LONGEST = 1000
_PIECE = re.compile(r"(?P<quoted>'(?:[^']|'')*')|(?P<letters>([A-Za-z])\3*)|(?P<text>[^A-Za-z']+)")
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?")
_ZONE = re.compile(r"[A-Za-z][\w+-]*(?:/[\w+-]+)*", re.ASCII)


class TimePatternError(Exception):
    """A pattern or a zone is wrong; the text gives the reason and the way out."""


@dataclass(frozen=True, slots=True)
class PatternPiece:
    """A part of a pattern: a letter and how often it is written, or text with the letter ''."""

    letter: str
    count: int
    text: str

    @property
    def is_number(self) -> bool:
        """Whether it is written in digits."""
        return self.letter in _NUMBERS or (self.letter == "M" and self.count < 3)


@lru_cache(maxsize=256)
def pieces_of(pattern: str) -> tuple[PatternPiece, ...]:
    """The parts of a pattern. Raises TimePatternError."""
    if not pattern or len(pattern) > _LONGEST:
        raise TimePatternError(f"a pattern has from 1 to {_LONGEST} characters")
    found: list[PatternPiece] = []
    position = 0
    while position < len(pattern):
        match = _PIECE.match(pattern, position)
        if match is None:
            raise TimePatternError("a quote `'` is not closed; for a quote itself write two, `''`")
        found.append(_piece(match))
        position = match.end()
    return tuple(found)


def _piece(match: re.Match[str]) -> PatternPiece:
    if match["letters"]:
        return _of_letters(match["letters"])
    quoted = match["quoted"]
    if quoted == "''":
        return PatternPiece("", 1, "'")
    return PatternPiece("", 1, match["text"] if quoted is None else quoted[1:-1].replace("''", "'"))


def _of_letters(letters: str) -> PatternPiece:
    letter, count = letters[0], len(letters)
    if letter in _REFUSED:
        raise TimePatternError(f"the pattern letter `{letter}` is not supported: {_REFUSED[letter]}")
    if letter not in LETTERS:
        raise TimePatternError(f"`{letter}` is not a pattern letter; text stands between quotes, `'{letters}'`")
    least, most = (2 if letter == "V" else 1), LETTERS[letter][2]
    if not least <= count <= most:
        allowed = f"{least} to {most} times" if least < most else "twice"
        raise TimePatternError(f"the pattern letter `{letter}` may stand {allowed}, not {count}")
    return PatternPiece(letter, count, letters)


@lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo:
    """The zone `UTC`, `Europe/Berlin`, `GMT+01:00`, `+0530`. Raises TimePatternError.

    Its rules come from the package `tzdata`, not from the machine: answers must not depend on it.
    """
    if name in ("UTC", "GMT", "Z"):
        return UTC
    offset = offset_of(name)
    if offset is not None:
        return timezone(offset, name)
    zone = _listed(name) if _ZONE.fullmatch(name) else None
    if zone is None:
        raise TimePatternError(f"unknown time zone '{name[:60]}'; zones are `Europe/Berlin`, `UTC` or `GMT+01:00`")
    return zone


def offset_of(text: str) -> timedelta | None:
    """The offset `+0100`, `+01:00`, `+1`, also after GMT or UTC; None: it is something else."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        return None
    hours, minutes = int(match[2]), int(match[3] or 0)
    length = timedelta(hours=hours, minutes=minutes)
    return None if hours > 23 or minutes > 59 else -length if match[1] == "-" else length


def _listed(name: str) -> tzinfo | None:
    """A zone of `tzdata`, which pandas installs; loaded when the first text needs it."""
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    file = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not file.is_file():
        return None
    with file.open("rb") as data:
        try:
            return ZoneInfo.from_file(data, key=name)
        except ValueError:  # a list or a program of the package, not a zone
            return None
