"""Lay out files in the canonical layout, which `querylang.format_text` defines.

A file is written completely or not at all.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import querylang
from querylang.dataclass import dataclass
from querylang.errors import EnsueError, FileErrors, near_file
from querylang.load import DEFINITION_SUFFIX, QUERY_SUFFIXES
from querylang.system_errors import refused
from querylang.system_limits import exists, is_folder


@dataclass(frozen=True, slots=True)
class Layout:
    """A file before and after.

    mistakes: why the file stays as it is; None = it can be formatted
    """

    path: Path
    before: str
    after: str
    mistakes: EnsueError | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the file is not in the canonical layout yet."""
        return self.before != self.after

    @property
    def can_be_written(self) -> bool:
        """Whether it is a file: a pipe is read once, and has nothing to replace."""
        return self.path.is_file()


def layouts(paths: Sequence[Path]) -> Iterator[Layout]:
    """The layout of each file, once; those of a folder in order of name.

    A link in a folder that leads out of it is left out: nobody asked for that file.
    """
    seen: dict[Path, None] = {}
    for path in paths:
        if not exists(path):
            yield _refused(path, "", FileErrors(str(path), [(None, f"no such file or folder{near_file(path)}")]))
        seen.update(dict.fromkeys(_files(path)))
    for path in seen:
        yield _layout(path)


def _files(path: Path) -> list[Path]:
    if not is_folder(path):
        return [path] if exists(path) else []
    suffixes = (*QUERY_SUFFIXES, DEFINITION_SUFFIX)
    inside = path.resolve()
    return [
        item
        for item in sorted(path.rglob("*"))
        if item.suffix in suffixes and item.is_file() and item.resolve().is_relative_to(inside)
    ]


def _layout(path: Path) -> Layout:
    try:
        before = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return _refused(path, "", refused(error, f"{path}: cannot be read"))
    try:
        return Layout(path, before, querylang.format_text(before, str(path)))
    except EnsueError as mistakes:
        return _refused(path, before, mistakes)


def _refused(path: Path, text: str, mistakes: EnsueError) -> Layout:
    return Layout(path, text, text, mistakes)


def write(layout: Layout) -> None:
    """Replace the file in one step; its owner, its permissions, and links to it are kept.

    Raises InputError.
    """
    try:
        _replace(layout.path.resolve(), layout.after)
    except OSError as error:
        raise refused(error, f"{layout.path}: cannot be written") from error


def _replace(target: Path, text: str) -> None:
    before = target.stat()
    if before.st_nlink > 1:  # a new file would have one of the names only
        target.write_bytes(text.encode())
        return
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(name, before.st_uid, before.st_gid)
        shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
