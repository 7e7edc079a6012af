"""A deployment that runs in the background, through all changes of its queries."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from job_engine.clock import monotonic, sleep
from job_engine.errors import as_job_errors
from job_engine.job.commands.control import send_control
from job_engine.job.driver import in_words_of_driver
from job_engine.job.stages.change import has_change
from job_engine.job.stages.prepare import Job
from job_engine.job.stages.run import Run, put_away
from job_engine.job.watching.status import Status, read_status
from job_engine.job.watching.tries import told_deaths
from job_engine.sources.listing.command_folder import Outcome
from job_engine.threads import in_background

LOOK = 1.0
"""Seconds between two looks whether a run has ended."""

LOOK_FOR_CHANGES = 0.25
"""Seconds between two looks for changes of the queries."""


class Handle:
    """A deployment that runs in the background."""

    def __init__(self, job: Job, begin: Callable[[], Run], *, is_bounded: bool) -> None:
        """`begin` starts a run; it is called again after each change of the queries."""
        self._job = job
        self._begin = begin
        self._is_bounded = is_bounded
        self._has_ended = False
        self._is_stopping = False
        self._failure: Exception | None = None
        self._changing = Lock()
        self._run = begin()
        job.lock.hold_while(self._is_needed)
        if job.watch is not None:
            job.watch.hold_while(self._is_needed)
        if not is_bounded:
            in_background(self._take_changes, "ensue changes")

    def _is_needed(self) -> bool:
        return self._changing.locked() or self._run.running.is_active

    def await_termination(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most `seconds`; False = it still runs.

        Raises what ended it: an InputError in plain words if the mistake is known, else a JobError
        whose cause is the first error.
        """
        limit = None if seconds is None else monotonic() + seconds
        try:
            deployment = self._job.checked.deployment
            with as_job_errors(), told_deaths(deployment.checkpoint), in_words_of_driver(deployment):
                while not self._waited(LOOK if limit is None else limit - monotonic()):
                    if limit is not None and monotonic() >= limit:
                        return False
        except Exception:
            self._ended()
            raise
        self._ended()
        return True

    def _waited(self, seconds: float) -> bool:
        """Wait for the end of a run; False = the job continues."""
        run = self._run
        if not run.running.wait(min(seconds, LOOK)):
            return False
        with self._changing:
            if self._failure is not None:
                raise self._failure
            if self._run is not run:
                return False
            if self._is_bounded and not self._is_stopping and has_change(self._job.folder.checkpoint):
                self._again()
                return False
        return True

    def _take_changes(self) -> None:
        """Start the job again, between two micro-batches, when a change of its queries waits."""
        while not self._has_ended and self._run.running.is_active:
            sleep(LOOK_FOR_CHANGES)
            with self._changing:
                if self._is_stopping or not self._run.running.is_between_batches:
                    continue
                try:
                    if has_change(self._job.folder.checkpoint):
                        self._run.running.stop()
                        self._again()
                except Exception as error:  # noqa: BLE001 # whoever waits for the end gets it
                    self._failure = error
                    return

    def _again(self) -> None:
        """Put a run away that has ended, and start the next one."""
        put_away(self._job.checked, self._run)
        self._run = self._begin()

    @property
    def is_bounded(self) -> bool:
        """Whether it ends when all input that was there at its start has been processed."""
        return self._is_bounded

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self._is_needed()

    def stop(self) -> None:
        """Stop after what is being written; the next run continues from there."""
        self._is_stopping = True
        with self._changing:
            try:
                self._run.running.stop()
            finally:
                self._ended()

    def _ended(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        try:
            put_away(self._job.checked, self._run)
        finally:
            self._job.close()

    def control(
        self, event: str, *, at: str | None = None, wait: bool = True, seconds: float | None = None
    ) -> Outcome | None:
        """Send a control event; what became of it, None = nobody waited, or not for so long.

        at: the arrival time at which it takes place, as text; None = as soon as it is read
        seconds: how long to wait at most; None = until it is taken

        Raises InputError for one that is wrong or that no query heeds.
        """
        return send_control(self._job.checked.deployment, event, at=at, wait=wait, seconds=seconds).outcome

    def status(self) -> Status:
        """What runs, how far time has advanced, and counts of all records."""
        return read_status(self._job.checked.deployment, self._run.running.message, is_active=self.is_active)
