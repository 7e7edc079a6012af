"""What a driver does for a job: Spark is one, processes of this machine are the other.

Everything else of a job is the same for both, and does not ask which one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from job_engine.deployment import Deployment
from job_engine.errors import in_plain_words
from job_engine.setting_keys import Engine
from querylang.dataclass import dataclass

if TYPE_CHECKING:  # a driver is asked to start before all else is imported
    from job_engine.job.batch_writer import BatchWriter
    from job_engine.place import Place
    from job_engine.sinks.kinds import Sink
    from job_engine.wire.program import Program

DRIVERS = {Engine.SPARK: "spark_backend.driver", Engine.LOCAL: "job_engine.local.driver"}
"""By value of the setting `engine`: the module that has it as DRIVER."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a run has to do.

    name: of the job
    checkpoint: where it keeps what it has done
    options: `run_options`, for those who plan and read
    program: what buckets do
    sinks: begun, by name
    writer: makes visible what the buckets of a micro-batch have written
    is_bounded: the run ends when all input that is there at its start has been processed
    has_timeouts: buckets are called when a timer of theirs expires
    trigger: µs between the beginnings of two micro-batches at least
    rows: a folder where tasks put packed rows for each other; None = there is none
    continues: it follows another run of the same job, which has had the checkpoint ever since
    """

    name: str
    checkpoint: Place
    options: Mapping[str, str]
    program: Program
    sinks: Mapping[str, Sink]
    writer: BatchWriter
    is_bounded: bool
    has_timeouts: bool
    trigger: int
    rows: Path | None
    continues: bool = False


class Running(Protocol):
    """A run at work, in the background."""

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""

    @property
    def is_between_batches(self) -> bool:
        """Whether stopping it now interrupts nothing."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for input, or for the time of its next micro-batch."""

    @property
    def message(self) -> str:
        """What it does, in words."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end, at most `seconds`; False = it still runs. Raises what ended it."""

    def stop(self, may_give_up: Callable[[], bool] = ...) -> None:
        """Stop it after what is being written; returns when it has ended.

        may_give_up: whether a micro-batch that takes long may be interrupted, which is asked now
            and then; without it, it may
        """


class Machine(Protocol):
    """What runs the micro-batches of one job: a session of Spark, or processes of this machine."""

    def tasks(self, deployment: Deployment) -> int:
        """Among how many tasks a new checkpoint divides its buckets, for good."""

    def keep_tasks(self, deployment: Deployment, tasks: int) -> None:
        """Divide the buckets as the checkpoint does; another wish is reported."""

    def new_folder(self) -> Path | None:
        """A folder for rows that tasks pass to each other; None = they may not see the same one."""

    def begin(self, order: Order) -> Running:
        """Begin a run."""

    def states(self, checkpoint: Place, program: Program, buckets: list[int] | None) -> Iterator[tuple[int, bytes]]:
        """The states of buckets after the last micro-batch that is committed, one at a time.

        buckets: their numbers; None = all that have a state

        Raises InputError if they cannot be read.
        """

    def close(self) -> None:
        """End what was begun for the job alone."""


class Driver(Protocol):
    """Opens machines. Its module imports what it runs on only when it is asked to."""

    def refuse_missing(self) -> None:
        """Raise InputError where what it runs on is not installed."""

    def start_early(self, deployment: Deployment, *, runs: bool = True) -> None:
        """Begin what takes long to start, before all else is imported; never raises.

        runs: as in `open`
        """

    def find_tables(self, deployment: Deployment, given: object) -> Deployment:
        """The deployment with the places of tables that it names; raises InputError.

        given: as in `open`
        """

    def open(self, deployment: Deployment, given: object = None, *, runs: bool = True) -> Machine:
        """What the job runs on; raises InputError.

        given: a session that the user has; None = the one that exists, or a new one
        runs: whether a run begins on it; False = it is only asked
        """

    def plain_error(self, error: Exception) -> Exception:
        """An InputError in plain words for what ended a run, if known; else the error itself."""


def driver_of(deployment: Deployment) -> Driver:
    """That of the setting `engine`."""
    driver: Driver = import_module(DRIVERS[deployment.engine]).DRIVER
    return driver


def in_words_of_driver(deployment: Deployment) -> AbstractContextManager[None]:
    """As `in_plain_words`; the driver of a deployment knows how its own failures read."""
    return in_plain_words(deployment.environment, driver_of(deployment).plain_error)
