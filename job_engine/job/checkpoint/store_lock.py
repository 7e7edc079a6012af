"""The lock of a job whose checkpoint is in a store, where no file can be locked.

The run writes an object with a name of its own again and again. Another run that sees it change is
refused. One that was killed leaves an object that does not change: the next run waits that long,
then takes it over. Should two begin at one moment, the later one has the object: the other sees it
at its next look and ends before it writes results.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event

from job_engine.chance import new_name
from job_engine.clock import monotonic, sleep, wait_for, wall_seconds
from job_engine.durable_files import JobFile
from job_engine.places.place import RemotePath
from job_engine.threads import in_background, new_event
from querylang.dataclass import asdict, dataclass
from querylang.errors import PassingError
from querylang.printable import warn
from runtime.json_reader import DamagedJson

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
