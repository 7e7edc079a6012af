"""The workers of a local job: started, asked, and ended; how one died is said in plain words."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NotRequired, TypedDict

from job_engine.clock import monotonic
from job_engine.errors import KINDS, WorkerDied
from job_engine.local import fork_server
from job_engine.local.frames import Ended, Frame, Word, receive, send
from job_engine.places.local_path import HeldFolder, LocalPath, remove_unheld
from job_engine.sources.crash_marks import signal_text
from runtime.json_reader import json_of_text

ENDS_WITHIN = 5.0
"""Seconds in which the server has to say how a worker has died."""


class WorkerFailed(RuntimeError):
    """A worker met an error that has no plain words; the text ends with its traceback."""


class _Told(TypedDict):
    """A line of the server."""

    began: NotRequired[int]
    died: NotRequired[int]
    status: NotRequired[int]


class Pool:
    """So many workers of one job. They end with it, and with the process that has it.

    count: of workers
    variables: of their environment, beside those of this process
    folder: where they put rows and drafts for each other and for the driver; it goes with the pool,
        or with the next one of this machine if all processes were killed at once
    """

    def __init__(self, count: int, variables: Mapping[str, str] | None = None) -> None:
        remove_unheld()
        self._held = HeldFolder()
        self.folder = self._held.folder
        self._variables = dict(variables or {})
        self._connections: list[socket.socket] = []
        self._pids: list[int] = []
        self._deaths: dict[int, int] = {}
        self._count = count
        self._has_failed = self._has_no_server = False
        self._start_server()

    @property
    def count(self) -> int:
        """The number of workers."""
        return self._count

    @property
    def pids(self) -> Sequence[int]:
        """The processes of the workers that have been started."""
        return tuple(self._pids)

    def begin(self, header: Mapping[str, object]) -> None:
        """Let all workers begin a run; those of a run that has failed are replaced by new ones."""
        if self._has_failed:
            self._end_workers()
        if self._has_no_server:
            self._end_server()
            self._start_server()
        while len(self._connections) < self._count:
            self._fork()
        own = {"workers": self._count}
        self.ask({number: Frame(Word.BEGIN, {**header, **own, "worker": number}) for number in range(self._count)})

    def ask(self, frames: Mapping[int, Frame]) -> dict[int, Frame]:
        """What workers answer, by their numbers; all of them work at the same time.

        Raises what a worker has raised, WorkerDied if one has ended, and WorkerFailed. After that
        only `begin` and `close` make sense.
        """
        self.send(frames)
        return self.receive(frames)

    def send(self, frames: Mapping[int, Frame]) -> None:
        """Ask workers; `receive` has to follow."""
        for number, frame in frames.items():
            try:
                send(self._connections[number], frame)
            except Ended:
                raise self._death(number) from None

    def receive(self, numbers: Mapping[int, object]) -> dict[int, Frame]:
        """What workers answer that were asked; raises as `ask`."""
        found: dict[int, Frame] = {}
        failures: list[Exception] = []
        for number in numbers:
            try:
                found[number] = receive(self._connections[number])
            except Ended:
                raise self._death(number) from None
            if found[number].word is Word.FAILED:
                self._has_failed = True
                failures.append(_failure(found[number]))
        if failures:
            raise failures[0]
        return found

    def abandon(self) -> None:
        """End what workers do, from another thread: whoever waits for an answer gets WorkerDied."""
        for pid in tuple(self._pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End all workers, and remove what they have left."""
        self._end_workers()
        self._end_server()
        self._held.close()

    def _start_server(self) -> None:
        self._control, theirs = socket.socketpair()
        self._text = b""
        with theirs:
            modules = os.pathsep.join(str(LocalPath(path).resolve()) for path in sys.path)
            self._server = subprocess.Popen(  # noqa: S603 # this very Python
                [sys.executable, "-P", fork_server.__file__, str(theirs.fileno()), str(self.folder)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), self._held.handle],
                env=os.environ | {"PYTHONPATH": modules, **self._variables},
            )
        self._has_no_server = False

    def _end_server(self) -> None:
        self._control.close()
        self._server.wait()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            except OSError:
                raise self._no_server() from None
        self._connections.append(ours)
        while True:
            told = self._told(None)
            if "began" in told:
                self._pids.append(told["began"])
                return

    def _end_workers(self) -> None:
        for connection in self._connections:
            connection.close()
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._connections, self._pids, self._has_failed = [], [], False

    def _death(self, number: int) -> WorkerDied:
        """What to raise for a worker that has closed its connection."""
        self._has_failed = True
        pid, until = self._pids[number], monotonic() + ENDS_WITHIN
        while pid not in self._deaths and monotonic() < until:
            self._told(until - monotonic())
        return WorkerDied(f"a worker process ended {_how(self._deaths.get(pid))}")

    def _told(self, seconds: float | None) -> _Told:
        """The next line of the server; empty = none came in time. Deaths are noted."""
        while b"\n" not in self._text:
            ready, _, _ = select.select([self._control], [], [], seconds)
            if not ready:
                return {}
            try:
                data = self._control.recv(1 << 12)
            except ConnectionResetError:  # it has left a request unread
                data = b""
            if not data:
                raise self._no_server()
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        told = json_of_text(line.decode(), _Told)
        if "died" in told:
            self._deaths[told["died"]] = told.get("status", 0)
        return told

    def _no_server(self) -> WorkerDied:
        self._has_failed = self._has_no_server = True
        return WorkerDied("the process that starts workers ended")


def _how(status: int | None) -> str:
    if status is None:
        return "without a word"
    if not os.WIFSIGNALED(status):
        return f"with exit code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    by_memory = ": the system killed it, as it does for memory" if number == signal.SIGKILL else ""
    return f"with {signal_text(number)}{by_memory}"


def _failure(frame: Frame) -> Exception:
    kind = KINDS.get(str(frame.header["kind"]))
    text = str(frame.header["text"])
    return WorkerFailed(text) if kind is None else kind(text)
