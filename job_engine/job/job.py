"""Run a deployment: in the background (`deploy`) or to its end (`run`).

A job has stages: prepare, start, watch, change, stop; each is a file in `stages`. A run is exactly
once and restartable. The checkpoint has what micro-batches read, and state; files of sinks, ledger
and progress are written by micro-batch number. The record beside them refuses to continue with
another deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from job_engine.clock import monotonic
from job_engine.errors import as_job_errors
from job_engine.job.checkpoint.job_folder import skip_records
from job_engine.job.driver import in_words_of_driver
from job_engine.job.reports import BatchReport, OnBatch, RunReport, RunTotal
from job_engine.job.stages.between_batches import kept_program
from job_engine.job.stages.prepare import Job, prepare
from job_engine.job.stages.start import Handle, RunKind, WallClock, has_ended, start
from job_engine.setting_keys import Engine
from job_engine.sources.kinds import kind_of
from job_engine.stopping import StopRequest
from querylang.errors import InputError


def deploy(
    given: Path | str | Mapping[str, Any],
    progress: OnBatch | None = None,
    *,
    session: object = None,
    accept_loss: bool = False,
    apply: bool = False,
    engine: Engine | None = None,
) -> Handle:
    """Start a deployment; it runs until it is stopped.

    given: the path of a file, or a mapping with the same keys
    session: of Spark, beside which it runs; None = the one that exists, or a new one
    progress: called after each micro-batch
    accept_loss: continue without files that an interrupted micro-batch read and that have changed
    apply: take over what has changed in the files of queries and values
    engine: in place of the one that the deployment names

    Raises InputError or QueryErrors before anything starts, and JobError if the driver fails.
    """
    with as_job_errors():
        job = prepare(given, session, apply=apply, engine=engine)
    try:
        with as_job_errors(), in_words_of_driver(job.checked.deployment):
            return start(job, progress or _ignore, RunKind(accepts_loss=accept_loss))
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
    accept: Sequence[str] = (),
    skip: Sequence[str] = (),
    engine: Engine | None = None,
) -> RunReport:
    """Run a deployment here and now, until Ctrl-C or SIGTERM. An interrupted run is continued.

    once: end when all input that is there now has been processed
    flush: then advance time until no timer is left; needs `once`
    progress: called after each micro-batch
    accept_loss: continue without files that an interrupted micro-batch read and that have changed
    apply: take over what has changed in the files of queries and values
    accept: names of tables that may have fewer than half of the rows that they had
    skip: messages that are left out from now on, each as `SOURCE/PARTITION/OFFSET`
    engine: in place of the one that the deployment names

    Raises InputError or QueryErrors, and Stopped for a signal before the job has started.
    """
    if flush and not once:
        raise InputError("time can only be flushed at the end of input: --flush needs --once")
    total = RunTotal()

    def report(batch: BatchReport) -> None:
        total.add(batch)
        (progress or _ignore)(batch)

    def begin(job: Job) -> Handle:
        return start(job, report, RunKind(once, flush, accept_loss, frozenset(accept)))

    with StopRequest() as stop:
        with stop.noticed_at_once():
            job = _prepared(path, skip, apply=apply, engine=engine)
        started, clock = monotonic(), WallClock()
        try:
            with in_words_of_driver(job.checked.deployment):
                while not has_ended(job, begin, stop, clock):
                    with stop.noticed_at_once():
                        job = prepare(path, engine=engine)
            return _report(job, total, monotonic() - started, stop)
        finally:
            job.close()


def _prepared(path: Path | str, skip: Sequence[str], *, apply: bool, engine: Engine | None) -> Job:
    """The job, with the messages on record that it leaves out."""
    job = prepare(path, apply=apply, engine=engine)
    try:
        deployment = job.checked.deployment
        has_log = any(kind_of(source.format).is_log for source in deployment.sources)
        skip_records(deployment.checkpoint, list(skip), has_log=has_log)
    except BaseException:
        job.close()
        raise
    return job


def _report(job: Job, total: RunTotal, seconds: float, stop: StopRequest) -> RunReport:
    """What a run has done."""
    running = kept_program(job.checked.program, job.checked.deployment).running()
    report = total.report(running, job.folder.ledger.total(), seconds, stopped_by=stop.signal, idle=job.checked.idle)
    left = job.folder.last_progress()
    return replace(report, waiting=left.waiting, next_due=left.next_due)


def _ignore(_: BatchReport) -> None:
    pass
