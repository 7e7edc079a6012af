"""Start the fork server of this process, and give the program that stands for Python.

On Linux only: elsewhere packages must not be loaded before a fork.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from spark_backend.launch import fork_server, forked_python
from spark_backend.launch.session_settings import OF_WORKERS

ROOT = Path(__file__).resolve().parents[2]

_OF_SPARK = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""What Spark sets for its workers, unless the environment has it."""

_program: str | None = None


def worker_python() -> str:
    """What Spark is to start as Python: one that forks from a server, or this process's own."""
    global _program  # noqa: PLW0603 # one server per process
    if _program is None or not os.access(_program, os.X_OK):
        _program = sys.executable
        if sys.platform == "linux" and "SPARK_HOME" not in os.environ:
            with suppress(OSError):
                _program = _started()
    return _program


def is_worker_python(program: str) -> bool:
    """Whether this is what `worker_python` gave."""
    return program == _program


def server_folder() -> Path | None:
    """A private folder that is removed however this process ends; None = no server."""
    return None if worker_python() == sys.executable else Path(worker_python()).parent


def _started() -> str:
    folder = Path(tempfile.mkdtemp(prefix="ensue-python-"))
    program, place = folder / "python", folder / "socket"
    client = [sys.executable, "-I", "-S", forked_python.__file__, str(place), sys.executable]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    if not os.access(program, os.X_OK):  # a folder for temporary files may forbid programs
        shutil.rmtree(folder)
        return sys.executable
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "YES"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)  # whoever asks while the server still loads has to wait
        server = subprocess.Popen(  # noqa: S603 # our own module, in this Python
            [sys.executable, "-P", fork_server.__file__, str(place), str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=OF_WORKERS | _OF_SPARK | os.environ | own,
            pass_fds=[listener.fileno()],
        )
    atexit.register(_end, server, folder)
    return str(program)


def _end(server: subprocess.Popen[bytes], folder: Path) -> None:
    """The server ends when its standard input does; Pythons that it has forked are the JVM's."""
    if server.stdin is not None:
        server.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)


def set_environment(of_cluster: Mapping[str, str] | None = None) -> None:
    """Say in the environment what the JVM starts as Python: workers need this one's packages.

    of_cluster: the settings of a session whose executors are on other machines: their Python is
        the one that the user names, or else they have this one's path. None = all is local
    """
    program = worker_python()
    if os.environ.get("PYSPARK_DRIVER_PYTHON") in {None, sys.executable}:
        os.environ["PYSPARK_DRIVER_PYTHON"] = program
    if of_cluster is None:
        os.environ["PYSPARK_PYTHON"] = program
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    elif "spark.pyspark.python" in of_cluster:
        os.environ["PYSPARK_PYTHON"] = of_cluster["spark.pyspark.python"]
    elif os.environ.get("PYSPARK_PYTHON") in {None, program}:
        os.environ["PYSPARK_PYTHON"] = sys.executable
