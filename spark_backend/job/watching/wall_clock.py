"""Whether this machine's clock was set back: Spark then waits until its old time comes again."""

from __future__ import annotations

import time
from collections.abc import Callable

TOLERANCE = 5.0
"""Seconds. Clocks are corrected by less now and then, and Spark waits no longer than that."""


class WallClock:
    """Compares the clock that people see with one that nobody can set."""

    def __init__(self, shown: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._shown, self._steady = shown, steady
        self._ahead = shown() - steady()

    def set_back(self) -> float:
        """Seconds that it was set back since the last look; 0 = it was not, or hardly."""
        ahead = self._shown() - self._steady()
        back = self._ahead - ahead
        if 0 <= back < TOLERANCE:
            return 0.0  # small steps add up
        self._ahead = ahead
        return max(0.0, back)
