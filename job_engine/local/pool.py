"""The workers of a local job: started, asked, and ended; how one died is said in plain words."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import NotRequired, TypedDict

from job_engine.clock import monotonic
from job_engine.errors import KINDS, WorkerDied
from job_engine.local import fork_server
from job_engine.local.frames import Ended, Frame, Word, receive, send
from job_engine.local_path import LocalPath, open_outputs
from job_engine.sources.crash_marks import signal_text
from runtime.json_reader import json_of_text
from runtime.temporary import HeldFolder, remove_unheld

ENDS_WITHIN = 5.0
"""Seconds in which the server has to say how a worker has died."""


class WorkerFailed(RuntimeError):
    """A worker met an error that has no plain words; the text ends with its traceback."""


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
        self.folder = LocalPath(self._held.folder)
        self._variables = dict(variables or {})
        self._connections: list[socket.socket] = []
        self._pids: list[int] = []
        self._count = count
        self._has_failed = self._has_no_server = self._is_closed = False
        self._server = server_for(self._variables, self._held)

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
            self._server.end()
            self._server = server_for(self._variables, self._held)
            self._has_no_server = False
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
                failures.append(failure_of(found[number]))
        if failures:
            raise failures[0]
        return found

    def abandon(self) -> None:
        """End what workers do, from another thread: whoever waits for an answer gets WorkerDied."""
        for pid in tuple(self._pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End all workers, and remove what they have left; once is enough.

        After that the next pool may have the server.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._end_workers()
        give_back(self._server)
        self._held.close()

    def _fork(self) -> None:
        try:
            pid, connection = self._server.fork(self.folder)
        except WorkerDied:
            self._has_failed = self._has_no_server = True
            raise
        self._connections.append(connection)
        self._pids.append(pid)

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
        try:
            status = self._server.status_of(self._pids[number], ENDS_WITHIN)
        except WorkerDied as error:
            self._has_no_server = True
            return error
        return WorkerDied(f"a worker process ended {_how(status)}")


def _how(status: int | None) -> str:
    if status is None:
        return "without a word"
    if not os.WIFSIGNALED(status):
        return f"with exit code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    by_memory = ": the system killed it, as it does for memory" if number == signal.SIGKILL else ""
    return f"with {signal_text(number)}{by_memory}"


def failure_of(frame: Frame) -> Exception:
    """What a worker has raised, of a frame that says so."""
    kind = KINDS.get(str(frame.header["kind"]))
    text = str(frame.header["text"])
    return WorkerFailed(text) if kind is None else kind(text)


# The process that workers fork from, as the driver sees it. It takes a second to start. So one is
# kept when a job has ended, and the next job of this process has it, if that comes soon enough.

KEPT_FOR = 60
"""Seconds that it waits for the next job; its memory is about that of a worker."""


class _Told(TypedDict):
    """A line of the server."""

    ready: NotRequired[int]
    began: NotRequired[int]
    died: NotRequired[int]
    status: NotRequired[int]


class Server:
    """A process that workers fork from. It ends with this process.

    variables: of the environment of workers, beside those of this process
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._deaths: dict[int, int] = {}
        self._text = b""
        self._is_owed = False  # an answer that nobody has waited for
        self._surroundings, self._owner = _surroundings(), os.getpid()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 # this very Python
                [sys.executable, "-P", fork_server.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._environment(),
            )

    def serves(self, variables: Mapping[str, str]) -> bool:
        """Whether its workers have these variables, and find files and modules as this process."""
        has = self._variables == variables and self._surroundings == _surroundings()
        return has and self._owner == os.getpid()  # a fork of this process shares it

    def serve(self, held: HeldFolder, *, wait: bool = False) -> None:
        """Let a folder go with the server. Raises WorkerDied.

        wait: for its answer; it may still be loading
        """
        self._send({"serve": str(held.folder)}, [held.handle])
        self._is_owed = not wait
        if wait:
            self._answer()

    def rest(self) -> None:
        """End its workers, and wait for the next job. Raises WorkerDied."""
        self._send({"rest": KEPT_FOR}, [])
        self._answer()

    def fork(self, folder: LocalPath) -> tuple[int, socket.socket]:
        """A new worker, and the connection to it; `folder`: of its temporary files.

        Raises WorkerDied.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            with open_outputs() as outputs:
                variables = self._environment() | {"TMPDIR": str(folder)}
                self._send({"fork": variables}, [theirs.fileno(), *outputs])
            pid = self._answer()["began"]
        self._deaths.pop(pid, None)  # of an earlier process with this number
        return pid, ours

    def status_of(self, pid: int, seconds: float) -> int | None:
        """The wait status of a worker that has ended; None = not known after so long."""
        until = monotonic() + seconds
        while pid not in self._deaths and (left := until - monotonic()) > 0:
            self._told(left)
        return self._deaths.get(pid)

    def end(self) -> None:
        """End it, with the workers that are left."""
        self._control.close()
        self._process.wait()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": self._surroundings[0], **self._variables}

    def _send(self, request: Mapping[str, object], files: Sequence[int]) -> None:
        if self._is_owed:  # it reads one request at a time
            self._answer()
        line = json.dumps(request).encode() + b"\n"
        try:
            sent = socket.send_fds(self._control, [line], files)
            self._control.sendall(line[sent:])
        except OSError:
            raise _gone() from None

    def _answer(self) -> _Told:
        self._is_owed = False
        while "died" in (told := self._told(None)):
            pass
        return told

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
                raise _gone()
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        told = json_of_text(line.decode(), _Told)
        if "died" in told:
            self._deaths[told["died"]] = told.get("status", 0)
        return told


def _surroundings() -> tuple[str, str]:
    """The folders of modules, and the one that this process is in."""
    modules = os.pathsep.join(str(LocalPath(path).resolve()) for path in sys.path)
    with suppress(FileNotFoundError):
        return modules, str(LocalPath.cwd())
    return modules, ""  # it was removed


def _gone() -> WorkerDied:
    return WorkerDied("the process that starts workers ended")


_lock = Lock()
_kept: list[Server] = []
"""At most one, which no job has."""


def server_for(variables: Mapping[str, str], held: HeldFolder) -> Server:
    """The server that was kept, or a new one; `held`: a folder that goes with it."""
    with _lock:
        kept = [_kept.pop() for _ in _kept]
    for server in kept:
        if server.serves(variables):
            with suppress(WorkerDied):  # it has waited long enough, or was killed
                server.serve(held, wait=True)
                return server
        server.end()
    server = Server(variables)
    with suppress(WorkerDied):  # the first worker that is asked for finds it
        server.serve(held)
    return server


def give_back(server: Server) -> None:
    """Keep a server whose workers have ended, or end it."""
    with suppress(WorkerDied):
        server.rest()
        with _lock:
            if not _kept:
                _kept.append(server)
                return
    server.end()


@atexit.register
def _end_kept() -> None:
    for server in _kept:
        server.end()
