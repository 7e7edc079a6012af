"""Warnings of the logger `ensue`: its only way out."""

from __future__ import annotations

import logging

from querylang.printable import one_line

LOGGER = "ensue"


def warn(text: str) -> None:
    """Log a warning of one line; what acts on a terminal is escaped."""
    logging.getLogger(LOGGER).warning("%s", one_line(text), stacklevel=2)
