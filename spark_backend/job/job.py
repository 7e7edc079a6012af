"""Run a deployment as a Spark streaming query: in the background (`deploy`) or to its end (`run`).

A run is exactly once and restartable. Spark's checkpoint has offsets and state; files of sinks,
ledger and progress are written by micro-batch number. The record beside the checkpoint refuses to
continue with another deployment.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from querylang.errors import EnsueError, InputError
from querylang.logger import warn
from querylang.plan.model import Plan
from spark_backend.bounded_end import stop_at_end
from spark_backend.durable_files import make_checkpoint, make_folder
from spark_backend.early_start import EarlyStart
from spark_backend.errors import JobError, WorkerDied, as_job_errors, in_plain_words
from spark_backend.job.batches.batch_writer import BatchWriter
from spark_backend.job.batches.reporting import Reporter
from spark_backend.job.batches.reports import BatchReport, OnBatch, RunReport, RunTotal
from spark_backend.job.batches.sink_topics import begin_topics, with_drafts
from spark_backend.job.changes.interrupted_batch import (
    settings_of,
    settings_of_interrupted,
    settings_with,
    write_settings,
)
from spark_backend.job.changes.taking import changed_program, kept_program
from spark_backend.job.checkpoint.checkpoint_record import read_record, write_record
from spark_backend.job.checkpoint.job_folder import JobFolder
from spark_backend.job.checkpoint.run_lock import RunLock
from spark_backend.job.checkpoint.spark_checkpoint import place_for_spark, reach_store, remove_old_files
from spark_backend.job.checkpoint.store_lock import StoreLock
from spark_backend.job.checks.catalog_tables import find_tables
from spark_backend.job.checks.job_session import job_session, keep_tasks, tasks_of
from spark_backend.job.checks.lost_outputs import lost_outputs, silent_channels
from spark_backend.job.checks.missing_places import empty_sources
from spark_backend.job.checks.open_waits import open_waits, unused_source_times
from spark_backend.job.checks.topic_notes import topic_notes
from spark_backend.job.checks.unused_history import unused_history
from spark_backend.job.checks.writing_statements import lost_routes, taken_events, written_by
from spark_backend.job.handle import Handle, Job, Run, put_away
from spark_backend.job.journal.file_changes import take_files
from spark_backend.job.preflight import Checked, checked
from spark_backend.job.source_streams import packed_sources
from spark_backend.job.upkeep.other_release import note_release, other_release
from spark_backend.job.watching.tries import CONTINUES, MOST_TRIES, failed_tries, skip_records, told_deaths
from spark_backend.job.watching.wall_clock import WallClock
from spark_backend.job.watching.watch import Watch, open_watch
from spark_backend.operator.spark_operator import start_workers
from spark_backend.places.place import Place, retry_of
from spark_backend.session import is_on_one_machine
from spark_backend.settings.catalog.table_names import keep_places
from spark_backend.settings.deployment import Deployment
from spark_backend.settings.deployment_file import load_deployment
from spark_backend.settings.given_mapping import places_in_words
from spark_backend.sinks.micro_batch import results_stream
from spark_backend.sources.listing.input_planner import RunSettings
from spark_backend.sources.spark_reader import HAS_AVAILABLE_NOW
from spark_backend.stopping import StopRequest
from spark_backend.wire.job_kernels import ship_kernels
from spark_backend.wire.packed_rows import Signal
from spark_backend.wire.partition_groups import shared_order
from spark_backend.wire.program import Program
from spark_backend.wire.rows_in_files import new_folder


def deploy(
    given: Path | str | Mapping[str, Any],
    progress: OnBatch | None = None,
    *,
    session: SparkSession | None = None,
    accept_loss: bool = False,
    apply: bool = False,
) -> Handle:
    """Start a deployment; it runs until it is stopped.

    given: the path of a file, or a mapping with the same keys
    session: beside which it runs; None = the one that exists, or a new one
    progress: called after each micro-batch
    accept_loss: continue without files that an interrupted micro-batch read and that have changed
    apply: take over what has changed in the files of queries and values

    Raises InputError or QueryErrors before anything starts, and JobError if Spark fails.
    """
    with as_job_errors():
        job = _prepare(given, session, apply=apply)
    try:
        with as_job_errors(), in_plain_words(job.checked.deployment.environment):
            return _start(job, progress or _ignore, _Kind(accepts_loss=accept_loss))
    except BaseException:
        job.close()
        raise


def run(
    path: Path | str,
    *,
    once: bool = False,
    flush: bool = False,
    progress: OnBatch | None = None,
    accept_loss: bool = False,
    apply: bool = False,
    skip: Sequence[str] = (),
) -> RunReport:
    """Run a deployment here and now, until Ctrl-C or SIGTERM. An interrupted run is continued.

    once: end when all input that is there now has been processed
    flush: then advance time until no timer is left; needs `once`
    progress: called after each micro-batch
    accept_loss: continue without files that an interrupted micro-batch read and that have changed
    apply: take over what has changed in the files of queries and values
    skip: messages that are left out from now on, each as `SOURCE/PARTITION/OFFSET`

    Raises InputError or QueryErrors.
    """
    if flush and not once:
        raise InputError("time can only be flushed at the end of input: --flush needs --once")
    job = _prepare(path, apply=apply)
    try:
        deployment = job.checked.deployment
        has_topics = any(source.kafka is not None for source in deployment.sources)
        skip_records(deployment.checkpoint, list(skip), has_topics=has_topics)
    except BaseException:
        job.close()
        raise
    total = RunTotal()

    def report(batch: BatchReport) -> None:
        total.add(batch)
        (progress or _ignore)(batch)

    started = time.monotonic()
    try:
        with StopRequest() as stop, in_plain_words(job.checked.deployment.environment):
            kind, clock = _Kind(is_bounded=once, flush=flush, accepts_loss=accept_loss), WallClock()
            while not _has_ended(job, report, kind, stop, clock):
                job = _prepare(path)
        seconds = time.monotonic() - started
        running = kept_program(job.checked.program, job.checked.deployment).running()
        ledger = job.folder.ledger.total()
        report_ = total.report(running, ledger, seconds, stopped_by=stop.signal, idle=job.checked.idle)
        left = job.folder.last_progress()
        return replace(report_, waiting=left.waiting, next_due=left.next_due)
    finally:
        job.close()


def _has_ended(job: Job, report: OnBatch, kind: _Kind, stop: StopRequest, clock: WallClock) -> bool:
    """Whether a run has reached its end; False = it has to be started again.

    A worker that died did so perhaps for a record: when its micro-batch is tried again, readers
    find which one.
    """
    deployment = job.checked.deployment
    try:
        with told_deaths(deployment.checkpoint), in_plain_words(deployment.environment):
            handle = _start(job, report, kind)
        return _await(handle, stop, clock)
    except WorkerDied as error:
        if stop.is_requested or not 0 < failed_tries(deployment.checkpoint) < MOST_TRIES:
            raise
        warn(f"{str(error).removesuffix(CONTINUES)}It is tried again")
        job.close()
        return False


def _ignore(_: BatchReport) -> None:
    pass


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
            with suppress(Py4JError):  # the same signal may have ended Java already
                handle.stop()
    except JobError as error:
        if not stop.is_requested:  # Ctrl-C reaches the whole process group, the JVM included
            raise error.__cause__ or error from None
    except EnsueError:
        if not stop.is_requested:
            raise
    return True


def _prepare(given: Path | str | Mapping[str, Any], session: SparkSession | None = None, *, apply: bool = False) -> Job:
    """Check the deployment and lock its checkpoint, then create what it needs."""
    deployment = load_deployment(given)
    with in_plain_words(deployment.environment), places_in_words(deployment.places):
        return _locked(find_tables(deployment, session), session, apply=apply)


def _locked(deployment: Deployment, session: SparkSession | None, *, apply: bool) -> Job:
    lock = JobFolder(deployment.checkpoint).lock()
    lock.refuse_if_held()
    ready = checked(deployment, apply=apply)  # a refused deployment creates nothing, not even the lock's file
    for line in (
        *other_release(deployment),
        *topic_notes(deployment, is_new=ready.is_new),
        *empty_sources(deployment),
    ):
        warn(line)
    make_checkpoint(deployment.checkpoint, deployment.mode)
    lock.acquire()
    try:
        has_begun = ready.is_new and read_record(deployment.checkpoint) is not None
        ready = checked(deployment, apply=apply) if has_begun else ready
        watch = open_watch(deployment, ready.program.plan())
    except BaseException:
        lock.release()
        raise
    try:
        return _prepared(ready, lock, session, watch)
    except BaseException:
        if watch is not None:
            watch.close()
        lock.release()
        raise


def _prepared(ready: Checked, lock: RunLock | StoreLock, given: SparkSession | None, watch: Watch | None) -> Job:
    deployment = ready.deployment
    session = job_session(deployment, given)
    reach_store(session, deployment.checkpoint)
    if deployment.kernels is not None:
        ship_kernels(session, deployment.kernels)
    _start_workers(session)
    if ready.is_new:
        ready = ready.divided_among(tasks_of(session, deployment))
        write_record(deployment.checkpoint, ready.record)
    note_release(deployment.checkpoint)
    keep_places(deployment)
    take_files(deployment, ready.files, ready.program)
    if ready.has_other_files:
        write_record(deployment.checkpoint, ready.record)
    remove_old_files(deployment.checkpoint, ready.record)  # what a run that was killed has left
    if ready.record.tasks is not None:
        keep_tasks(session, deployment, ready.record.tasks)
    job = Job(ready, session, lock, watch)
    _warn_of_single_tasks(ready.program.plan())
    if deployment.control is not None and deployment.control.kafka is None:
        make_folder(deployment.control.path)
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
    only_repeats: it ends behind a micro-batch that was interrupted
    """

    is_bounded: bool = False
    flush: bool = False
    accepts_loss: bool = False
    only_repeats: bool = False

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


