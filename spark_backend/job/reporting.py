"""Warn of what is reported: per cause at most once a minute, with a count and one example."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from querylang.logger import warn
from spark_backend.wire.reports import CAUSES, Report, added_up

INTERVAL = 60.0
"""Least number of seconds between two warnings of one cause."""


class Reporter:
    """Logs reports as warnings of the logger `ensue`.

    now: gives the time in seconds, from any beginning
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waiting: dict[str, tuple[Report, ...]] = {}
        self._warned: dict[str, float] = {}

    def add(self, reports: Iterable[Report]) -> None:
        """Warn of these and of those that still wait, as far as their minute has passed."""
        for item in reports:
            self._waiting[item.cause] = (*self._waiting.get(item.cause, ()), item)
        now = self._now()
        for cause in sorted(self._waiting):
            if now >= self._warned.get(cause, now - INTERVAL) + INTERVAL:
                self._warn(cause)
                self._warned[cause] = now
            else:
                self._waiting[cause] = added_up(self._waiting[cause])

    def finish(self) -> None:
        """Warn of all that still waits: the job has ended."""
        for cause in sorted(self._waiting):
            self._warn(cause)

    def _warn(self, cause: str) -> None:
        reports = added_up(self._waiting.pop(cause))
        found = [{"source": item.source, "count": item.count, "example": item.example} for item in reports]
        warn(warning_text(cause, reports), {"event": "report", "cause": cause, "found": found})


def warning_text(cause: str, reports: tuple[Report, ...]) -> str:
    """The reports of one cause as one line; names from outside are quoted and escaped."""
    parts = [f"{item.count} of {item.source!r}" if item.source else str(item.count) for item in reports]
    examples = [item.example for item in reports if item.example]
    example = f"; for example {examples[-1]!r}" if examples else ""
    return f"{cause}: {CAUSES.get(cause, cause)}: {', '.join(parts)}{example}"
