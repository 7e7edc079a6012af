"""Examples in letters: `A1 B3(5)` is an event A at second 1 and an event B at second 3 whose `v` is 5.

`(London)` is the field `s`. A name in a match is bound to letter and second: `a: A1 A2, b: B3`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.oracle.events import SECOND, Row
from tests.oracle.query import Bound, Match, Query, Selected
from tests.oracle.reader import read_find

_LETTER = re.compile(r"(?P<type>[A-Z])(?P<at>\d+(\.\d+)?)(\((?P<value>[^)]*)\))?")
_NUMBER = re.compile(r"-?\d+")


def rows(text: str) -> list[Row]:
    """The rows of a text of letters."""
    found = list[Row]()
    for number, word in enumerate(text.split(), 1):
        match = _LETTER.fullmatch(word)
        assert match is not None, f"{word!r} is no letter"
        at, value = round(float(match["at"]) * SECOND), match["value"] or "0"
        v, s = (int(value), "") if _NUMBER.fullmatch(value) else (0, value)
        found.append(Row(number, match["type"], at, at, v=v, s=s))
    return found


def matches(find: str, inputs: str, letters: str) -> list[str]:
    """What a find finds, a text per match; a trailing wait's match says its moment."""
    return shown(read_find(find, inputs), rows(letters))


def shown(query: Query, stream: Sequence[Row]) -> list[str]:
    """The matches of a query as texts."""
    return [match_text(query, match, stream) for match in query.matches(stream)]


def match_text(query: Query, match: Match, stream: Sequence[Row]) -> str:
    names = [f"{name}: {bound_text(bound, stream)}" for name, bound in match.members.items() if bound]
    names += [f"{name}: {selected_text(value, stream)}" for name, value in match.selected.items()]
    return ", ".join(names) + (f" at {match.time / SECOND:g}" if query.trailing else "")


def bound_text(bound: Bound, stream: Sequence[Row]) -> str:
    numbers = (bound,) if isinstance(bound, int) else bound or ()
    return " ".join(f"{stream[number - 1].type}{stream[number - 1].at / SECOND:g}" for number in numbers)


def selected_text(value: Selected, stream: Sequence[Row]) -> str:
    return f"[{bound_text(value, stream)}]" if isinstance(value, tuple) else str(value)
