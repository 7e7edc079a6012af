"""Colour printed errors on terminals: the place bold, the code and the carets red.

The code and the carets of warnings are yellow. As https://no-color.org asks, any value of
`NO_COLOR` that is not empty switches colour off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TextIO

BOLD, RED, YELLOW, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"

_HEAD = re.compile(r"^(warning: )?(\S.*?:\d+(?::\d+)?): ((?:[a-z-]+: )?)", re.MULTILINE)
_CARETS = re.compile(r"^( +\| *[\t ]*)(\^+)$", re.MULTILINE)


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal whose user has not switched colour off."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def coloured(text: str) -> str:
    """The printed text of errors with ANSI escapes."""
    colour = YELLOW if text.startswith("warning: ") else RED

    def head(found: re.Match[str]) -> str:
        warning, place, code = found.groups(default="")
        return f"{_in(colour, warning)}{_in(BOLD, place)}: {_in(colour, code)}"

    return _CARETS.sub(lambda found: f"{found[1]}{_in(colour, found[2])}", _HEAD.sub(head, text))


def _in(colour: str, text: str) -> str:
    return f"{colour}{text}{PLAIN}" if text else ""
