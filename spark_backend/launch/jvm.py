"""Start the JVM of a session before Spark's packages are imported; the session takes it over.

What it prints is held back until then: a mistake of the user may end the process before.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from job_engine.durable_files import new_file
from job_engine.threads import in_background
from querylang.dataclass import dataclass
from querylang.printable import masked
from runtime.temporary import folder_of_process, handle_of_process, own_folder
from spark_backend.launch.session_settings import MASTER, is_local, settings_of_start
from spark_backend.launch.worker_python import server_folder, set_environment

# Spark's settings in a private file: every user of a machine sees command lines.

SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
"""The variable with what users want `spark-submit` to be given."""

_OPTION = "--properties-file"
_DEFAULTS = "spark-defaults.conf"


def submit_arguments(settings: Mapping[str, str], file: Path) -> list[str]:
    """Arguments of `spark-submit`, which reads the settings from this file.

    It reads one such file, so that a user's own, or Spark's defaults, come first in it; settings
    that `PYSPARK_SUBMIT_ARGS` has as options still win.
    """
    submitted = shlex.split(os.environ.get(SUBMIT_ARGS, "pyspark-shell"))
    users = Path(submitted[submitted.index(_OPTION) + 1]) if _OPTION in submitted[:-1] else _defaults()
    if _OPTION in submitted[:-1]:
        at = submitted.index(_OPTION)
        del submitted[at : at + 2]
    before = users.read_bytes() if users is not None and users.is_file() else b""
    own = "".join(f"{_escaped(key, ' :=')}={_escaped(value)}\n" for key, value in settings.items())
    with new_file(file, 0o600) as written:
        written.write(before.rstrip(b"\n") + b"\n" + own.encode("ascii"))
    return [_OPTION, str(file), *submitted]


def _defaults() -> Path | None:
    """Where Spark has its defaults; None = it is not known."""
    folder, home = os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")
    if folder:
        return Path(folder) / _DEFAULTS
    if home:
        return Path(home) / "conf" / _DEFAULTS
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent / "conf" / _DEFAULTS


def _escaped(text: str, more: str = "") -> str:
    """A text as Java's property files have it; a space at its beginning is escaped."""
    found = "".join(map(_letter, text))
    for sign in more:
        found = found.replace(sign, f"\\{sign}")
    return f"\\{found}" if found.startswith(" ") and not more else found


_NAMED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def _letter(letter: str) -> str:
    if letter in _NAMED:
        return _NAMED[letter]
    if " " <= letter <= "~":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


LONGEST_START = 60.0
"""Seconds. After this the JVM is ended, and the session starts one itself."""

_NOISE = (b"WARNING: Using incubator modules",)
"""What the JVM says of options that Spark gives it, which no user can do anything about."""

