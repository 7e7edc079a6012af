"""What a process that was killed has left beside the file that it was to write.

It may be as large as that file, and nobody would look for it: its name begins with a point.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

YOUNGEST = 60.0
"""Seconds. What is younger may belong to a process that is about to say that it needs it."""


@contextmanager
def held(place: Path) -> Iterator[None]:
    """Says that this process needs a file or folder: others do not remove it meanwhile."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # where there are no locks, nothing is removed
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def remove_left_over(path: Path) -> None:
    """Remove drafts and folders for a file, unless a process needs them."""
    names = re.compile(rf"\.{re.escape(path.name)}\.(\d+\.draft|\w+\.runs)")
    for place in [place for place in path.parent.iterdir() if names.fullmatch(place.name)]:
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > YOUNGEST:
                _remove_if_not_held(place)


def _remove_if_not_held(place: Path) -> None:
    """Raises OSError if a process needs it."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    finally:
        os.close(handle)
