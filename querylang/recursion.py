"""Python's limit of recursion, for what users may make deep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()
_usual: list[int] = []
"""The limit while nobody wants more."""
_wanted: list[int] = []


@contextmanager
def room_for(frames: int) -> Iterator[None]:
    """Raise Python's recursion limit, which also counts the frames of our callers.

    The process has one limit. While several threads want more, or generators that wait, it is the
    largest of these; in whatever order they end, it is as before in the end.
    """
    with _LOCK:
        if not _wanted:
            _usual[:] = [sys.getrecursionlimit()]
        _wanted.append(frames)
        sys.setrecursionlimit(max(_usual + _wanted))
    try:
        yield
    finally:
        with _LOCK:
            _wanted.remove(frames)
            sys.setrecursionlimit(max(_usual + _wanted))
