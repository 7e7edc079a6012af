"""Python's limit of recursion, for what users may make deep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def room_for(frames: int) -> Iterator[None]:
    """Raise Python's recursion limit, which also counts the frames of our callers."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, frames))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
