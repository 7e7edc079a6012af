"""Put what ends a job in plain words: errors of workers and of Spark reach the driver as text."""

from __future__ import annotations

import errno
import re
import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from querylang.errors import EnsueError, FileErrors, InputError, QueryErrors
from querylang.masking import masked, shows
from querylang.printable import one_line

_OURS = re.compile(r"^(?:[\w.]+\.)?(InputError|StateError|ContainerError|Unreachable): (.+)$", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"Ensue cannot be imported on a Spark executor.*")
_NOT_STARTED = "Python worker failed to connect back"
_NO_MEMORY = "java.lang.OutOfMemoryError"
_JAVA_ENDED = ("Py4JNetworkError", "ConnectionRefusedError")
_CRASHED = "Python worker exited unexpectedly"
_FATAL = re.compile(r"Fatal Python error: ([^\n]+)")
_EXIT_BY_MEMORY = re.compile(r"exit(?:ed with)? (?:code|status):? ?137|OOMKilled")
_OUT_OF_MEMORY = re.compile(r"^(?:pyarrow\.lib\.Arrow)?MemoryError\b", re.MULTILINE)
_NOTHING = re.compile(r"terminated with exception:\s+SQLSTATE")
FULL = re.compile(r"No space left on device|Disk quota exceeded")
_FULL_PLACE = re.compile(r"\[Errno \d+\] (?:No space left on device|Disk quota exceeded): '([^'\n]+)'")

_STATE = re.compile(r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_STREAMING_STATE_FILE|FAILED_TO_READ_STREAMING_STATE_FILE")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)

MORE_MEMORY = 'Choose how much memory Java gets: PYSPARK_SUBMIT_ARGS="--driver-memory 4g pyspark-shell"'

LESS_MEMORY = (
    "The system gives Java less than that: raise the limit (`ulimit -v`), or choose less,"
    ' PYSPARK_SUBMIT_ARGS="--driver-memory 1g pyspark-shell"'
)


class Unreachable(InputError):
    """A broker or a storage does not answer, after it was asked for as long as `retry` says."""

    exit_code = 4


class WorkerDied(InputError):
    """A process that reads or searches ended, or had too little memory: a record may be why."""


def plain_error(error: Exception) -> Exception:
    """An InputError in plain words if the mistake is known, else the error itself."""
    text = str(error)
    missing = _NOT_INSTALLED.search(text)
    if missing is not None:
        return InputError(missing[0])
    if _NOT_STARTED in text:
        return InputError(
            "a Python worker of Spark did not start in time: the machine is overloaded."
            " Run the job again: it continues where it stopped"
        )
    found = _OURS.findall(text)
    if found:
        kind, line = found[-1]
        return (Unreachable if kind == "Unreachable" else InputError)(str(line).strip())
    if _NO_MEMORY in text:
        return InputError(f"Java has too little memory for this job. {MORE_MEMORY}")
    if type(error).__name__ in _JAVA_ENDED:
        return InputError(f"Java ended before the job did; the system may have killed it for memory. {MORE_MEMORY}")
    if _CRASHED in text or (_NOTHING.search(text) and "java.io.EOFException" in getattr(error, "_stackTrace", "")):
        return WorkerDied(f"a Python process of Spark ended {_death(text)}")
    if _OUT_OF_MEMORY.search(text):
        return WorkerDied("a Python process of Spark had too little memory")
    if FULL.search(text):
        place = _FULL_PLACE.search(text)
        return disk_full("a disk that the job writes to" if place is None else place[1])
    if _STATE.search(text):
        return _unreadable_state(text)
    if isinstance(error, OSError) and error.filename is not None:
        return failed(error, f"{error.filename}: {error.strerror}")
    return error


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


def disk_full(place: object) -> InputError:
    """The error for a write that found no room."""
    return InputError(f"{place}: the disk is full. Make room and run the job again: it continues where it stopped")


@contextmanager
def writing_to(place: object) -> Iterator[None]:
    """Raise InputError for a write that the system refuses."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or FULL.search(str(error)):
            raise disk_full(place) from error
        raise failed(error, f"{place}: cannot be written: {error.strerror or error}") from error


def failed(error: OSError, text: str) -> InputError:
    """What to raise for an error of a file: Unreachable for a store that does not answer."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is not None:
        return disk_full(error.filename)
    return (Unreachable if isinstance(error, ConnectionError) else InputError)(text)


class JobError(EnsueError):
    """A job ended with an error that has no plain words; its cause is what Spark raised."""


@contextmanager
def as_job_errors() -> Iterator[None]:
    """Raise JobErrors in place of errors that are not Ensue's, without values of settings."""
    try:
        yield
    except EnsueError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = f"the job ended with an error of Spark: {one_line(masked(lines[0]))}"
        if _tells(error):
            raise JobError(text) from None
        raise JobError(text) from error


@contextmanager
def in_plain_words(environment: Mapping[str, str]) -> Iterator[None]:
    """Raise errors as InputErrors in plain words where they are known.

    environment: values that messages must not show, by the variables that they came from
    """
    try:
        yield
    except Exception as error:
        plain = _without_values(error if isinstance(error, EnsueError) else plain_error(error), environment)
        if plain is error:
            raise
        raise plain from (None if isinstance(error, EnsueError) or _tells(error, environment) else error)


def _tells(error: Exception, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a traceback would show a value."""
    return shows("".join(traceback.format_exception(error)), environment)


def _without_values(error: Exception, environment: Mapping[str, str]) -> Exception:
    """The same error without secret values; errors in queries have none."""
    if not isinstance(error, InputError) or isinstance(error, QueryErrors):
        return error
    text = masked(str(error), environment)
    if text == str(error):
        return error
    if isinstance(error, FileErrors):
        found = [(line, masked(message, environment)) for line, message in error.found]
        return FileErrors(masked(error.path, environment), found)
    kinds = [kind for kind in (Unreachable, WorkerDied) if isinstance(error, kind)]
    return kinds[0](text) if kinds else InputError(text)
