"""Processes in the background: one compiles kernels after an answer without them or beside a job,
one archives Spark's classes after a job without an archive.

Each has the lowest priority and no terminal, prints nothing, and is the first to go if memory is
short. There is one of a kind per machine and user, by a lock that it holds until it ends. None is
started if `ENSUE_COMPILE` is set to anything but `auto`, if `CI` is set, or if what it makes could
not be kept.
"""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import time

from runtime.compiling.compiled import CompileSetting, Kernel, setting, wants_compiling
from runtime.compiling.files import can_be_stored, can_keep, digest_of_kernels, is_on_disk

AGAIN_AFTER = 3600.0
"""Seconds after which a version is tried again that is still not compiled: it may have failed."""

_COMMAND = (sys.executable, "-m", "ensue.compile_kernels")
_CLASSES = (sys.executable, "-m", "ensue.archive_classes")


def compile_for_next_time() -> None:
    """Start the process, if it is of use and wanted; never raises."""
    with suppress(OSError):
        if is_wanted(os.environ) and wants_compiling():
            start(_COMMAND, _lock_file("compile"), digest_of_kernels())


def compile_for_job() -> None:
    """Start the process beside a job, whose workers change to machine code once it is there.

    The driver runs no kernels, so one that all queries need stands for them. Never raises.
    """
    from runtime.columns.keys import group_rows

    assert isinstance(group_rows, Kernel)
    with suppress(OSError):
        if is_wanted(os.environ) and not is_on_disk(group_rows.function) and can_be_stored(group_rows.function):
            start(_COMMAND, _lock_file("compile"), digest_of_kernels())


def archive_classes_for_next_time() -> None:
    """Archive Spark's classes in a process, if a JVM was started without; never raises."""
    from spark_backend.launch.session_settings import missing_archive

    with suppress(OSError):
        file = missing_archive() if is_wanted(os.environ) else None
        if file is not None and not file.exists() and can_keep(file.parent):
            start(_CLASSES, _lock_file("classes"), file.name)


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the user has nothing against it."""
    return setting() == CompileSetting.AUTO and not environment.get("CI") and bool(sys.executable)


def start(command: Sequence[str], lock: Path, version: str) -> bool:
    """Start a command in the background, unless it runs, or was begun for this version lately.

    Returns whether it was started. A shell starts it and ends at once, so that it is nobody's
    child: whoever waits for our own children does not wait for it.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_recent = time() - os.fstat(handle).st_mtime < AGAIN_AFTER
        if os.read(handle, 100).decode(errors="replace") == version and is_recent:
            return False
        os.ftruncate(handle, 0)
        os.pwrite(handle, version.encode(), 0)
        # The command inherits the handle, and with it the lock, which is free again when it ends.
        subprocess.run(  # noqa: S603  our own module, in this Python
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"ENSUE_COMPILE": CompileSetting.NEVER},
            cwd=Path(__file__).parents[1],
            pass_fds=[handle],
            start_new_session=True,
            check=False,
        )
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _lock_file(use: str) -> Path:
    return Path(tempfile.gettempdir()) / f"ensue-{use}-{os.geteuid()}.lock"


# The priority of such a process is the lowest.

MOST_SECONDS = 900
"""Of a processor: far more than all kernels need."""


def give_way() -> None:
    """Let every other process go first, and end by itself."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