def _start(job: Job, report: OnBatch, kind: _Kind) -> Handle:
    """Start a job; its end unlocks the checkpoint."""
    plan, deployment = job.checked.program.plan(), job.checked.deployment
    written = written_by(plan)
    for warning in (
        *lost_outputs(written, deployment),
        *silent_channels(written, deployment),
        *lost_routes(written, taken_events(plan)),
        *(() if kind.is_bounded else open_waits(plan, deployment)),
        *unused_source_times(plan, deployment),
        *unused_history(deployment, is_new=job.checked.is_new),
    ):
        warn(warning)
    handle = Handle(job, lambda: _begin(job, report, kind), is_bounded=kind.is_bounded)
    _warn_of_slow_queries(plan)
    return handle


def _begin(job: Job, report: OnBatch, kind: _Kind) -> Run:
    """Start a run, with the changes of the queries that wait."""
    deployment, program = job.checked.deployment, _program(job, kind)
    settings = settings_of(program, deployment)
    before = settings_of_interrupted(deployment.checkpoint)
    if before is not None and before != settings:
        old, sources = settings_with(before, program, deployment.sources)
        _repeat(
            job, report, replace(kind, is_bounded=True, only_repeats=True), old, replace(deployment, sources=sources)
        )
        program = _program(job, kind)  # no change was taken while a micro-batch was open
    write_settings(deployment.checkpoint, settings)
    run = _query(job, report, kind, program, deployment)
    if job.watch is not None:
        job.watch.follow(run.query)
    return run


