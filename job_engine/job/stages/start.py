"""Start a job, and watch it: where it is, its run, and the next one after a worker has died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from job_engine.clock import monotonic, sleep, wall_seconds
from job_engine.deployment import Deployment
from job_engine.errors import JobError, WorkerDied, as_job_errors
from job_engine.job.batch_writer import BatchWriter, Reporter
from job_engine.job.checkpoint import job_folder
from job_engine.job.checkpoint.checkpoint_record import remove_old_files
from job_engine.job.commands import send_control
from job_engine.job.compilation import run_options, told_sources
from job_engine.job.driver import Order, Running, in_words_of_driver
from job_engine.job.forgotten_rows import has_requests, without_forgotten
from job_engine.job.lookup_files import LookupWatch, has_new_table, take_tables
from job_engine.job.plan_rules import said_at_start
from job_engine.job.preflight import Checked
from job_engine.job.reports import OnBatch
from job_engine.job.stages import between_batches
from job_engine.job.stages.prepare import Job
from job_engine.job.status import Status, read_status
from job_engine.local_path import LocalPath
from job_engine.place import Place, retry_of
from job_engine.sinks import run_sinks
from job_engine.sources.listing.batch_log import Batches, DamagedManifest
from job_engine.sources.listing.command_folder import Outcome
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.stopping import Stopped, StopRequest
from job_engine.threads import in_background
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program
from job_engine.wire.reports import Report
from querylang.dataclass import dataclass, replace
from querylang.errors import EnsueError
from querylang.plan.model import Plan
from querylang.printable import warn

# Start a job: a run of its driver, with the changes of the queries that wait.
#
# A micro-batch that was interrupted comes first, as `between_batches` says.


def start(job: Job, report: OnBatch, kind: RunKind) -> Handle:
    """Start a job; its end unlocks the checkpoint."""
    plan, deployment = job.checked.program.plan(), job.checked.deployment
    for remark in said_at_start(plan, deployment, is_bounded=kind.is_bounded, is_new=job.checked.is_new):
        warn(remark)
    handle = Handle(job, lambda kind: _begin(job, report, kind), kind)
    _warn_of_slow_queries(plan)
    return handle


def _begin(job: Job, report: OnBatch, kind: RunKind) -> Run:
    """Start a run, with the changes of the queries that wait."""
    deployment = job.checked.deployment
    between_batches.leave_former(deployment, job.checked.record.identity, job.lock.confirm)
    between_batches.plan_anew(job.folder, job.checked.record.identity, deployment, job.lock.confirm)
    reached = job.folder.reached()
    program = _program(job, kind, reached)
    settings = between_batches.settings_of(program, deployment)
    before = between_batches.settings_of_interrupted(deployment.checkpoint, reached.batches)
    if before is not None and (before != settings or _has_waiting(deployment)):
        old, sources = between_batches.settings_with(before, program, deployment.sources)
        repeats = replace(kind, is_bounded=True, only_repeats=True)
        _repeat(job, report, repeats, old, replace(deployment, sources=sources), reached.batches)
        reached = job.folder.reached()
        program = _program(job, kind, reached)  # no change was taken while a micro-batch was open
    between_batches.write_settings(deployment.checkpoint, settings, between_batches.limits_of(deployment))
    run = begin_run(job, report, kind, program, deployment, reached.batches)
    if job.watch is not None:
        job.watch.follow(run.running)
    return run


def _has_waiting(deployment: Deployment) -> bool:
    """Whether something is to be done that no run does while a micro-batch is open."""
    return between_batches.has_change(deployment.checkpoint) or has_requests(deployment) or has_new_table(deployment)


def _program(job: Job, kind: RunKind, reached: job_folder.Reached) -> Program:
    deployment = job.checked.deployment
    program = take_tables(between_batches.changed_program(job.checked, reached), deployment, reached, kind.accepts)
    program = without_forgotten(program, deployment, reached)
    # the wall clock says nothing about input that is already there
    return program.without_idle() if kind.is_bounded else program


def _repeat(
    job: Job, report: OnBatch, kind: RunKind, program: Program, deployment: Deployment, batches: Batches
) -> None:
    """Repeat the micro-batch that was interrupted, and wait for its end."""
    run = begin_run(job, report, kind, program, deployment, batches)
    try:
        while not run.running.wait(LOOK):  # a signal is noticed in between
            pass
    finally:
        put_away(job.checked, run)


def _warn_of_slow_queries(plan: Plan) -> None:
    """Say which queries run on the reference matcher, while the first micro-batch is planned."""
    from runtime.matching.choose import warn_if_slow

    warn_if_slow(plan, None)


# A run of the driver: how it begins, and what it leaves behind at its end.


@dataclass(frozen=True, slots=True)
class RunKind:
    """How a job runs.

    is_bounded: it ends when all input that is there at its start has been processed
    flush: then time advances until no timer is left
    accepts_loss: files that an interrupted micro-batch read may be gone or different
    accepts: names of tables that may have fewer than half of their rows
    only_repeats: it ends behind a micro-batch that was interrupted
    continues: as of `Order`
    """

    is_bounded: bool = False
    flush: bool = False
    accepts_loss: bool = False
    accepts: frozenset[str] = frozenset()
    only_repeats: bool = False
    continues: bool = False

    def settings(self, checkpoint: Place, *, has_signal: bool) -> RunSettings:
        """What the lister has to know of it."""
        if self.only_repeats:
            return RunSettings(str(checkpoint.resolve()), retry=retry_of(checkpoint), only_repeats=True)
        at_end = Signal.FLUSH if self.flush else Signal.CATCH_UP
        return RunSettings(
            str(checkpoint.resolve()),
            at_start=str(Signal.START) if has_signal else None,
            at_end=str(at_end) if self.is_bounded else None,
            retry=retry_of(checkpoint),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the driver, with what has to be put away at its end."""

    running: Running
    settings: RunSettings
    reporter: Reporter
    rows: Path | None


