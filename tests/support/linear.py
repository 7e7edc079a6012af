"""Measure that work takes time in proportion to its input."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST = 3.0
"""How many times as long twice the input may take: between 2, in proportion to its size, and 4, to its square."""

_MEASURABLE = 0.02
_ATTEMPTS = 3


def growth(run: Callable[[int], object], size: int) -> float:
    """How many times as long twice the input takes, in processor time: the mean of three doublings.

    A single one may leave a cache of the processor, and take three times as long for that. What other processes do to
    the caches only makes it more, so the least of some attempts is taken, as soon as it is little enough.

    run: works on an input of a size
    size: to begin with; it is doubled until the time can be measured
    """
    run(size)  # what is done once
    while _seconds(run, size) < _MEASURABLE:
        size *= 2
    least = float("inf")
    for _attempt in range(_ATTEMPTS):
        few, many = (min(_seconds(run, length) for _ in range(3)) for length in (size, 8 * size))
        least = min(least, (many / few) ** (1 / 3))
        if least < MOST:
            break
    return least


def _seconds(run: Callable[[int], object], size: int) -> float:
    start = time.process_time()
    run(size)
    return time.process_time() - start
