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
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from querylang.errors import InputError, listed
from runtime.temporary import folder_of_process, handle_of_process, own_folder
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
    folder = own_folder()
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
            env=OF_WORKERS | _OF_SPARK | os.environ | own | {"TMPDIR": str(folder_of_process())},
            pass_fds=[listener.fileno(), handle_of_process()],
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


# Refuse a session whose local workers run a Python without our packages, in one line.

NEEDED = ("numpy", "pandas", "pyarrow", "numba")
"""What workers import; Ensue itself is on their path."""

LONGEST_ANSWER = 20
"""Seconds."""

_ASK = "import importlib.util, sys; print(*sys.version_info[:2], *[n for n in sys.argv[1:] if not importlib.util.find_spec(n)])"

_WAY_OUT = (
    "Before the session is made, let its workers run this Python:"
    ' os.environ["PYSPARK_PYTHON"] = sys.executable. A session that `ensue` starts does so'
)


@cache
def refuse_other_python(program: str) -> None:
    """Raise InputError if a program that workers run as Python cannot run them.

    program: as the session has it, a path or a name
    """
    found = shutil.which(program)
    if found is None:
        raise InputError(f"this session's workers run {program!r}, which does not exist. {_WAY_OUT}")
    if found == sys.executable:
        return
    problem = _problem(found)
    if problem is not None:
        raise InputError(f"this session's workers run {found!r}, which {problem}. {_WAY_OUT}")


def _problem(program: str) -> str | None:
    """Why this Python cannot run workers; None = it can, or it did not say."""
    try:
        answer = subprocess.run(  # noqa: S603 # the program that Spark would run
            [program, "-c", _ASK, *NEEDED], capture_output=True, text=True, timeout=LONGEST_ANSWER, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    major, minor, *missing = answer.stdout.split() if answer.returncode == 0 else ["", ""]
    if not major:
        return None
    if (int(major), int(minor)) != sys.version_info[:2]:
        return f"is Python {major}.{minor}, while this one is {sys.version_info[0]}.{sys.version_info[1]}"
    return f"has no {listed(missing)}" if missing else None
