"""Put what ends a job on Spark in plain words: errors of workers and Java arrive as text."""

from __future__ import annotations

import re
import signal

from job_engine import errors
from job_engine.errors import Unreachable, WorkerDied
from querylang.errors import InputError
from querylang.printable import one_line
from spark_backend.java import MORE_MEMORY

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
_STATE = re.compile(r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_STREAMING_STATE_FILE|FAILED_TO_READ_STREAMING_STATE_FILE")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)


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
