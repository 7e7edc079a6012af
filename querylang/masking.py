"""Values that no text shows: of variables and files that settings name, and passwords.

Whoever reads such a value keeps it here. Every text that leaves passes `masked`: errors, warnings,
logs, tracebacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

from querylang.printable import one_line

SHORTEST_SECRET = 4
"""Characters. Shorter values are part of too many words to be replaced in any text."""

_kept: dict[str, str] = {}


def keep_secret(name: str, value: str) -> None:
    """Never show this value from now on in this process; `name`: of its variable or setting."""
    _kept[name] = value


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
