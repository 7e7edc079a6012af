"""Measure processor time as on an idle machine: in proportion to a fixed piece of work, which is timed before and after.

On a busy or slow processor all work takes longer, and this piece does too.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_SECONDS_OF_PIECE = 0.023
"""On the idle machine that bounds in tests are written for."""


@dataclass(slots=True)
class Used:
    """Seconds of processor time, of this process and of those that it has started and that have ended."""

    seconds: float = 0.0


@contextmanager
def measured() -> Iterator[Used]:
    """What its block uses; known at its end."""
    used = Used()
    before = _piece()
    start = _processor_time()
    yield used
    seconds = _processor_time() - start
    used.seconds = seconds * min(1.0, _SECONDS_OF_PIECE / max(before, _piece()))


def _piece() -> float:
    """Seconds that a piece of work takes: it makes, reads and forgets small objects, as most of ours does."""
    start = _processor_time()
    for _ in range(5):
        words = {f"word {number}": [number] for number in range(20_000)}
        sum(len(name) + values[0] for name, values in words.items())
    return _processor_time() - start


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
