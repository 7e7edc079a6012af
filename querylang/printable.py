r"""Text of data and file names as people read it, without characters that act on a terminal.

Such characters ring, colour, delete or turn around what is printed. They are shown escaped: `\x1b`,
`\x9b`, `\u202e`.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ACTS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff"
"""DEL and C1, signs that change the direction of text, line ends of Unicode, halves of pairs."""

_ACTING = re.compile(f"[\x00-\x08\x0b-\x1f{_ACTS}]")
_ACTING_IN_JSON = re.compile(f"[{_ACTS}]")  # JSON escapes the others itself


def printable(text: str) -> str:
    """Text of any number of lines; line ends and tabs stay."""
    return _ACTING.sub(lambda found: _escaped(found[0]), text)


def one_line(text: str) -> str:
    """Text on one line: everything that is not seen is escaped, line ends and tabs too."""
    return text if text.isprintable() else "".join(map(_visible, text))


def json_text(value: Any) -> str:
    r"""One line of JSON, with letters as they are and acting characters as `\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False)
    return _ACTING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(letter: str) -> str:
    return letter if letter.isprintable() or letter == "\u00a0" else _escaped(letter)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
