"""A Python that has loaded what workers of local jobs need, and forks one when it is asked to.

So packages and machine code of kernels are loaded once, and workers share their memory. It has no
threads, which a fork would lose. When the driver ends, however that happens, the connection is
closed: then the server ends its workers, and removes what they have left on the disk. A worker ends
with the server, too. Between two jobs it waits for the next one, for a while.

A request is a line of JSON with open files, and is answered by one line:

    {"serve": FOLDER}     the lock of the folder, which goes with the server
    {"fork": VARIABLES}   the connection of the worker, its output and errors
    {"rest": SECONDS}     so long it waits for the next job
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
from typing import Any

from job_engine.local_path import LocalPath, let_go, write_to

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


def main(control: socket.socket) -> None:
    """Serve until the driver closes the connection, or no next job comes."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with suppress(Exception):
        importlib.import_module("runtime.column_types").load_arrow_alone()
    for name in LOADED:
        with suppress(Exception):  # the worker itself will say what is wrong
            importlib.import_module(name)
    with suppress(Exception):
        importlib.import_module("runtime.compiling.compiled").load_stored()
    gc.collect()
    gc.freeze()
    connection = _serve(control)
    if connection is not None:
        from job_engine.local.worker import serve

        serve(connection)


def _serve(control: socket.socket) -> socket.socket | None:
    """Fork; gives a connection in each new process, and None at the end."""
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: set[int] = set()
    folder, seconds = "", None
    lock: list[int] = []
    while True:
        ready, _, _ = select.select([control, woken], [], [], seconds)
        if woken in ready:
            woken.recv(1 << 12)
            for pid, status in _ended(children):
                _tell(control, {"died": pid, "status": status})
        if ready and control not in ready:
            continue
        request, files = _asked(control) if ready else ({}, [])
        if not request:
            _end(children)
            if folder:
                LocalPath(folder).remove_tree()
            return None
        if "fork" in request:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (woken, waker, control):
                    end.close()
                _end_with_parent()
                return _worker(request, files)
            let_go(files)
            children.add(pid)
            _tell(control, {"began": pid})
            continue
        _end(children)
        let_go(lock)
        folder, lock, seconds = request.get("serve", ""), files, request.get("rest")
        _tell(control, {"ready": 1})


def _worker(request: dict[str, Any], files: list[int]) -> socket.socket:
    """Make this process what the driver asks for; gives its connection.

    As in the driver itself, what a package reads when it is imported stays as it was.
    """
    connection, *outputs = files
    write_to(outputs)
    os.environ.clear()
    os.environ.update(request["fork"])
    return socket.socket(fileno=connection)


def _asked(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and its files; empty = the driver has ended."""
    try:
        data, files, *_ = socket.recv_fds(control, 1 << 16, 3)
        while data and not data.endswith(b"\n"):
            more = control.recv(1 << 16)
            data = data + more if more else b""
    except ConnectionResetError:  # it has not read all that was sent
        return {}, []
    if not data:
        return {}, []
    from runtime.json_reader import json_of_text  # signals are ignored only now

    return json_of_text(data.decode(), dict[str, Any]), list(files)


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


def _end(children: set[int]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    children.clear()


def _end_with_parent() -> None:
    """Let the system end this process when the server ends, where it can."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
