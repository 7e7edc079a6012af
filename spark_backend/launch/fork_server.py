"""A Python that has loaded what Spark's Pythons need, and forks one whenever the JVM asks for one.

A job starts six Pythons one after another, and each one imports for a fifth to a half of a second.
The server imports once, while the JVM starts. It ends when the process that started it ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from querylang.dataclass import dataclass
from runtime.json_reader import DamagedJson, json_of_text

RUN = ("pyspark.sql.streaming.python_streaming_source_runner",)
"""Modules that are run as programs: what they import is loaded, they themselves are not."""

LOADED = (
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming",
    "spark_backend.source_stream",
    "job_engine.sources.task_reading",
    "job_engine.sources.all_kinds",
    "job_engine.sinks.bucket_results",
)

READ_AT_START = (
    "ARROW_", "ENSUE_COMPILE", "HOME", "LANG", "LC_", "LD_", "MALLOC_", "MKL_", "NPY_", "NUMBA_", "NUMPY_", "OMP_",
    "OPENBLAS_", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONUTF8", "PYTHONWARNINGS", "XDG_",
)  # fmt: skip
"""Beginnings of the names of variables that act only when a Python or a package is loaded."""

MOST_BYTES = 16 << 20
"""Of a request: arguments and variables of the environment."""

LONGEST_START = 60.0
"""Seconds that a JVM takes to start, at most."""

LONGEST_REQUEST = 5.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What a process is to be.

    arguments: a module and its arguments
    files: standard input, output and error
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    files: list[int]
    connection: socket.socket


class _PlainRequest(TypedDict):
    arguments: list[str]
    environment: dict[str, str]
    folder: str


def main(place: Path, listener: socket.socket) -> None:
    """Serve until the standard input is closed; `place`: the socket's, in a folder of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the driver, and the driver all others
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    request = _serve(listener, place)
    if request is not None:
        _run(request)


def _load() -> None:
    for name in (*LOADED, *RUN):
        with suppress(Exception):  # the process itself will say what is wrong
            importlib.import_module(name)
    for name in RUN:
        sys.modules.pop(name, None)
    gc.collect()
    gc.freeze()


def _serve(listener: socket.socket, place: Path) -> _Request | None:
    """Fork; gives the request in each new process, and None when the driver has ended."""
    while True:
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in ready and not os.read(0, 1):
            _end(place.parent)
            return None
        if listener.fileno() in ready:
            request = _accepted(listener)
            if request is None:
                continue
            with suppress(OSError):
                if os.fork() == 0:
                    listener.close()
                    return request
            for file in request.files:
                os.close(file)
            request.connection.close()


def _end(folder: Path) -> None:
    """Remove the folder. A JVM that still starts would run for ever if it could not write there.

    So where the driver was killed, and has not removed the folder itself, only what is in it goes
    at once: the JVM writes, finds that the driver has ended, and ends.
    """
    settings = list(folder.glob("*.properties"))
    if not settings:  # no JVM was started
        shutil.rmtree(folder, ignore_errors=True)
        return
    for file in (*settings, folder / "python", folder / "socket"):
        with suppress(OSError):
            file.unlink()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)  # nobody shall wait for what this process still writes
    until = time.monotonic() + LONGEST_START
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def _accepted(listener: socket.socket) -> _Request | None:
    """None = whoever asked has to help itself."""
    connection, _ = listener.accept()
    files: list[int] = []
    try:
        connection.settimeout(LONGEST_REQUEST)
        header, files, _, _ = socket.recv_fds(connection, 4, 3)
        body = bytearray()
        size = int.from_bytes(header, "big")
        if size > MOST_BYTES:
            raise ConnectionError
        while len(body) < size:
            part = connection.recv(1 << 16)
            if not part:
                raise ConnectionError
            body += part
        plain = json_of_text(bytes(body), _PlainRequest)
        if len(files) == 3 and _is_alike(plain["environment"]):
            connection.settimeout(None)
            return _Request(plain["arguments"], plain["environment"], plain["folder"], files, connection)
    except (OSError, ValueError, DamagedJson):
        pass
    for file in files:
        os.close(file)
    connection.close()
    return None


def _is_alike(environment: dict[str, str]) -> bool:
    """Whether a Python that starts with these variables would load the same as this one."""
    return all(os.environ.get(name) == value for name, value in environment.items() if name.startswith(READ_AT_START))


def _run(request: _Request) -> None:
    """Be the process that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(request.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    paths = [request.folder, *filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:] = dict.fromkeys([*paths, *sys.path])
    module, *_ = sys.argv = request.arguments
    request.connection.sendall(b"1")
    # Whoever asked waits until the connection is closed: when this process ends.
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
