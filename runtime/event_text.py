"""Events written as text: `A(1,"x",2.5)`, `com.apama.queries.SetDelayedEventsLeeway(300.0, 10.0)`.

Takes one text; gives the type's name and its arguments as plain values. What `toString()` prints of an event is read. What the event is (one of the plan's types, a
control event) and whether the arguments fit is left to the caller.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

Value = bool | int | float | str | None

_NAME = re.compile(r"\s*\.?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*\(")
_ARGUMENT = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"""
    r"""|(?P<word>[+-]?[A-Za-z_][\w.]*))\s*"""
)
_WORDS: dict[str, bool | float | None] = {
    "true": True,
    "false": False,
    "null": None,
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "infinity": float("inf"),
    "-infinity": float("-inf"),
    "float.INFINITY": float("inf"),
    "-float.INFINITY": float("-inf"),
    "NaN": float("nan"),
    "float.NAN": float("nan"),
}


class EventTextError(ValueError):
    """The text is no event in Apama's event syntax; the message says where it stops being one."""


@dataclass(frozen=True, slots=True)
class TextEvent:
    """An event as written: `name` with its package, `arguments` in order."""

    name: str
    arguments: tuple[Value, ...]


def parse_event_text(text: str) -> TextEvent:
    """Read one event; raises EventTextError."""
    head = _NAME.match(text)
    if head is None:
        raise EventTextError(f"not an event: {text.strip()!r}")
    arguments, position = _arguments(text, head.end())
    if text[position:].strip() not in ("", ";"):
        raise EventTextError(f"nothing may follow the closing bracket, found {text[position:].strip()!r}")
    return TextEvent(head.group(1), arguments)


def _arguments(text: str, position: int) -> tuple[tuple[Value, ...], int]:
    if text[position:].lstrip().startswith(")"):
        return (), text.index(")", position) + 1
    found: list[Value] = []
    while True:
        argument = _ARGUMENT.match(text, position)
        if argument is None:
            raise EventTextError(f"expected a value, found {text[position:].strip()[:20]!r}")
        found.append(_value(argument))
        position = argument.end()
        match text[position : position + 1]:
            case ",":
                position += 1
            case ")":
                return tuple(found), position + 1
            case _:
                raise EventTextError(f"expected ',' or ')', found {text[position : position + 20]!r}")


def _value(argument: re.Match[str]) -> Value:
    if (string := argument["string"]) is not None:
        try:
            return str(json.loads(string, strict=False))
        except ValueError as error:
            raise EventTextError(f"not a string: {string}") from error
    if (number := argument["number"]) is not None:
        return float(number) if re.search(r"[.eE]", number) else int(number)
    word = argument["word"]
    if word not in _WORDS:
        raise EventTextError(f"{word!r} is not a value; strings stand in double quotes")
    return _WORDS[word]
