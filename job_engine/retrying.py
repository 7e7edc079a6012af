"""Ask again what does not answer, for as long as a job's `retry` says, and tell users of it.

Imports little, because the process that lists sources has to start fast.
"""

from __future__ import annotations

from collections.abc import Callable

from job_engine.clock import monotonic, sleep

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
