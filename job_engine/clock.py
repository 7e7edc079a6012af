"""The clock of a job: the time of day, a time that never goes back, and pauses.

Everything that a job knows of time comes through here, so a whole job can run in another time.
"""

from __future__ import annotations

import time
from threading import Event


def wall_ns() -> int:
    """The time of day, ns since 1970; somebody may set it back."""
    return time.time_ns()


def wall_seconds() -> float:
    """The time of day, seconds since 1970; somebody may set it back."""
    return time.time()


def monotonic() -> float:
    """Seconds since any beginning, which never go back."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait so long."""
    time.sleep(seconds)


def wait_for(event: Event, seconds: float) -> bool:
    """Wait until something has happened, at most so long; False = it has not."""
    return event.wait(seconds)
