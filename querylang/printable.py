r"""Text as people may see it: harmless for terminals and without secrets; and warnings.

Characters that act on a terminal ring, colour, delete or turn around what is printed. They are
shown escaped: `\x1b`, `\x9b`, `\u202e`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from enum import StrEnum
from typing import Any
from urllib.parse import quote, quote_plus

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


def quoted(text: str) -> str:
    """One line in quotes; those within stay as they are, so that a sentence can be read."""
    return f"'{one_line(text)}'"


def json_text(value: Any) -> str:
    r"""One line of JSON, with letters as they are and acting characters as `\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False)
    return _ACTING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(letter: str) -> str:
    return letter if letter.isprintable() or letter == "\u00a0" else _escaped(letter)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


# Secrets: values of variables and files that settings name, and passwords. Whoever reads such a
# value keeps it here. Every text that leaves passes `masked`: errors, warnings, logs, tracebacks.

SHORTEST_SECRET = 4
"""Characters. Shorter values are part of too many words to be replaced in any text."""

_kept: dict[str, str] = {}


def keep_secret(name: str, value: str) -> None:
    """Never show this value from now on in this process; `name`: of its variable or setting."""
    _kept[name] = value


def kept_secrets() -> Mapping[str, str]:
    """All of them, for another process of the same run."""
    return dict(_kept)


def forget_secrets() -> None:
    """Show everything again: what comes next has other settings."""
    _kept.clear()


def masked(text: str, values: Mapping[str, str] | None = None) -> str:
    """The text with `${NAME}` in place of each value.

    values: by name; None = all that this process has read
    """
    chosen = _kept if values is None else values
    for name, value in sorted(chosen.items(), key=lambda item: -len(item[1])):
        if len(value) >= SHORTEST_SECRET:
            for written in _forms(value):
                text = text.replace(written, f"${{{name}}}")
    return text


def shows(text: str, values: Mapping[str, str] | None = None) -> bool:
    """Whether a text has one of the values."""
    return masked(text, values) != text


def _forms(value: str) -> Iterator[str]:
    """How a text may have a value: as it is, escaped for terminals, Python, JSON and URLs."""
    forms = (value, one_line(value), repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, safe=""), quote(value))
    return iter(dict.fromkeys((*forms, quote_plus(value))))


# Warnings; the logger `ensue` has no other way out.

LOGGER = "ensue"


words: ContextVar[Callable[[str], str]] = ContextVar("words", default=str)
"""How the caller's language says what a warning says; as it is, it is that of the command line."""


_warned: set[str] = set()


class LogForm(StrEnum):
    """How a run writes its log: lines of text, or JSON objects."""

    TEXT = "text"
    JSON = "json"


def warn(text: str, fields: Mapping[str, object] | None = None) -> None:
    """Log a warning of one line; what acts on a terminal is escaped.

    fields: the same as data, for handlers: the attribute `fields` of the log record
    """
    logging.getLogger(LOGGER).warning(
        "%s", one_line(masked(words.get()(text))), stacklevel=2, extra={"fields": dict(fields or {})}
    )


def warn_once(text: str) -> None:
    """As `warn`, but once in a process: a job looks at its sinks at each change."""
    if text not in _warned:
        _warned.add(text)
        warn(text)