_HAND_OVER = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@dataclass(frozen=True, slots=True)
class _Started:
    """A JVM that may not be ready yet.

    place: the file that it writes when it is
    settings: what it was started with
    """

    process: subprocess.Popen[bytes]
    place: Path
    settings: Mapping[str, str]

    def connection(self) -> tuple[int, str] | None:
        """Port and secret of the JVM, when it is ready; None = it will not be."""
        until = time.monotonic() + LONGEST_START
        while not self.place.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                return None
            time.sleep(0.01)
        content = self.place.read_bytes()  # two integers of four bytes, then the secret
        return int.from_bytes(content[:4], "big"), content[8:].decode()

    def end(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        self.place.unlink(missing_ok=True)


_started: _Started | None = None


def is_given() -> bool:
    """Whether somebody has started this process together with a JVM, as `spark-submit` does."""
    return any(word in os.environ for word in _HAND_OVER)


def start_early(name: str, wanted: Mapping[str, str]) -> None:
    """Start the JVM of the session that this process will want; never raises.

    wanted: settings of the deployment
    """
    global _started  # noqa: PLW0603 # a process has one JVM
    script = _script()
    if _started is not None or script is None or is_given():
        return
    try:
        settings = settings_of_start(name, settings=wanted)
        set_environment(settings if not is_local(settings[MASTER]) else None)
        folder = server_folder()
        if folder is None:
            return
        place = folder / "connection"  # the server removes it even after a SIGKILL
        _started = _Started(_process(script, settings, place), place, settings)
    except (OSError, ValueError):  # the session says what is wrong
        return
    atexit.register(_end)


def _script() -> Path | None:
    """How Spark starts its JVM; None = Spark is not where we know it, or this is not Linux."""
    found = find_spec("pyspark")
    if sys.platform != "linux" or "SPARK_HOME" in os.environ or found is None or found.origin is None:
        return None
    script = Path(found.origin).parent / "bin" / "spark-submit"
    return script if script.exists() else None


def _process(script: Path, settings: Mapping[str, str], place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 # Spark's own script
        [script, *submit_arguments(settings, place.with_name("spark.properties"))],
        stdin=subprocess.PIPE,  # the JVM ends when it is closed
        stderr=subprocess.PIPE,
        env=os.environ
        | {
            "SPARK_CONNECT_MODE": "0",
            "TMPDIR": str(folder_of_process()),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(place),
        },
        pass_fds=[handle_of_process()],
        preexec_fn=_ignore_interrupts,  # noqa: PLW1509 # as Spark does; no other thread runs yet
    )


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group


def join(settings: Mapping[str, str]) -> None:
    """Let Spark take over the JVM if it has these settings; else Spark starts its own."""
    global _started  # it is given away
    from pyspark import SparkContext

    early, _started = _started, None
    if early is None:
        return
    has_gateway = SparkContext._gateway is not None  # noqa: SLF001 # nothing public tells
    is_alike = {**early.settings, "spark.app.name": ""} == {**settings, "spark.app.name": ""}
    try:
        connection = early.connection() if is_alike and not has_gateway else None
    except BaseException:  # a signal, while it was waited for
        early.end()
        raise
    if connection is None:
        early.end()
        return
    assert early.process.stderr is not None, "it is a pipe"
    in_background(partial(_pass_on, early.process.stderr), "ensue lines of Java")
    os.environ.update(zip(_HAND_OVER, map(str, connection), strict=True))
    try:
        SparkContext._ensure_initialized()  # noqa: SLF001 # it reads the variables
        SparkContext._gateway.proc = early.process  # type: ignore[union-attr] # noqa: SLF001 # as Spark itself does
    finally:
        for name in _HAND_OVER:
            os.environ.pop(name, None)
        early.place.unlink(missing_ok=True)


def launch(settings: Mapping[str, str]) -> None:
    """Let Spark start its JVM where none was started early; `join` comes first."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:  # noqa: SLF001 # nothing public tells
        return
    before = os.environ.get(SUBMIT_ARGS)
    folder = own_folder()
    try:
        os.environ[SUBMIT_ARGS] = shlex.join(submit_arguments(settings, folder / "spark.properties"))
        SparkContext._ensure_initialized()  # noqa: SLF001 # as the session does, but with its settings in a file
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            os.environ.pop(SUBMIT_ARGS, None)
        else:
            os.environ[SUBMIT_ARGS] = before


def _pass_on(lines: IO[bytes]) -> None:
    """What the JVM prints, from now on and what was held back."""
    for line in lines:
        if not line.startswith(_NOISE):
            _take_line(line)


def _to_standard_error(line: bytes) -> None:
    os.write(2, masked(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))


_take_line: Callable[[bytes], None] = _to_standard_error


def take_lines(take: Callable[[bytes], None]) -> None:
    """Give what the JVM prints to a function, and not to standard error."""
    global _take_line  # noqa: PLW0603 # there is one JVM
    _take_line = take


def _end() -> None:
    """The process ends without a session."""
    if _started is not None:
        _started.end()
