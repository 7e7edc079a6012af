"""Where a process keeps what is temporary: in one folder, which it holds as long as it lives.

A process that is killed cannot remove its folder; the next one that needs such a folder does. What
says that a folder is needed is a lock of the system, which ends with the last process that has it:
no numbers of processes are compared, which are given again, nor times.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from querylang.errors import InputError

PREFIX = "ensue-"
"""Of names in it."""

OTHER_PLACE = "`TMPDIR` names the folder of temporary files"
"""The way out where that one is full."""

_HELD = f"{PREFIX}job-"
"""Of folders that are held, in the temporary folder of the system."""


class HeldFolder:
    """A new empty folder in the temporary one, until no process holds it any more.

    Then `remove_unheld` removes it.

    folder: its path
    handle: processes that have it hold the folder, as long as they live
    """

    def __init__(self) -> None:
        while True:
            self.folder = Path(tempfile.mkdtemp(prefix=_HELD, dir=_of_system()))
            with suppress(FileNotFoundError):  # removed before it was held
                self.handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
                if _is_ours(self.folder, self.handle):
                    return
                os.close(self.handle)

    def close(self) -> None:
        """Remove the folder, and hold it no longer; once is enough."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1


def _of_system() -> Path:
    """The folder of temporary files. Raises InputError if there is none that takes any."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        tried = re.findall("'([^']+)'", str(error))
        raise InputError(
            f"no folder for temporary files can be written: {' '.join(tried)} are full or read-only, or are not there."
            " Let `TMPDIR` name one"
        ) from error


def _is_ours(folder: Path, handle: int) -> bool:
    """Whether a new folder is there, and nobody is about to remove it."""
    try:
        return _is_held_now(folder, handle)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # there are no locks here: then nobody removes it


def remove_unheld() -> None:
    """Remove folders of this user that no process holds, in the temporary one."""
    for folder in _of_system().glob(f"{_HELD}*"):
        with suppress(OSError):  # somebody else's, removed meanwhile, or without locks
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.geteuid() and _is_held_now(folder, handle):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _is_held_now(folder: Path, handle: int) -> bool:
    """Whether a folder is there, and this handle holds it now, because nobody else does."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.path.samestat(os.fstat(handle), folder.lstat())


_of_process: list[HeldFolder] = []
"""The folder of this process, if it needs one; a process that is forked begins without."""

os.register_at_fork(after_in_child=_of_process.clear)


def folder_of_process() -> Path:
    """Where this process keeps what is temporary, and what its children do.

    It is removed at the end of the process; if that was killed, by the next process that needs one.
    """
    return _held_by_process().folder


def handle_of_process() -> int:
    """Children that have it hold the folder as long as they live."""
    return _held_by_process().handle


def _held_by_process() -> HeldFolder:
    if not _of_process or not _of_process[-1].folder.is_dir():  # others may tidy up, too
        if not _of_process:
            atexit.register(_leave_nothing)
        remove_unheld()
        _of_process.append(HeldFolder())
    return _of_process[-1]


def _leave_nothing() -> None:
    for held in _of_process:
        held.close()
    _of_process.clear()


def own_folder(parent: Path | None = None) -> Path:
    """A new empty folder, which goes with the one it is in; `parent`: None = of this process."""
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent or folder_of_process()))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed afterwards."""
    folder = own_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def temporary_file(folder: Path | None = None) -> Path:
    """A new empty file, which the caller removes; `folder`: where, None = that of this process."""
    handle, name = tempfile.mkstemp(prefix=PREFIX, dir=folder or folder_of_process())
    os.close(handle)
    return Path(name)
