"""A Python that has loaded what workers of a local job need, and forks one when it is asked to.

So packages and machine code of kernels are loaded once, and workers share their memory. It has no
threads, which a fork would lose. When the driver ends, however that happens, the connection is
closed: then the server ends its workers, and removes what they have left on the disk. A worker ends
with the server, too.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from job_engine.places.local_path import LocalPath

LOADED = (
    "job_engine.local.worker",
    "job_engine.sources.task_reading",
    "job_engine.sources.all_kinds",
    "job_engine.sinks.bucket_results",
)
"""What the first micro-batch of a job needs."""

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They reach all processes of a terminal or a service: the driver decides when workers end."""

_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG` of Linux."""


def main(control: socket.socket, folder: LocalPath) -> None:
    """Serve until the driver closes the connection.

    folder: of rows and drafts, which goes with the server
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for name in LOADED:
        with suppress(Exception):  # the worker itself will say what is wrong
            importlib.import_module(name)
    with suppress(Exception):
        importlib.import_module("runtime.compiling.compiled").load_stored()
    gc.collect()
    gc.freeze()
    connection = _serve(control, folder)
    if connection is not None:
        from job_engine.local.worker import serve

        serve(connection)


def _serve(control: socket.socket, folder: LocalPath) -> socket.socket | None:
    """Fork; gives a connection in each new process, and None when the driver has ended."""
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(1 << 12)
            for pid, status in _ended(children):
                _tell(control, {"died": pid, "status": status})
        if control not in ready:
            continue
        files = _asked(control)
        if not files:
            _end(children, folder)
            return None
        connection = socket.socket(fileno=files[0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (woken, waker, control):
                end.close()
            _end_with_parent()
            return connection
        connection.close()
        children.add(pid)
        _tell(control, {"began": pid})


def _asked(control: socket.socket) -> list[int]:
    """The connection of the worker that the driver asks for; empty = the driver has ended."""
    try:
        return list(socket.recv_fds(control, 1, 1)[1])
    except ConnectionResetError:
        return []  # it has not read all that was sent


def _ended(children: set[int]) -> list[tuple[int, int]]:
    """The workers that have ended since the last look, and their wait statuses."""
    found = []
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        children.discard(pid)
        found.append((pid, status))
    return found


def _tell(control: socket.socket, message: dict[str, int]) -> None:
    with suppress(OSError):  # the driver has ended, which the next look finds
        control.sendall(json.dumps(message).encode() + b"\n")


def _end(children: set[int], folder: LocalPath) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    folder.remove_tree()


def _end_with_parent() -> None:
    """Let the system end this process when the server ends, where it can."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), LocalPath(sys.argv[2]))