def _program(job: Job, kind: _Kind) -> Program:
    program = changed_program(job.checked)
    # the wall clock says nothing about input that is already there
    return program.without_idle() if kind.is_bounded else program


def _repeat(job: Job, report: OnBatch, kind: _Kind, program: Program, deployment: Deployment) -> None:
    """Repeat the micro-batch that was interrupted, and wait for its end."""
    run = _query(job, report, kind, program, deployment)
    try:
        run.query.awaitTermination()
    finally:
        put_away(job, run)


def _query(job: Job, report: OnBatch, kind: _Kind, program: Program, deployment: Deployment) -> Run:
    """Spark's streaming query of a run."""
    session = job.session
    # Otherwise a bounded run never ends: with a timeout Spark always sees one more empty batch.
    has_timeouts = program.needs_timeouts and not kind.is_bounded
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(has_timeouts).lower())
    # a step of each bucket reports what became of changes, and takes over its seed: files without
    # records would end a micro-batch without one; seeds are removed once a micro-batch has ended
    has_signal = has_timeouts or bool(program.notices) or program.seeds is not None
    run_settings = kind.settings(deployment.checkpoint, has_signal=has_signal)
    rows = new_folder(session)
    inferred, accepts_loss = job.checked.record.schemas, kind.accepts_loss
    packed = packed_sources(
        session, deployment, program, run_settings, inferred=inferred, accepts_loss=accepts_loss, folder=rows
    )
    identity = job.checked.record.identity
    sinks = with_drafts(deployment.sinks, rows)
    begin_topics(identity, sinks, deployment.checkpoint)
    results = results_stream(packed, program, sinks, identity)
    writer = results.writeStream.queryName(deployment.name).outputMode("append")
    writer = writer.option("checkpointLocation", place_for_spark(deployment.checkpoint))
    if kind.is_bounded and HAS_AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif not kind.is_bounded:
        writer = writer.trigger(processingTime=f"{deployment.trigger // 1000} milliseconds")
    reporter = Reporter()
    sources = [source.name for source in deployment.sources]
    observe = None if job.watch is None else job.watch.observe
    confirm = job.lock.confirm
    batches = BatchWriter(confirm, program, sinks, sources, identity, job.folder, rows, report, reporter, observe)
    query = writer.foreachBatch(batches.write).start()
    if kind.is_bounded and not HAS_AVAILABLE_NOW:
        stop_at_end(query)
    return Run(query, run_settings, reporter, rows)
