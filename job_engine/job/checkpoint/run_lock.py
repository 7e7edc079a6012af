"""The lock of a running job: one run at a time has a checkpoint.

The system unlocks the file when the process ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from job_engine.clock import sleep
from job_engine.durable_files import make_kept_folder, named, sync_names
from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place
from querylang.errors import InputError, PassingError

_FOR_FILES = 0o666

_STATES = "state"
"""The name of folders of states, in the logs of both engines."""

_ATTEMPTS = 5
_PAUSE = 0.05
"""Seconds between attempts: `status` has the lock for a moment when it asks for it."""

_HELD: dict[Path, tuple[RunLock, Callable[[], bool]]] = {}
"""The locks of this process, and whether each is still needed: a handle need not be kept."""


class RunLock:
    """A file that is locked while a job runs, or while something else is done with its checkpoint.

    work: what is done, for messages
    """

    def __init__(self, file: Path, work: str = "run") -> None:
        self._path = LocalPath.of(file.absolute())
        self._work = work
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Lock the file; raises PassingError if another run has it, InputError if none can.

        What is seen of the checkpoint from then on survives a power cut, but for states: those are
        on the disk before anything names them.
        """
        self.refuse_if_held()
        make_kept_folder(self._path.parent)
        file = _opened(self._path)
        if not self._try(file, fcntl.LOCK_EX, _ATTEMPTS):
            file.close()
            raise PassingError(self._refusal())
        try:
            with named(self._path):
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
            sync_names(self._path.parent.parent, besides=_STATES)
        except OSError:
            with suppress(OSError):  # what was not written is lost, and the lock is released
                file.close()
            raise
        self._file = file
        self.hold_while(lambda: True)

    def hold_while(self, is_needed: Callable[[], bool]) -> None:
        """Let a later run of this process take the lock as soon as `is_needed` is false."""
        _HELD[self._path] = (self, is_needed)

    def confirm(self) -> None:
        """Nobody can take a locked file."""

    def release(self) -> None:
        """Unlock the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            _HELD.pop(self._path, None)

    def refuse_if_held(self) -> None:
        """Raise PassingError if another run has the lock; creates nothing."""
        if self._path in _HELD:
            own, is_needed = _HELD[self._path]
            if not is_needed():
                own.release()
        if self.is_held():
            raise PassingError(self._refusal())

    def is_held(self) -> bool:
        """Whether some job runs."""
        if not self._path.exists():
            return False
        with self._path.open(encoding="utf-8") as file:
            # Shared, so that several who ask see the job that runs, and not each other.
            return not self._try(file, fcntl.LOCK_SH, attempts=1)

    def process(self) -> int | None:
        """The process that has the lock; None = no job runs, or it is not known."""
        try:
            return int(self._path.read_text("utf-8")) if self.is_held() else None
        except (OSError, ValueError):
            return None

    def _try(self, file: IO[str], kind: int, attempts: int) -> bool:
        """Lock an open file until it is closed; False = somebody else has it."""
        for attempt in range(attempts):
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise InputError(
                        f"{self._path}: cannot be locked: {error.strerror}; choose a checkpoint on a file system"
                        " that has locks"
                    ) from error
                if attempt < attempts - 1:
                    sleep(_PAUSE)
            else:
                return True
        return False

    def _refusal(self) -> str:
        try:
            process = self._path.read_text("utf-8").strip()
        except OSError:
            process = ""
        at_work = f"process {process}" if process else "another process"
        return (
            f"{self._path.parent.parent}: another {self._work} of this job is at work ({at_work});"
            " it continues, and this one was not started"
        )


@contextmanager
def being_read(folder: Place) -> Iterator[None]:
    """Let `is_read` say so of a folder. Afterwards look whether it was replaced before that."""
    with ExitStack() as stack:
        if isinstance(folder, LocalPath):
            with suppress(OSError):  # it is not there any more, or has no locks
                fcntl.flock(stack.enter_context(folder.opened()), fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def is_read(folder: LocalPath) -> bool:
    """Whether somebody reads a folder, so that it has to stay."""
    try:
        with folder.opened() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _opened(path: LocalPath) -> IO[str]:
    """The file; a new one has the permissions of its folder."""
    return path.shared_file(path.parent.stat().st_mode & _FOR_FILES)
