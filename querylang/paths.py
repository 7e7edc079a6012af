"""Whether a path that a user wrote exists: one that no file system can hold does not."""

from __future__ import annotations

from os import PathLike
from pathlib import Path


def exists(path: str | PathLike[str]) -> bool:
    """Whether there is such a file or folder; an overlong name or one with a NUL does not exist."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether there is such a folder."""
    return exists(path) and Path(path).is_dir()
