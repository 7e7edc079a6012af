"""Put what ends a job on Spark in plain words: errors of workers and Java arrive as text."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from job_engine import errors
from job_engine.errors import KINDS, WorkerDied
from querylang.errors import InputError, PassingError
from querylang.printable import one_line

# Refuse a Java that cannot run Spark in one line, before Spark prints many.

OLDEST = 17
"""The oldest version of Java that this Spark runs on."""

FEWEST_FILES = 300
"""Open files: of Spark's archives alone there are three hundred."""

MORE_MEMORY = (
    "Choose how much memory Java gets: `spark: {driver_memory: 4g}` in the deployment file, elsewhere"
    ' PYSPARK_SUBMIT_ARGS="--driver-memory 4g pyspark-shell"'
)

LESS_MEMORY = (
    "The system gives Java less than that: raise the limit (`ulimit -v`), or choose less,"
    " `spark: {driver_memory: 1g}` in the deployment file, elsewhere"
    ' PYSPARK_SUBMIT_ARGS="--driver-memory 1g pyspark-shell"'
)

_WAY_OUT = (
    f"Spark needs Java {OLDEST} or later. Install one (on Debian `apt-get install openjdk-17-jre-headless`)"
    " or set JAVA_HOME to it; `ensue run --engine local` and `ensue replay` need no Java"
)
_OPTIONS = ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables by which users give options to Java."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)|JAVA_VERSION="(?:1\.)?(\d+)')
_MEMORY = re.compile(r"--driver-memory[ =](\w+)|spark\.driver\.memory=(\w+)")
_NOT_RESERVED = re.compile(r"Could not (?:reserve|allocate)")
_NO_ROOM = re.compile(r"System memory \d+ must be at least \d+")
LONGEST_ANSWER = 20
"""Seconds."""


