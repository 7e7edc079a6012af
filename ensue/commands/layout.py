"""`ensue fmt`: files in the one canonical layout.

Takes paths; gives what each file would be, or its mistakes; writes a file whole or not at all. The layout itself is
`querylang.format_text`'s.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import querylang
from querylang.errors import EnsueError, FileErrors
from querylang.load import DEFINITION_SUFFIX, QUERY_SUFFIXES


@dataclass(frozen=True, slots=True)
class Layout:
    """A file before and after; `mistakes`: why it stays as it is."""

    path: Path
    before: str
    after: str
    mistakes: EnsueError | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the file is not in this layout yet."""
        return self.before != self.after


def layouts(paths: Sequence[Path]) -> Iterator[Layout]:
    """Each file, those of a folder in order of name, each once."""
    seen: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            yield _refused(path, "", FileErrors(str(path), [(None, "no such file or folder")]))
        seen.update(dict.fromkeys(_files(path)))
    for path in seen:
        yield _layout(path)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.exists() else []
    suffixes = (*QUERY_SUFFIXES, DEFINITION_SUFFIX)
    return [item for item in sorted(path.rglob("*")) if item.suffix in suffixes and item.is_file()]


def _layout(path: Path) -> Layout:
    try:
        before = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return _refused(path, "", FileErrors(str(path), [(None, f"cannot be read: {error}")]))
    try:
        return Layout(path, before, querylang.format_text(before, str(path)))
    except EnsueError as mistakes:
        return _refused(path, before, mistakes)


def _refused(path: Path, text: str, mistakes: EnsueError) -> Layout:
    return Layout(path, text, text, mistakes)


def write(layout: Layout) -> None:
    """Put the file in place in one step, with the rights of the old one; a link stays a link. Raises FileErrors."""
    try:
        _replace(layout.path.resolve(), layout.after)
    except OSError as error:
        raise FileErrors(str(layout.path), [(None, f"cannot be written: {error.strerror}")]) from error


def _replace(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
