"""Put what ends a job in plain words: errors of workers and of Spark reach the driver as text."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from querylang.errors import EnsueError, FileErrors, InputError, QueryErrors
from querylang.printable import one_line

_OURS = re.compile(r"^(?:[\w.]+\.)?(?:InputError|StateError|ContainerError): (.+)$", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"Ensue cannot be imported on a Spark executor.*")
_NOT_STARTED = "Python worker failed to connect back"
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_FULL_PLACE = re.compile(r"\[Errno \d+\] (?:No space left on device|Disk quota exceeded): '([^'\n]+)'")

_STATE = re.compile(r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_STREAMING_STATE_FILE|FAILED_TO_READ_STREAMING_STATE_FILE")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)

SHORTEST_SECRET = 4
"""Characters. Shorter values are part of too many words to be replaced in any text."""


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
        return InputError(str(found[-1]).strip())
    if _FULL.search(text):
        place = _FULL_PLACE.search(text)
        return disk_full("a disk that the job writes to" if place is None else place[1])
    if _STATE.search(text):
        return _unreadable_state(text)
    if isinstance(error, OSError) and error.filename is not None:
        return InputError(f"{error.filename}: {error.strerror}")
    return error


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


def unwritable(place: Path, error: OSError) -> InputError:
    """The error for a write that the system refused."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or _FULL.search(str(error)):
        return disk_full(place)
    return InputError(f"{place}: cannot be written: {error.strerror or error}")


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
        raise plain from (None if isinstance(error, EnsueError) else error)


def without_values(text: str, environment: Mapping[str, str]) -> str:
    """The text with names of variables in place of their values."""
    for name, value in sorted(environment.items(), key=lambda item: -len(item[1])):
        if len(value) >= SHORTEST_SECRET:
            for written in (value, one_line(value)):  # messages escape what acts on a terminal
                text = text.replace(written, f"${{{name}}}")
    return text


def _without_values(error: Exception, environment: Mapping[str, str]) -> Exception:
    """The same error without secret values; errors in queries have none."""
    if not isinstance(error, InputError) or isinstance(error, QueryErrors):
        return error
    text = without_values(str(error), environment)
    if text == str(error):
        return error
    if isinstance(error, FileErrors):
        found = [(line, without_values(message, environment)) for line, message in error.found]
        return FileErrors(without_values(error.path, environment), found)
    return InputError(text)
