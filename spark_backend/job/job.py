"""Run a deployment as a Spark streaming query: in the background (`deploy`) or to its end (`run`).

A run is exactly once and restartable. Spark's checkpoint has offsets and state; files of sinks,
ledger and progress are written by micro-batch number. The record beside the checkpoint refuses to
continue with another deployment.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from querylang.errors import InputError
from querylang.logger import warn
from querylang.plan.model import Plan
from spark_backend.early_start import EarlyStart
from spark_backend.errors import in_plain_words
from spark_backend.job.batch_writer import BatchWriter
from spark_backend.job.checkpoint_record import all_sources, read_record, write_record
from spark_backend.job.checks.lost_outputs import lost_outputs
from spark_backend.job.checks.open_waits import open_waits
from spark_backend.job.file_sources.listed_sources import listed_sources
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.preflight import Checked, checked
from spark_backend.job.reporting import Reporter
from spark_backend.job.reports import BatchReport, OnBatch, RunReport, RunTotal
from spark_backend.job.run_lock import RunLock
from spark_backend.job.settings import Deployment, load_deployment
from spark_backend.job.source_streams import packed_sources
from spark_backend.job.status import Status, read_status
from spark_backend.operator.spark_operator import start_workers
from spark_backend.session import is_on_one_machine, own_session
from spark_backend.sinks.micro_batch import results_stream
from spark_backend.sources.listing.input_planner import InputPlanner, RunSettings
from spark_backend.sources.listing.manifests import DamagedManifest
from spark_backend.stopping import StopRequest
from spark_backend.wire.job_kernels import ship_kernels
from spark_backend.wire.packed_rows import Signal
from spark_backend.wire.partition_groups import shared_order
from spark_backend.wire.reports import Report
from spark_backend.wire.rows_in_files import new_folder


@dataclass(frozen=True, slots=True)
class _Job:
    """A checked deployment that can be started any number of times.

    lock: held until all its runs have ended
    """

    checked: Checked
    session: SparkSession
    lock: RunLock

    @property
    def folder(self) -> JobFolder:
        return JobFolder(self.checked.deployment.checkpoint)


class Handle:
    """A deployment that runs in the background."""

    def __init__(
        self, job: _Job, query: StreamingQuery, run: RunSettings, reporter: Reporter, rows: Path | None
    ) -> None:
        self._job = job
        self._query = query
        self._run = run
        self._reporter = reporter
        self._rows = rows
        self._has_ended = False
        job.lock.hold_while(lambda: query.isActive)

    def await_termination(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most `seconds`; False = it still runs.

        Raises what ended it, as an InputError in plain words if the mistake is known.
        """
        try:
            with in_plain_words(self._job.checked.deployment.environment):
                ended = self._query.awaitTermination(None if seconds is None else max(1, round(seconds)))
        except Exception:
            self._ended()
            raise
        if ended is not False:
            self._ended()
        return ended is not False

    def stop(self) -> None:
        """Stop after what is being written; the next run continues from there."""
        self._query.stop()
        self._ended()

    def _ended(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        deployment = self._job.checked.deployment
        planner = InputPlanner(listed_sources(all_sources(deployment), deployment.control), self._run)
        try:
            self._reporter.add(Report(*report) for report in planner.finish())
        except (DamagedManifest, OSError) as error:
            warn(f"files that were read are not archived or deleted: {error}")
        finally:
            self._job.lock.release()
            self._reporter.finish()
            if self._rows is not None:
                shutil.rmtree(self._rows, ignore_errors=True)

    def status(self) -> Status:
        """What runs, how far time has advanced, and counts of all records."""
        message = str(self._query.status["message"])
        return read_status(self._job.checked.deployment, message, is_active=self._query.isActive)


def deploy(path: Path | str, progress: OnBatch | None = None, *, accept_loss: bool = False) -> Handle:
    """Start a deployment; it runs until it is stopped.

    progress: called after each micro-batch
    accept_loss: continue without files that an interrupted micro-batch read and that have changed

    Raises InputError or QueryErrors before anything starts.
    """
    job = _prepare(path)
    try:
        with in_plain_words(job.checked.deployment.environment):
            return _start(job, progress or _ignore, _Kind(accepts_loss=accept_loss))
    except BaseException:
        job.lock.release()
        raise


def run(
    path: Path | str,
    *,
    once: bool = False,
    flush: bool = False,
    progress: OnBatch | None = None,
    accept_loss: bool = False,
) -> RunReport:
    """Run a deployment here and now, until Ctrl-C or SIGTERM. An interrupted run is continued.

    once: end when all input that is there now has been processed
    flush: then advance time until no timer is left; needs `once`
    progress: called after each micro-batch
    accept_loss: continue without files that an interrupted micro-batch read and that have changed

    Raises InputError or QueryErrors.
    """
    if flush and not once:
        raise InputError("time can only be flushed at the end of input: --flush needs --once")
    job = _prepare(path)
    total = RunTotal(job.checked.program.plan())

    def report(batch: BatchReport) -> None:
        total.add(batch)
        (progress or _ignore)(batch)

    started = time.monotonic()
    try:
        with StopRequest() as stop, in_plain_words(job.checked.deployment.environment):
            _await(_start(job, report, _Kind(is_bounded=once, flush=flush, accepts_loss=accept_loss)), stop)
        return total.report(
            job.folder.ledger.total(), time.monotonic() - started, stopped_by=stop.signal, idle=job.checked.idle
        )
    finally:
        job.lock.release()


def _ignore(_: BatchReport) -> None:
    pass


def _await(handle: Handle, stop: StopRequest) -> None:
    try:
        while not stop.is_requested and not handle.await_termination(1):
            pass
        if stop.is_requested:
            handle.stop()
    except Exception:
        if not stop.is_requested:  # Ctrl-C reaches the whole process group, the JVM included
            raise


def _prepare(path: Path | str) -> _Job:
    """Check the deployment and lock its checkpoint, then create what it needs."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        return _locked(deployment)


def _locked(deployment: Deployment) -> _Job:
    lock = JobFolder(deployment.checkpoint).lock()
    lock.refuse_if_held()
    ready = checked(deployment)  # a refused deployment creates nothing, not even the lock's file
    lock.acquire()
    try:
        has_begun = ready.is_new and read_record(deployment.checkpoint) is not None
        return _prepared(checked(deployment) if has_begun else ready, lock)
    except BaseException:
        lock.release()
        raise


def _prepared(ready: Checked, lock: RunLock) -> _Job:
    deployment = ready.deployment
    session = own_session(f"ensue {deployment.name}")
    if deployment.kernels is not None:
        ship_kernels(session, deployment.kernels)
    _start_workers(session)
    if ready.is_new:
        tasks = min(deployment.buckets, session.sparkContext.defaultParallelism)
        ready = ready.divided_among(tasks)
        write_record(deployment.checkpoint, ready.record)
    if ready.record.tasks is not None:
        session.conf.set("spark.sql.shuffle.partitions", str(ready.record.tasks))
    job = _Job(ready, session, lock)
    _warn_of_single_tasks(ready.program.plan())
    if deployment.control is not None:
        deployment.control.path.mkdir(parents=True, exist_ok=True)
    return job


_with_workers: set[str] = set()
"""The applications of Spark whose Python workers have been started."""


def _start_workers(session: SparkSession) -> None:
    """Once per application, while the query is planned."""
    application = session.sparkContext.applicationId
    if is_on_one_machine(session) and application not in _with_workers:
        _with_workers.add(application)
        EarlyStart(lambda: start_workers(session))


def _warn_of_single_tasks(plan: Plan) -> None:
    """Say which queries do not get faster with more buckets and cores."""
    for query in plan.queries:
        order = shared_order(query)
        if order is not None:
            warn(f"query {query.title}: {order}, runs as one task")


def _warn_of_slow_queries(plan: Plan) -> None:
    """Say which queries run on the reference matcher, while Spark plans the first micro-batch."""
    from runtime.matching.choose import slow_queries

    for line in slow_queries(plan):
        warn(line)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a job runs.

    is_bounded: it ends when all input that is there at its start has been processed
    flush: then time advances until no timer is left
    accepts_loss: files that an interrupted micro-batch read may be gone or different
    """

    is_bounded: bool = False
    flush: bool = False
    accepts_loss: bool = False

    def settings(self, checkpoint: Path, *, has_timeouts: bool) -> RunSettings:
        """What the lister has to know of it."""
        at_end = Signal.FLUSH if self.flush else Signal.CATCH_UP
        return RunSettings(
            str(checkpoint.resolve()),
            at_start=str(Signal.START) if has_timeouts else None,
            at_end=str(at_end) if self.is_bounded else None,
        )


def _start(job: _Job, report: OnBatch, kind: _Kind) -> Handle:
    """Start a run; its end unlocks the checkpoint."""
    session, deployment, program = job.session, job.checked.deployment, job.checked.program
    plan = program.plan()
    for warning in (*lost_outputs(plan, deployment), *(() if kind.is_bounded else open_waits(plan, deployment))):
        warn(warning)
    if kind.is_bounded:
        # the wall clock says nothing about input that is already there
        program = program.without_idle()
    # Otherwise a bounded run never ends: with a timeout Spark always sees one more empty batch.
    has_timeouts = program.needs_timeouts and not kind.is_bounded
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(has_timeouts).lower())
    run_settings = kind.settings(deployment.checkpoint, has_timeouts=has_timeouts)
    rows = new_folder(session)
    packed = packed_sources(session, deployment, program, run_settings, accepts_loss=kind.accepts_loss, folder=rows)
    identity = job.checked.record.identity
    results = results_stream(packed, program, deployment.sinks, identity)
    writer = results.writeStream.queryName(deployment.name).outputMode("append")
    writer = writer.option("checkpointLocation", str(deployment.checkpoint.resolve()))
    if kind.is_bounded:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{deployment.trigger // 1000} milliseconds")
    reporter = Reporter()
    sources = [source.name for source in deployment.sources]
    batches = BatchWriter(program, deployment.sinks, sources, identity, job.folder, rows, report, reporter)
    handle = Handle(job, writer.foreachBatch(batches.write).start(), run_settings, reporter, rows)
    _warn_of_slow_queries(program.plan())
    return handle
