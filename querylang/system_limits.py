"""What the system allows of what users write: lengths of paths, depth of recursion."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from threading import Lock

# Whether a path that a user wrote exists: one that no file system can hold does not.

_CANNOT_BE = (errno.ENAMETOOLONG, errno.EINVAL)
"""Errors of paths that no file system can hold."""

LONGEST_NAME = 255
"""Bytes of one name, on every common file system."""

LONGEST_PATH = 4_000
"""Bytes of a path, with room for the names of files below it."""


def can_be(path: str | PathLike[str]) -> bool:
    """Whether a file system can hold such a path."""
    data = os.fsencode(path)
    return b"\0" not in data and len(data) <= LONGEST_PATH and max(map(len, data.split(b"/"))) <= LONGEST_NAME


def exists(path: str | PathLike[str]) -> bool:
    """Whether there is such a file or folder; an overlong name or one with a NUL does not exist.

    One that this user may not look at counts as there, and so does one that the disk cannot tell
    of: who opens it gets the reason.
    """
    try:
        return Path(path).exists()
    except OSError as error:
        return error.errno not in _CANNOT_BE
    except ValueError:
        return False


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether there is such a folder."""
    try:
        return exists(path) and Path(path).is_dir()
    except PermissionError:
        return False


# Python's limit of recursion, for what users may make deep.

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
