"""Watch a job that runs here and now, until its end or until it has to start again."""

from __future__ import annotations

from collections.abc import Callable

from job_engine.clock import monotonic, wall_seconds
from job_engine.errors import JobError, WorkerDied
from job_engine.job.checkpoint.job_folder import CONTINUES, MOST_TRIES, failed_tries, told_deaths
from job_engine.job.driver import in_words_of_driver
from job_engine.job.stages.interrupted import told_limits
from job_engine.job.stages.prepare import Job
from job_engine.job.stages.start import Handle
from job_engine.stopping import Stopped, StopRequest
from querylang.errors import EnsueError
from querylang.printable import warn

TOLERANCE = 5.0
"""Seconds. Clocks are corrected by less now and then, and Spark waits no longer than that."""


class WallClock:
    """Whether this machine's clock was set back: Spark then waits until its old time comes again.

    Compares the clock that people see with one that nobody can set.
    """

    def __init__(self, shown: Callable[[], float] = wall_seconds, steady: Callable[[], float] = monotonic) -> None:
        self._shown, self._steady = shown, steady
        self._ahead = shown() - steady()

    def set_back(self) -> float:
        """Seconds that it was set back since the last look; 0 = it was not, or hardly."""
        ahead = self._shown() - self._steady()
        back = self._ahead - ahead
        if 0 <= back < TOLERANCE:
            return 0.0  # small steps add up
        self._ahead = ahead
        return max(0.0, back)


def has_ended(job: Job, start: Callable[[Job], Handle], stop: StopRequest, clock: WallClock) -> bool:
    """Whether a run has reached its end; False = it has to be started again.

    A worker that died did so perhaps for a record: when its micro-batch is tried again, readers
    find which one.
    """
    deployment = job.checked.deployment
    try:
        deaths = told_deaths(deployment.checkpoint, told_limits(deployment))
        with deaths, in_words_of_driver(deployment), stop.noticed_at_once():
            handle = start(job)
        return _await(handle, stop, clock)
    except Stopped:  # as after a crash: the next run repeats what was begun
        return True
    except WorkerDied as error:
        if stop.is_requested or not 0 < failed_tries(deployment.checkpoint) < MOST_TRIES:
            raise
        warn(f"{str(error).partition(CONTINUES)[0]}It is tried again")
        job.close()
        return False


def _await(handle: Handle, stop: StopRequest, clock: WallClock) -> bool:
    """Wait for the end of a run; False = it has to be started again.

    A clock that was set back would let Spark wait until its next micro-batch is due by that clock.
    """
    try:
        while not stop.is_requested and not handle.await_termination(1):
            back = clock.set_back()
            if back and not handle.is_bounded:
                warn(f"the clock of this machine was set back by {back:.0f} s: the job starts again, and continues")
                handle.stop()
                return False
        if stop.is_requested:
            handle.stop()
    except JobError as error:
        if not stop.is_requested:  # Ctrl-C reaches the whole process group, the JVM included
            raise error.__cause__ or error from None
    except EnsueError:
        if not stop.is_requested:
            raise
    return True