def begin_run(
    job: Job, report: OnBatch, kind: RunKind, program: Program, deployment: Deployment, batches: Batches
) -> Run:
    """A run of the driver; `batches`: how far the job is."""
    checkpoint, identity = deployment.checkpoint, job.checked.record.identity
    has_timeouts = program.needs_timeouts and not kind.is_bounded
    # a step of each bucket reports what became of changes, and takes over its seed: files without
    # records would end a micro-batch without one; seeds are removed once a micro-batch has ended
    has_signal = has_timeouts or bool(program.notices) or program.seeds is not None
    settings = kind.settings(checkpoint, has_signal=has_signal)
    options = run_options(
        deployment,
        program,
        settings,
        inferred=job.checked.record.schemas,
        accepts_loss=kind.accepts_loss,
        marks=job_folder.marks_of_next_run(checkpoint, batches.open),
    )
    rows = job.machine.new_folder()
    sinks = run_sinks.begin(identity, deployment.sinks, batches.begun, drafts=rows)
    reporter = Reporter()
    sources = [source.name for source in deployment.sources]
    observe = None if job.watch is None else job.watch.observe
    confirm = job.lock.confirm
    writer = BatchWriter(confirm, program, sinks, sources, identity, job.folder, rows, report, reporter, observe)
    order = Order(
        deployment.name,
        checkpoint,
        options,
        program,
        sinks,
        writer,
        kind.is_bounded,
        has_timeouts,
        deployment.trigger,
        rows,
        kind.continues,
    )
    return Run(job.machine.begin(order), settings, reporter, rows)


def put_away(ready: Checked, run: Run) -> None:
    """What a run leaves behind at its end."""
    deployment, record = ready.deployment, ready.record
    planner = InputPlanner(told_sources(deployment), run.settings)
    try:
        run.reporter.add(Report(*report) for report in planner.finish())
    except (DamagedManifest, OSError) as error:
        warn(f"files that were read are not archived or deleted: {error}")
    finally:
        remove_old_files(deployment.checkpoint, record)
        run_sinks.end(record.identity, deployment.sinks)
        run.reporter.finish()
        if run.rows is not None:
            LocalPath.of(run.rows).remove_tree()


