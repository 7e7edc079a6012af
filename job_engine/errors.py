"""What ends a job, in plain words; and asking again what does not answer."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from job_engine.clock import monotonic, sleep
from querylang.errors import (
    EnsueError,
    ExitCode,
    FileErrors,
    InputError,
    PassingError,
    QueryErrors,
    in_words,
    is_passing,
)
from querylang.printable import json_text, masked, one_line, shows
from querylang.system_errors import FULL, number_of, reason_of, refused

# Put what ends a job in plain words. What only one driver meets, that one puts in words.

_PLACE = re.compile(r"\[Errno \d+\] [\w -]+: '([^'\n]+)'")
"""Where Python says that a file is."""


class Unreachable(PassingError):
    """A broker or a storage does not answer, after it was asked for as long as `retry` says."""


class WorkerDied(PassingError):
    """A process that reads or searches ended, or had too little memory: a record may be why."""


class LostInput(InputError):
    """What a micro-batch reads, or a history reads again, no longer exists.

    what: a line about it
    way_out: what is said behind it
    """

    def __init__(self, what: str, way_out: str = "To continue without what is lost: ensue run --accept-loss") -> None:
        super().__init__(f"{what}. {way_out}")
        self.what = what


_OF_TEXTS = frozenset({errno.EMFILE, errno.ENFILE, errno.EROFS})
"""What is known wherever a text says it, that of another process too: no file causes it."""

KINDS: Mapping[str, type[InputError]] = {
    kind.__name__: kind for kind in (Unreachable, WorkerDied, PassingError, InputError)
}
"""The kinds of errors that travel as text, by their names; the first that fits names an error."""


def kind_of(error: Exception) -> type[InputError] | None:
    """As what an error travels; None = it has no plain words."""
    return next((kind for kind in KINDS.values() if isinstance(error, kind)), None)


def plain_error(error: Exception) -> Exception:
    """An InputError in plain words if it is known whatever runs; else the error itself."""
    text = str(error)
    number = number_of(error) or 0
    if isinstance(error, OSError) and error.filename is not None:
        return failed(error, f"{error.filename}: {reason_of(error)}")
    place = _PLACE.search(text)
    if number in FULL:
        return disk_full("a disk that the job writes to" if place is None else place[1])
    if number in _OF_TEXTS:
        return refused(error, "a file that the job needs" if place is None else place[1])
    return error


def disk_full(place: object) -> PassingError:
    """The error for a write that found no room."""
    return PassingError(f"{place}: the disk is full. Make room and run the job again: it continues where it stopped")


@contextmanager
def writing_to(place: object) -> Iterator[None]:
    """Raise InputError for a write that the system refuses."""
    try:
        yield
    except OSError as error:
        if number_of(error) in FULL:
            raise disk_full(place) from error
        raise failed(error, f"{place}: cannot be written: {reason_of(error)}") from error


def failed(error: OSError, text: str) -> InputError:
    """What to raise for an error of a file: Unreachable for a store that does not answer."""
    if number_of(error) in FULL and error.filename is not None:
        return disk_full(error.filename)
    if isinstance(error, ConnectionError):
        return Unreachable(text)
    return (PassingError if is_passing(error) else InputError)(text)


class JobError(EnsueError):
    """A job ended with an error that has no plain words; its cause is what was raised."""

    exit_code = ExitCode.OURS


@contextmanager
def as_job_errors() -> Iterator[None]:
    """Raise JobErrors in place of errors that are not Ensue's, without values of settings."""
    try:
        with naming_settings():
            yield
    except EnsueError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = f"the job ended with an error: {one_line(masked(lines[0]))}"
        if _tells(error):
            raise JobError(text) from None
        raise JobError(text) from error


# What reads tables names the options of commands as the ways out. A job has settings instead.

_OPTION = re.compile(r"`--([a-z-]+) ([^`]+)`")

_SETTINGS = {
    "type": "type",
    "arrival": "arrival",
    "source-time": "source_time",
    "partition-column": "partition",
    "offset-column": "offset",
    "time-unit": "time_unit",
    "time-format": "time_format",
    "csv": "csv",
}
"""Of a source, by the option that says the same."""


def as_settings(text: str) -> str:
    """The text with settings of a source in place of options."""
    return _OPTION.sub(_as_setting, text)


def _as_setting(option: re.Match[str]) -> str:
    setting, value = _SETTINGS.get(option[1]), option[2]
    if setting is None:
        return option[0]
    if setting == "csv":
        name, _, value = value.strip('"').partition("=")
        value = f"{{{name}: {value if value.isalnum() else json_text(value)}}}"
    return f"`{setting}: {value}` of the source"


@contextmanager
def naming_settings() -> Iterator[None]:
    """What is raised and warned of names settings of a source in place of options."""
    with in_words(as_settings):
        yield


@contextmanager
def in_plain_words(
    environment: Mapping[str, str], plain_error: Callable[[Exception], Exception] = plain_error
) -> Iterator[None]:
    """Raise errors as InputErrors in plain words where they are known.

    environment: values that messages must not show, by the variables that they came from
    plain_error: knows them
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
    return (kind_of(error) or InputError)(text)


# What ends a run because of a source: it is away, or what it had was removed.


class SourceProblem(Exception):
    """A source cannot be read, or not any further; the text says why, and the way out.

    is_passing: whether it may be over soon
    """

    is_passing = False


# Ask again what does not answer, for as long as a job's `retry` says, and tell users of it.
#
# Imports little, because the process that lists sources has to start fast.

RETRY = "retry"
"""The entry of a place's options that is not its store's: seconds that the store is asked again."""

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds between two attempts: each pause is twice as long as the one before."""


USUAL = 60.0
"""Seconds that a running job asks again where `retry` says nothing; at its start it asks once."""


def patience_of(retry: float | None) -> float:
    """Seconds that a running job asks again."""
    return USUAL if retry is None else retry


class OutageTooLong(Exception):
    """What does not answer has not answered for as long as it was asked."""


class Outage:
    """How long something has not answered.

    patience: seconds that it may take
    tell: takes a line at the beginning and at the end
    now, sleep: the clock, in seconds from any beginning
    """

    def __init__(
        self,
        patience: float,
        tell: Callable[[str], None],
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._patience = patience
        self._tell = tell
        self._now = now
        self._sleep = sleep
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    @property
    def is_on(self) -> bool:
        """Whether the last attempt has failed."""
        return self._since is not None

    def note(self, problem: str) -> None:
        """It does not answer; raises OutageTooLong where it is not asked again."""
        now = self._now()
        if self._since is None:
            self._since = now
            if self._patience > 0:
                self._tell(f"{problem}; it is asked again for {shown_length(self._patience)}")
        if now - self._since >= self._patience:
            reason = f"{problem} for {shown_length(self._patience)}" if self._patience > 0 else problem
            raise OutageTooLong(reason)

    def wait(self, problem: str) -> None:
        """The same, and a pause before the next attempt."""
        self.note(problem)
        self._sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def wait_for_store(self, problem: ConnectionError) -> None:
        """The same for a store's problem, which is raised after the last attempt."""
        try:
            self.wait(f"{problem.filename}: {problem.strerror}")
        except OutageTooLong as end:
            text = str(end).removeprefix(f"{problem.filename}: ")
            raise ConnectionError(problem.errno, text, problem.filename) from problem

    def over(self, what: str) -> None:
        """It answers; `what`: its name."""
        if self._since is not None:
            self._tell(f"{what} answers again, after {shown_length(self._now() - self._since)}")
        self._since, self._pause = None, FIRST_PAUSE


def shown_length(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
