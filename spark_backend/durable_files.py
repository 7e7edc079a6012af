"""Files that survive a power cut: written whole, renamed, and synced with their folder.

Imports only the standard library, because the process that lists files has to start fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file: afterwards it has either all of the text or its old content."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    publish([(draft, path)])


def publish(files: Iterable[tuple[Path, Path]]) -> None:
    """Rename each first file to the second; they are on the disk when this returns."""
    pairs = list(files)
    for draft, _ in pairs:
        sync(draft)
    rename(pairs)


def rename(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Rename files that are on the disk; their new names are there, too, when this returns."""
    for draft, path in pairs:
        draft.replace(path)
    for folder in sorted({path.parent for _, path in pairs}):
        sync(folder)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it; they are on the disk when this returns."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until the content of a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
