"""Paths of this machine: what a job does with local files, beyond `pathlib`.

Every local path that a job makes is one of these, so all that it does on this machine's disks are
calls of one class. Imports are few, because the process that lists files has to start fast.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PosixPath
from typing import BinaryIO, TextIO

from runtime import temporary

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SHARED = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LocalPath(PosixPath):
    """A file or folder on this machine."""

    @classmethod
    def of(cls, path: Path) -> LocalPath:
        """The same path, whoever has made it."""
        return path if isinstance(path, cls) else cls(path)

    def sync(self) -> None:
        """Wait until the content of a file or folder is on the disk; a full one names no file."""
        handle = os.open(self, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def new_file(self, mode: int) -> BinaryIO:
        """A file that nobody else has made or linked; raises FileExistsError."""
        return os.fdopen(os.open(self, _NEW, mode), "wb")

    def shared_file(self, mode: int) -> TextIO:
        """A file that several processes read and write; `mode`: permissions of a new one."""
        return os.fdopen(os.open(self, _SHARED, mode), "a+", encoding="utf-8")

    def plain_file(self) -> BinaryIO:
        """The content; neither is a link followed, nor a pipe waited for."""
        return os.fdopen(os.open(self, _PLAIN), "rb")

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The number of the open file or folder, for locks."""
        handle = os.open(self, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield handle
        finally:
            os.close(handle)

    def entries(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """What a folder has, with its kinds."""
        return os.scandir(self)

    def walk_below(self) -> Iterator[tuple[LocalPath, list[str], list[str]]]:
        """This folder and those below it, with their names of folders and of others.

        Those that do not exist are left out. Raises OSError for one that cannot be listed.
        """
        for inner, folders, names in os.walk(self, onerror=_raise_unless_gone):
            yield type(self)(inner), folders, names

    def real(self) -> LocalPath:
        """The path without links, as far as it exists."""
        return type(self)(os.path.realpath(self))

    def is_taken(self) -> bool:
        """Whether something has this name, even a link to nowhere."""
        try:
            self.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def refusal(self) -> OSError | None:
        """Why this process may not make files in this folder; None = it may."""
        if os.access(self, os.W_OK | os.X_OK):
            return None
        is_read_only = os.statvfs(self).f_flag & os.ST_RDONLY
        number = errno.EROFS if is_read_only else errno.EACCES
        return OSError(number, os.strerror(number))

    def is_open(self) -> bool:
        """Whether this process may read it and, in a folder, make files; a link is not asked."""
        mode = os.R_OK | os.W_OK | os.X_OK if self.is_dir() else os.R_OK
        return self.is_symlink() or os.access(self, mode)

    def user(self) -> int:
        """The number of the user whose it is."""
        return self.lstat().st_uid

    def has_content_of(self, other: Path) -> bool:
        """Whether two files have the same content."""
        return filecmp.cmp(self, other, shallow=False)

    def copy_to(self, target: Path) -> None:
        """Copy a file, with its times and permissions."""
        shutil.copy2(self, target)

    def remove_tree(self) -> None:
        """Remove a folder with all that is in it, as far as that is possible."""
        shutil.rmtree(self, ignore_errors=True)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


@contextmanager
def temporary_folder() -> Iterator[LocalPath]:
    """A folder that is removed afterwards."""
    with temporary.temporary_folder() as folder:
        yield LocalPath(folder)


def own_folder(parent: Path | None = None) -> LocalPath:
    """A new empty folder, which goes with the one it is in; `parent`: None = of this process."""
    return LocalPath(temporary.own_folder(parent))


@contextmanager
def open_outputs() -> Iterator[list[int]]:
    """Where output and errors of this process go; nowhere if it has closed them."""
    with Path(os.devnull).open("wb") as nowhere:
        yield [file if _is_open(file) else nowhere.fileno() for file in (1, 2)]


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def write_to(outputs: Sequence[int]) -> None:
    """Let this process write output and errors to open files, which it takes over."""
    for target, file in enumerate(outputs, start=1):
        os.dup2(file, target)
    let_go(outputs)


def let_go(files: Iterable[int]) -> None:
    """Close open files."""
    for file in files:
        os.close(file)


def temporary_file(folder: Path | None = None) -> LocalPath:
    """A new empty file, which the caller removes; `folder`: where, None = that of this process."""
    return LocalPath(temporary.temporary_file(folder))


def this_user() -> int:
    """The number of the user that this process acts for."""
    return os.geteuid()
