"""Wait for what another thread or process does: as soon as it is so, and however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LONGEST = 600.0
"""Seconds; only what never happens takes so long."""

_REST = 4
"""So many times as long as a look takes, none follows: looks would slow down what they wait for."""

Found = TypeVar("Found")


def wait_for(find: Callable[[], Found], *, meanwhile: Callable[[], object] = lambda: None) -> Found:
    """What is found, once it is true. `meanwhile` may assert what has to hold until then."""
    limit = time.monotonic() + LONGEST
    while True:
        began = time.monotonic()
        if found := find():
            return found
        meanwhile()
        now = time.monotonic()
        assert now < limit, f"this did not come within {LONGEST:.0f} s"
        time.sleep(max(0.02, _REST * (now - began)))
