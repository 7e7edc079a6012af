"""The machine of local jobs: a thread that runs micro-batches, and the workers of its pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from job_engine.deployment import Deployment
from job_engine.job.checkpoint.locks import being_read
from job_engine.job.driver import Order
from job_engine.local.buckets import Workers
from job_engine.local.run import PACE, LocalRun, Pace
from job_engine.local.run_log import RunLog
from job_engine.local_path import LocalPath, own_folder
from job_engine.operator.bucket_state import read_seed
from job_engine.place import Place
from job_engine.threads import in_background
from job_engine.wire.program import Program

PATIENCE = 10.0
"""Seconds that a stop waits for the end of a micro-batch."""

LOOK = 1.0
"""Seconds between two looks whether it still has to wait for that end."""


class LocalRunning:
    """A run in a thread of this process; see `Running`."""

    def __init__(self, run: LocalRun, abandon: Callable[[], None]) -> None:
        """`abandon`: ends what workers do, so that the run fails."""
        self._run = run
        self._abandon = abandon
        self._is_abandoned = False
        self._failure: BaseException | None = None
        self._thread = in_background(self._work, "ensue job")

    def _work(self) -> None:
        try:
            self._run.run()
        except BaseException as error:  # noqa: BLE001 # whoever waits for the end gets it
            self._failure = None if self._is_abandoned else error

    @property
    def is_active(self) -> bool:
        """As `Running.is_active`."""
        return self._thread.is_alive()

    @property
    def is_between_batches(self) -> bool:
        """Always: it is stopped behind the micro-batch that is at work."""
        return True

    @property
    def is_idle(self) -> bool:
        """As `Running.is_idle`."""
        return self._run.is_waiting

    @property
    def message(self) -> str:
        """As `Running.message`."""
        return "Waiting for data to arrive" if self._run.is_waiting else "Processing new data"

    def wait(self, seconds: float | None = None) -> bool:
        """As `Running.wait`."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, may_give_up: Callable[[], bool] = lambda: True) -> None:
        """As `Running.stop`; a micro-batch that takes long is given up, and is repeated later."""
        self._run.stop()
        while self._thread.is_alive() and not may_give_up():
            self._thread.join(LOOK)
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._is_abandoned = True
            self._abandon()
            self._thread.join()


class LocalMachine:
    """The workers of one job; see `Machine`.

    pool: None = there are none, as no run begins
    pace: of its runs
    """

    def __init__(self, pool: Workers | None, pace: Pace = PACE) -> None:
        self._pool = pool
        self.pace = pace

    @property
    def pool(self) -> Workers:
        """The workers."""
        assert self._pool is not None, "it was opened for runs"
        return self._pool

    def tasks(self, deployment: Deployment) -> int:  # noqa: ARG002
        """One: whoever has a bucket is decided anew in each run."""
        return 1

    def keep_tasks(self, deployment: Deployment, tasks: int) -> None:
        """Nothing depends on it."""

    def new_folder(self) -> LocalPath:
        """As `Machine.new_folder`."""
        return own_folder(self.pool.folder)

    def begin(self, order: Order) -> LocalRunning:
        """As `Machine.begin`."""
        return LocalRunning(LocalRun(order, self.pool, self.pace), self.pool.abandon)

    def states(
        self,
        checkpoint: Place,
        program: Program,  # noqa: ARG002 # buckets are known by their own numbers
        buckets: list[int] | None,
    ) -> Iterator[tuple[int, bytes]]:
        """As `Machine.states`."""
        saved = RunLog(checkpoint).committed()
        while saved is not None:
            folder = RunLog(checkpoint).states_of(saved.number)
            with being_read(folder):
                newest = RunLog(checkpoint).committed()
                if newest == saved:  # who runs the job removes nothing of it from now on
                    for bucket in sorted(saved.buckets if buckets is None else set(buckets) & set(saved.buckets)):
                        yield bucket, read_seed(folder, bucket)
                    return
            saved = newest

    def close(self) -> None:
        """As `Machine.close`."""
        if self._pool is not None:
            self._pool.close()
