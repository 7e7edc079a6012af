"""The locks of a running job: one run at a time has a checkpoint, in a folder or in a store."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import IO

from job_engine.chance import new_name
from job_engine.clock import monotonic, sleep, wait_for, wall_seconds
from job_engine.durable_files import JobFile, make_kept_folder, named, sync_names
from job_engine.local_path import LocalPath
from job_engine.place import Place, RemotePath
from job_engine.threads import in_background, new_event
from querylang.dataclass import asdict, dataclass
from querylang.errors import InputError, PassingError
from querylang.printable import warn
from runtime.json_reader import DamagedJson

# The lock of a running job: one run at a time has a checkpoint.
#
# The system unlocks the file when the process ends, however it ends.

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


# The lock of a job whose checkpoint is in a store, where no file can be locked.
#
# The run writes an object with a name of its own again and again. Another run that sees it change
# is refused. One that was killed leaves an object that does not change: the next run waits that
# long, then takes it over. Should two begin at one moment, the later one has the object: the other
# sees it at its next look and ends before it writes results.

BEAT = 3.0
"""Seconds between two changes of the object."""

STALE = 20.0
"""Seconds without a change after which its run has ended."""

SETTLED = 1.0
"""Seconds until a run that took the object at the same moment has written it, too."""

LOOKS = 5
"""Times that an object is read before what cannot be read is called damaged."""


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who has the checkpoint, and how often it has said so."""

    run: str
    host: str
    process: int
    beat: int
    time: float

    @property
    def has_ended(self) -> bool:
        """Whether it was a process of this machine, which is not there any more."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


class StoreLock:
    """As `RunLock`, with an object of a store. Its methods raise OSError if the store fails."""

    def __init__(self, file: RemotePath, work: str = "run") -> None:
        self._path = file
        self._file = JobFile(file, _Holder)
        self._work = work
        self._run = new_name()
        self._beat = 0
        self._is_needed: Callable[[], bool] = lambda: True
        self._stopped: Event | None = None
        self._taken_by: _Holder | None = None

    def acquire(self) -> None:
        """Take the object; raises PassingError if another run has it."""
        self.refuse_if_held()
        self._write()
        sleep(SETTLED)
        self.confirm()
        stopped = self._stopped = new_event()
        in_background(partial(self._keep, stopped), "ensue lock")

    def hold_while(self, is_needed: Callable[[], bool]) -> None:
        """Release the object as soon as `is_needed` is false: a handle need not be kept."""
        self._is_needed = is_needed

    def confirm(self) -> None:
        """Raise PassingError if another run has taken the checkpoint."""
        holder = self._taken_by or self._holder()
        if holder is None or holder.run != self._run:
            raise PassingError(self._refusal(holder))

    def release(self) -> None:
        """Remove the object."""
        if self._stopped is None:
            return
        self._stopped.set()
        self._stopped = None
        with suppress(OSError):  # then it does not change any more, which says the same
            holder = self._holder()
            if holder is not None and holder.run == self._run:
                self._file.remove()

    def refuse_if_held(self) -> None:
        """Raise PassingError if another run has the checkpoint; writes nothing."""
        first = self._holder()
        if first is None or first.has_ended or first.run == self._run:
            return
        if abs(wall_seconds() - first.time) < 2 * STALE:
            warn(
                f"{self._path.parent.parent}: waits up to {STALE:.0f} s to see whether another {self._work} is at work"
            )
        limit = monotonic() + STALE
        while monotonic() < limit:
            sleep(BEAT / 3)
            holder = self._holder()
            if holder is None:
                return
            if holder != first:
                raise PassingError(self._refusal(holder))

    def is_held(self) -> bool:
        """Whether some job runs, by this machine's clock."""
        holder = self._holder()
        return holder is not None and not holder.has_ended and wall_seconds() - holder.time < STALE

    def process(self) -> int | None:
        """The process of this machine that has the lock; None = no job runs here."""
        holder = self._holder() if self.is_held() else None
        return holder.process if holder is not None and holder.host == socket.gethostname() else None

    def _keep(self, stopped: Event) -> None:
        """Change the object until the run ends, or another one has taken it."""
        while not wait_for(stopped, BEAT):
            if not self._is_needed():
                self.release()
                return
            with suppress(OSError):  # the next micro-batch fails by itself
                holder = self._holder()
                if holder is None or holder.run != self._run:
                    self._taken_by = holder
                    return
                self._write()

    def _write(self) -> None:
        self._beat += 1
        holder = _Holder(self._run, socket.gethostname(), os.getpid(), self._beat, wall_seconds())
        self._file.write(asdict(holder))

    def _holder(self) -> _Holder | None:
        """Who has the checkpoint; a store may show an object while it is written, so look again."""
        for _ in range(LOOKS):
            try:
                return self._file.read()
            except DamagedJson:
                sleep(SETTLED / LOOKS)
        return _Holder("", "", 0, 0, 0.0)  # damaged; it counts as one that does not change

    def _refusal(self, holder: _Holder | None) -> str:
        at_work = "another process" if holder is None else f"process {holder.process} on {holder.host}"
        return (
            f"{self._path.parent.parent}: another {self._work} of this job is at work ({at_work});"
            " it continues, and this one writes nothing more"
        )