# A deployment that runs in the background, through all changes of its queries.

LOOK = 1.0
"""Seconds between two looks whether a run has ended."""

LOOK_FOR_CHANGES = 0.25
"""Seconds between two looks for changes of the queries."""


class Handle:
    """A deployment that runs in the background."""

    def __init__(self, job: Job, begin: Callable[[RunKind], Run], kind: RunKind) -> None:
        """`begin` starts a run; it is called again after each change of the queries."""
        self._job = job
        self._begin, self._kind = begin, kind
        self._has_ended = False
        self._is_stopping = False
        self._is_awaited = False
        self._failure: Exception | None = None
        self._changing = Lock()
        self._lookups = LookupWatch(job.checked.deployment)
        self._run = begin(kind)
        job.lock.hold_while(self._is_needed)
        if job.watch is not None:
            job.watch.hold_while(self._is_needed)
        if not kind.is_bounded:
            in_background(self._take_changes, "ensue changes")

    def _is_needed(self) -> bool:
        return self._changing.locked() or self._run.running.is_active

    def await_termination(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most `seconds`; False = it still runs.

        Raises what ended it: an InputError in plain words if the mistake is known, else a JobError
        whose cause is the first error.
        """
        limit = None if seconds is None else monotonic() + seconds
        self._is_awaited = True
        try:
            with self._plain_errors():
                while not self._waited(LOOK if limit is None else limit - monotonic()):
                    if limit is not None and monotonic() >= limit:
                        return False
        except Exception:
            self._ended()
            raise
        self._ended()
        return True

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        deployment = self._job.checked.deployment
        deaths = job_folder.told_deaths(deployment.checkpoint, between_batches.told_limits(deployment))
        with as_job_errors(), deaths, in_words_of_driver(deployment):
            yield

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
            if self.is_bounded and not self._is_stopping and between_batches.has_change(self._job.folder.checkpoint):
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
                    if self._has_change():
                        # one that was given up would be repeated first, and given up again
                        self._run.running.stop(lambda: self._is_stopping)
                        self._again()
                except Exception as error:  # noqa: BLE001 # whoever waits for the end gets it
                    self._failure = error
                    break
        self._warn_of_failure()

    def _has_change(self) -> bool:
        deployment = self._job.checked.deployment
        return (
            between_batches.has_change(deployment.checkpoint) or has_requests(deployment) or self._lookups.has_change()
        )

    def _warn_of_failure(self) -> None:
        """Say what has ended the job where nobody waits for its end, as in a notebook."""
        if self._is_awaited or self._is_stopping or self._has_ended:
            return
        try:
            with self._plain_errors():
                self._waited(0)
        except Exception as error:  # noqa: BLE001 # whoever waits later gets it
            warn(f"the job '{self._job.checked.deployment.name}' has ended: {error}")

    def _again(self) -> None:
        """Put a run away that has ended, and start the next one."""
        put_away(self._job.checked, self._run)
        self._run = self._begin(replace(self._kind, continues=True))

    @property
    def is_bounded(self) -> bool:
        """Whether it ends when all input that was there at its start has been processed."""
        return self._kind.is_bounded

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
            with as_job_errors(), in_words_of_driver(self._job.checked.deployment):
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


# Watch a job that runs here and now, until its end or until it has to start again.

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
        deaths = job_folder.told_deaths(deployment.checkpoint, between_batches.told_limits(deployment))
        with deaths, in_words_of_driver(deployment), stop.noticed_at_once():
            handle = start(job)
        return _await(handle, stop, clock)
    except Stopped:  # as after a crash: the next run repeats what was begun
        return True
    except WorkerDied as error:
        if stop.is_requested or not 0 < job_folder.failed_tries(deployment.checkpoint) < job_folder.MOST_TRIES:
            raise
        warn(f"{str(error).partition(job_folder.CONTINUES)[0]}It is tried again")
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
