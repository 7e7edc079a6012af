"""Warnings of the logger `ensue`: its only way out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import StrEnum

from querylang.masking import masked
from querylang.printable import one_line

LOGGER = "ensue"


words: ContextVar[Callable[[str], str]] = ContextVar("words", default=str)
"""How the caller's language says what a warning says; as it is, it is that of the command line."""


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
