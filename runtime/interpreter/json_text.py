"""JSON text of users, read so that no text can harm the process.

Parsers of deeply nested text need as much stack as the text is deep. So its depth is found first,
in time proportional to its length.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEEPEST = 100
"""How deep brackets may be nested."""

NOT_TEXT = "has half of a surrogate pair, which is not text"
"""Why some JSON, and some text of Python, cannot be used."""

_HALVES = (b"\\u", b"\xed", b"\0")
"""One of them is where half of a surrogate pair is: escaped, as bytes, or in UTF-16."""

_QUOTE, _BACKSLASH = ord('"'), ord("\\")


class JsonError(ValueError):
    """A text is not JSON that can be used; the message says why, without the text."""


def parse_json(text: str | bytes, real: Callable[[str], float] | None = None) -> Any:
    """The value of a JSON text. Raises JsonError.

    real: what a number with a point or an exponent becomes, from its text; None = a float
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise JsonError(NOT_TEXT) from None
    if has_many_brackets(data) and depth(data) > DEEPEST:
        raise JsonError(f"nested more than {DEEPEST} deep")
    try:
        value = json.loads(data, parse_float=real)
        if any(part in data for part in _HALVES):  # half of a surrogate pair is not text
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg} (character {error.pos + 1})") from None
    except UnicodeDecodeError:
        raise JsonError("not valid UTF-8") from None
    except UnicodeEncodeError:
        raise JsonError(NOT_TEXT) from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except ValueError as error:  # Python reads no integers of more than 4,300 digits
        raise JsonError(" ".join(str(error).split()).partition(";")[0]) from None
    return value


def is_unicode(text: str) -> bool:
    """Whether all of a text is Unicode, without halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_many_brackets(data: bytes) -> bool:
    """Whether a text might be nested too deeply; False is certain, and costs little."""
    return data.count(b"[") + data.count(b"{") > DEEPEST


def depth(data: bytes) -> int:
    """How deep the brackets of a JSON text are nested, those in strings ignored."""
    return int(levels(data).max(initial=0))


def levels(data: bytes) -> NDArray[np.int64]:
    """By byte: how many brackets outside of strings are open behind it."""
    content = np.frombuffer(data, np.uint8)
    folded = content & 0xDF  # `[` and `{`, `]` and `}` differ in one bit
    change = (folded == ord("[")).astype(np.int8) - (folded == ord("]"))
    change[is_in_string(content)] = 0
    return np.cumsum(change, dtype=np.int64)


def is_in_string(content: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """By byte of a JSON text: whether it is inside of a string."""
    quotes = content == _QUOTE
    slashes = np.flatnonzero(content == _BACKSLASH)
    if len(slashes):
        # Of a run of backslashes every second one is escaped. A quote behind an odd run is, too.
        is_first = np.ones(len(slashes), np.bool_)
        is_first[1:] = np.diff(slashes) > 1
        run = np.cumsum(is_first) - 1
        starts = slashes[is_first]
        is_odd = (slashes - starts[run]) % 2 == 0
        behind = slashes[is_odd] + 1
        quotes[behind[behind < len(content)]] = False
    return (np.cumsum(quotes, dtype=np.int64) & 1).astype(np.bool_)
