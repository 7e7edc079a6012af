"""Python workers collect garbage after every task: make that cheap where much is loaded.

A collection looks at every object that is there, and the packages of a worker are half a million.
So what a long collection has left is never looked at again.
"""

from __future__ import annotations

import gc
from typing import Any

from job_engine.clock import monotonic

LONGEST = 0.01
"""Seconds that a collection may take before what it has left is set aside."""

_started = 0.0


def set_objects_aside() -> None:
    """Do so from now on in this process; again is harmless."""
    if _after_collection not in gc.callbacks:
        gc.callbacks.append(_after_collection)


def _after_collection(phase: str, _: dict[str, Any]) -> None:
    global _started  # noqa: PLW0603 # Python calls this before and after a collection, and passes nothing on
    now = monotonic()
    if phase == "start":
        _started = now
    elif now - _started > LONGEST:
        gc.freeze()
