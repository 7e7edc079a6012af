"""Prepare a job: check its deployment, lock its checkpoint, create what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from querylang.logger import warn
from querylang.plan.model import Plan
from spark_backend.durable_files import make_checkpoint
from spark_backend.early_start import EarlyStart
from spark_backend.errors import in_plain_words
from spark_backend.job.checkpoint.checkpoint_record import read_record, write_record
from spark_backend.job.checkpoint.job_folder import JobFolder
from spark_backend.job.checkpoint.run_lock import RunLock
from spark_backend.job.checkpoint.spark_checkpoint import reach_store, remove_old_files
from spark_backend.job.checkpoint.store_lock import StoreLock
from spark_backend.job.checks.catalog_tables import find_tables
from spark_backend.job.checks.job_session import job_session, keep_tasks, tasks_of
from spark_backend.job.journal.file_changes import take_files
from spark_backend.job.other_release import note_release, other_release
from spark_backend.job.preflight import Checked, checked
from spark_backend.job.watching.watch import Watch, open_watch
from spark_backend.operator.spark_operator import start_workers
from spark_backend.session import is_on_one_machine
from spark_backend.settings.catalog.table_names import keep_places
from spark_backend.settings.deployment import Deployment
from spark_backend.settings.deployment_file import load_deployment
from spark_backend.settings.given_mapping import places_in_words
from spark_backend.sources.kinds import running_of
from spark_backend.wire.job_kernels import ship_kernels
from spark_backend.wire.partition_groups import shared_order


@dataclass(frozen=True, slots=True)
class Job:
    """A checked deployment that can be started any number of times.

    lock: held until all its runs have ended
    watch: the server of its metrics; None = it has none
    """

    checked: Checked
    session: SparkSession
    lock: RunLock | StoreLock
    watch: Watch | None

    @property
    def folder(self) -> JobFolder:
        """What Ensue keeps inside the checkpoint."""
        return JobFolder(self.checked.deployment.checkpoint)

    def close(self) -> None:
        """Let others have the checkpoint."""
        if self.watch is not None:
            self.watch.close()
        self.lock.release()


def prepare(given: Path | str | Mapping[str, Any], session: SparkSession | None = None, *, apply: bool = False) -> Job:
    """Check the deployment and lock its checkpoint, then create what it needs.

    given: the path of a file, or a mapping with the same keys
    session: beside which the job runs; None = the one that exists, or a new one
    apply: take over what has changed in the files of queries and values

    Raises InputError or QueryErrors; a refused deployment creates nothing.
    """
    deployment = load_deployment(given)
    with in_plain_words(deployment.environment), places_in_words(deployment.places):
        return _locked(find_tables(deployment, session), session, apply=apply)


def _locked(deployment: Deployment, session: SparkSession | None, *, apply: bool) -> Job:
    lock = JobFolder(deployment.checkpoint).lock()
    lock.refuse_if_held()
    ready = checked(deployment, apply=apply)  # a refused deployment creates nothing, not even the lock's file
    for line in (
        *other_release(deployment),
        *(note for item in deployment.all_sources for note in running_of(item).notes(item, is_new=ready.is_new)),
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
    if deployment.control is not None:
        running_of(deployment.control).begin(deployment.control)
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
