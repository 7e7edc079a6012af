"""Run a deployment as a Spark streaming query: in the background (`deploy`) or to its end (`run`).

A run is exactly once and restartable. Spark's checkpoint has offsets and state; files of sinks,
ledger and progress are written by micro-batch number. The record beside the checkpoint refuses to
continue with another deployment.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from querylang.errors import InputError
from querylang.plan.model import Plan
from spark_backend.durable_files import write_durably
from spark_backend.errors import in_plain_words
from spark_backend.job.batch_writer import BatchWriter
from spark_backend.job.checkpoint_record import read_record, write_record
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.preflight import Checked, checked
from spark_backend.job.progress import JobProgress
from spark_backend.job.reporting import Reporter
from spark_backend.job.reports import BatchReport, OnBatch, RunReport, RunTotal
from spark_backend.job.run_lock import RunLock
from spark_backend.job.settings import Deployment, load_deployment
from spark_backend.job.source_streams import packed_sources
from spark_backend.job.status import Status, read_status
from spark_backend.operator.spark_operator import tagged_stream
from spark_backend.session import own_session
from spark_backend.sources.signals import signal_file
from spark_backend.stopping import StopRequest
from spark_backend.wire.packed_rows import Signal
from spark_backend.wire.partition_groups import shared_order


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

    @property
    def held(self) -> int:
        """Number of records that slower sources hold back."""
        found = self.folder.progress.latest()
        return 0 if found is None else JobProgress.from_plain(found[1]["progress"]).held

    def send(self, signal: Signal) -> None:
        """Signal every bucket, once."""
        write_durably(signal_file(self.folder.signals, signal), signal)


class Handle:
    """A deployment that runs in the background."""

    def __init__(self, job: _Job, query: StreamingQuery, reporter: Reporter, *, is_last: bool) -> None:
        self._job = job
        self._query = query
        self._reporter = reporter
        self._is_last = is_last
        if is_last:
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
        if self._is_last:
            self._job.lock.release()
        self._reporter.finish()

    def status(self) -> Status:
        """What runs, how far time has advanced, and counts of all records."""
        message = str(self._query.status["message"])
        return read_status(self._job.checked.deployment, message, is_active=self._query.isActive)


def deploy(path: Path | str, progress: OnBatch | None = None) -> Handle:
    """Start a deployment; it runs until it is stopped. `progress` is called after each micro-batch.

    Raises InputError or QueryErrors before anything starts.
    """
    job = _prepare(path)
    try:
        with in_plain_words(job.checked.deployment.environment):
            return _start(job, progress or _ignore, is_bounded=False, is_last=True)
    except BaseException:
        job.lock.release()
        raise


def run(path: Path | str, *, once: bool = False, flush: bool = False, progress: OnBatch | None = None) -> RunReport:
    """Run a deployment here and now, until Ctrl-C or SIGTERM. An interrupted run is continued.

    once: end when all available input has been processed
    flush: then advance time until no timer is left; needs `once`
    progress: called after each micro-batch

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
            _await(_start(job, report, is_bounded=once), stop)
            if once and (flush or job.held) and not stop.is_requested:
                job.send(Signal.FLUSH if flush else Signal.CATCH_UP)
                _await(_start(job, report, is_bounded=True), stop)
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
    if ready.is_new:
        write_record(deployment.checkpoint, ready.record)
    job = _Job(ready, own_session(f"ensue {deployment.name}"), lock)
    job.folder.signals.mkdir(parents=True, exist_ok=True)
    _warn_of_single_tasks(ready.program.plan())
    if deployment.control is not None:
        deployment.control.path.mkdir(parents=True, exist_ok=True)
    return job


def _warn_of_single_tasks(plan: Plan) -> None:
    """Say which queries do not get faster with more buckets and cores."""
    for query in plan.queries:
        order = shared_order(query)
        if order is not None:
            logging.getLogger("ensue").warning("query %s: %s, runs as one task", query.title, order)


def _start(job: _Job, report: OnBatch, *, is_bounded: bool, is_last: bool = False) -> Handle:
    """Start a run; `is_last`: its end unlocks the checkpoint."""
    session, deployment, program = job.session, job.checked.deployment, job.checked.program
    if is_bounded:
        # the wall clock says nothing about input that is already there
        program = program.without_idle()
    # Otherwise a bounded run never ends: with a timeout Spark always sees one more empty batch.
    has_timeouts = program.needs_timeouts and not is_bounded
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(has_timeouts).lower())
    if has_timeouts:
        job.send(Signal.START)
    tagged = tagged_stream(packed_sources(session, deployment, program), program)
    writer = tagged.writeStream.queryName(deployment.name).outputMode("append")
    writer = writer.option("checkpointLocation", str(deployment.checkpoint.resolve()))
    if is_bounded:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{deployment.trigger // 1000} milliseconds")
    reporter = Reporter()
    sources = [source.name for source in deployment.sources]
    identity = job.checked.record.identity
    batches = BatchWriter(program, deployment.sinks, sources, identity, job.folder, report, reporter)
    return Handle(job, writer.foreachBatch(batches.write).start(), reporter, is_last=is_last)