def refuse_unusable_java(memory: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise InputError if there is no Java, an old one, or one that does not start.

    memory: of the JVM, such as `2g`, unless the user chose another
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # Java raises its limit up to that
    if allowed != resource.RLIM_INFINITY and allowed < FEWEST_FILES:
        raise InputError(
            f"Spark has some hundreds of files open, and the system allows {allowed}: allow more, such as"
            " `ulimit -n 65536`, or `LimitNOFILE=65536` of a service"
        )
    program = _program(environment)
    version = _version(program)
    if version is not None and version < OLDEST:
        raise InputError(f"{program} is Java {version}, which is too old: {_WAY_OUT}")
    if _may_lack_memory(environment):
        _refuse_failing(program, memory, environment)


def _program(environment: Mapping[str, str]) -> str:
    """The program that Spark's scripts would start."""
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise InputError(f"JAVA_HOME is {home!r}, where there is no bin/java: {_WAY_OUT}")
        return str(program)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is None:
        raise InputError(f"no Java was found: {_WAY_OUT}")
    return found


def _version(program: str) -> int | None:
    """The version of Java, from the file beside it or from Java itself; None = it does not say."""
    release = Path(program).resolve().parent.parent / "release"
    try:
        text = release.read_text(errors="replace") if release.is_file() else _run([program, "-version"])[1]
    except OSError as error:
        raise InputError(f"{program}: cannot be run: {error.strerror}. {_WAY_OUT}") from error
    found = _VERSION.search(text)
    return None if found is None else int(found[1] or found[2])


def _may_lack_memory(environment: Mapping[str, str]) -> bool:
    """Whether to try Java first: that takes a twentieth of a second, so not always."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY or any(map(environment.get, _OPTIONS))


def _refuse_failing(program: str, memory: str, environment: Mapping[str, str]) -> None:
    """Raise InputError if Java does not start with so much memory."""
    chosen = _MEMORY.findall(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    size = next(filter(None, chosen[-1])) if chosen else memory
    code, text = _run([program, f"-Xmx{size}", "-version"])
    if code:
        # Java says which variables it read before it says what is wrong.
        lines = [line for line in text.splitlines() if line and not line.startswith(("Picked up", "NOTE:"))]
        way_out = LESS_MEMORY if _NOT_RESERVED.search(text) else MORE_MEMORY
        raise InputError(f"Java does not start: {one_line(' '.join(lines[:2]))}. {way_out}")


def _run(command: list[str]) -> tuple[int, str]:
    """The exit code, and all that was printed."""
    done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_ANSWER)  # noqa: S603  the user's Java
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


@contextmanager
def start_in_plain_words() -> Iterator[None]:
    """Raise InputError if the JVM of a new session does not start."""
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise PassingError(f"Java ended while Spark started; the lines above say why. {MORE_MEMORY}") from error
    except Exception as error:
        found = _NO_ROOM.search(str(error))
        if found is None:
            raise
        raise InputError(f"Java has too little memory for Spark: {found[0]} bytes. {MORE_MEMORY}") from error


_OURS = re.compile(rf"^(?:[\w.]+\.)?({'|'.join(KINDS)}|StateError|ContainerError): (.+)$", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"Ensue cannot be imported on a Spark executor.*")
_NOT_STARTED = "Python worker failed to connect back"
_NO_MEMORY = "java.lang.OutOfMemoryError"
_JAVA_ENDED = ("Py4JNetworkError", "ConnectionRefusedError")
_CRASHED = "Python worker exited unexpectedly"
_FATAL = re.compile(r"Fatal Python error: ([^\n]+)")
_EXIT_BY_MEMORY = re.compile(r"exit(?:ed with)? (?:code|status):? ?137|OOMKilled")
_OUT_OF_MEMORY = re.compile(r"^(?:pyarrow\.lib\.Arrow)?MemoryError\b", re.MULTILINE)
_NOTHING = re.compile(r"terminated with exception:\s+SQLSTATE")
_STATE = re.compile(r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_STREAMING_STATE_FILE|FAILED_TO_READ_STREAMING_STATE_FILE")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)


def plain_error(error: Exception) -> Exception:
    """An InputError in plain words if the mistake is known, else the error itself."""
    text = str(error)
    missing = _NOT_INSTALLED.search(text)
    if missing is not None:
        return InputError(missing[0])
    if _NOT_STARTED in text:
        return PassingError(
            "a Python worker of Spark did not start in time: the machine is overloaded."
            " Run the job again: it continues where it stopped"
        )
    found = _OURS.findall(text)
    if found:
        kind, line = found[-1]
        return KINDS.get(kind, InputError)(str(line).strip())
    if _NO_MEMORY in text:
        return PassingError(f"Java has too little memory for this job. {MORE_MEMORY}")
    if type(error).__name__ in _JAVA_ENDED:
        return PassingError(f"Java ended before the job did; the system may have killed it for memory. {MORE_MEMORY}")
    if _CRASHED in text or (_NOTHING.search(text) and "java.io.EOFException" in getattr(error, "_stackTrace", "")):
        return WorkerDied(f"a Python process of Spark ended {_death(text)}")
    if _OUT_OF_MEMORY.search(text):
        return WorkerDied("a Python process of Spark had too little memory")
    plain = errors.plain_error(error)
    return _unreadable_state(text) if plain is error and _STATE.search(text) else plain


def _death(text: str) -> str:
    """How a process ended, as far as the error of Spark says it."""
    if _EXIT_BY_MEMORY.search(text):
        return "with exit code 137: the system killed it, as it does for memory"
    fatal = _FATAL.search(text)
    if fatal is None:
        return "without a word, as one does that is killed"
    numbers = {signal.strsignal(number): int(number) for number in signal.Signals}
    number = numbers.get(fatal[1].strip())
    return f"with {fatal[1].strip()}" if number is None else f"with signal {number} ({fatal[1].strip()})"


def _unreadable_state(text: str) -> InputError:
    """The error for Spark's files of the state that are damaged or missing."""
    causes = _CAUSE.findall(text)
    reason = f": {one_line(causes[-1])}" if causes else ""
    return InputError(
        f"the state in the checkpoint cannot be read{reason}. Restore the whole checkpoint from a copy, or choose"
        " another one"
    )
