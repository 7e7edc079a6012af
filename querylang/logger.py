"""Warnings of the logger `ensue`: its only way out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum

from querylang.printable import one_line

LOGGER = "ensue"


class LogForm(StrEnum):
    """How a run writes its log: lines of text, or JSON objects."""

    TEXT = "text"
    JSON = "json"


def warn(text: str, fields: Mapping[str, object] | None = None) -> None:
    """Log a warning of one line; what acts on a terminal is escaped.

    fields: the same as data, for handlers: the attribute `fields` of the log record
    """
    logging.getLogger(LOGGER).warning("%s", one_line(text), stacklevel=2, extra={"fields": dict(fields or {})})
