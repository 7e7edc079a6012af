"""What a job starts beside what it has to do first, and does without if that fails."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import suppress

from job_engine.threads import in_background

LONGEST_EXIT = 2.0
"""Seconds that a process waits at its end for something that is being started."""


class EarlyStart:
    """Something that runs beside the main thread; its mistakes show when the job meets them."""

    def __init__(self, start: Callable[[], object]) -> None:
        self._start = start
        self._thread = in_background(self._run, "ensue early start")
        atexit.register(self._thread.join, LONGEST_EXIT)

    def _run(self) -> None:
        with suppress(Exception):
            self._start()

    def wait(self) -> None:
        """Return when it has ended, well or not."""
        self._thread.join()
