"""Prepare a job: check its deployment, lock its checkpoint, create what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_engine.deployment import Deployment, keep_places, places_in_words, shared_streams
from job_engine.deployment_file import load_deployment
from job_engine.deployment_sections import unused_settings
from job_engine.durable_files import make_checkpoint
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record, refuse_other_engine, remove_old_files, write_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.checkpoint.locks import RunLock, StoreLock
from job_engine.job.compilation import keep_plan
from job_engine.job.driver import Driver, Machine, driver_of, in_words_of_driver
from job_engine.job.file_changes import take_files
from job_engine.job.preflight import Checked, checked, note_release, other_release
from job_engine.job.watch import Watch, open_watch
from job_engine.job.written_journal import write_files
from job_engine.setting_keys import Engine
from job_engine.sinks.kinds import publishing
from job_engine.sources.kinds import running_of
from job_engine.wire.gathering import CHAINS
from job_engine.wire.partition_groups import shared_order
from job_engine.wire.program import Program
from querylang.dataclass import dataclass
from querylang.errors import InputError, PassingError, listed
from querylang.printable import warn


@dataclass(frozen=True, slots=True)
class Job:
    """A checked deployment that can be started any number of times.

    lock: held until all its runs have ended
    watch: the server of its metrics; None = it has none
    """

    checked: Checked
    machine: Machine
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
        self.machine.close()
        self.lock.release()


def prepare(
    given: Path | str | Mapping[str, Any],
    session: object = None,
    *,
    apply: bool = False,
    engine: Engine | None = None,
) -> Job:
    """Check the deployment and lock its checkpoint, then create what it needs.

    given: the path of a file, or a mapping with the same keys
    session: of Spark, beside which the job runs; None = the one that exists, or a new one
    apply: take over what has changed in the files of queries and values
    engine: in place of the one that the deployment names

    Raises InputError or QueryErrors; a refused deployment creates nothing.
    """
    deployment = load_deployment(given, engine=engine)
    with in_plain_words(deployment.environment):
        refuse_other_engine(deployment)
    with in_words_of_driver(deployment), places_in_words(deployment.places):
        driver = driver_of(deployment)
        driver.refuse_missing()
        return _locked(driver, driver.find_tables(deployment, session), session, apply=apply)


def _locked(driver: Driver, deployment: Deployment, session: object, *, apply: bool) -> Job:
    lock = JobFolder(deployment.checkpoint).lock()
    lock.refuse_if_held()
    ready = checked(deployment, apply=apply)  # a refused deployment creates nothing, not even the lock's file
    for _, message in shared_streams(deployment, asks=True):
        raise InputError(message)
    for line in (
        *other_release(deployment),
        *unused_settings(deployment.file, deployment.spark, deployment.engine),
        *(note for item in deployment.all_sources for note in running_of(item).notes(item, is_new=ready.is_new)),
    ):
        warn(line)
    make_checkpoint(deployment.checkpoint, deployment.mode)
    lock.acquire()
    try:
        has_begun = ready.is_new and read_record(deployment.checkpoint) is not None
        if has_begun:
            refuse_other_engine(deployment)
            ready = checked(deployment, apply=apply)
        watch = open_watch(deployment, ready.program.plan())
    except BaseException:
        lock.release()
        raise
    machine: Machine | None = None
    try:
        machine = driver.open(deployment, session)
        return _prepared(ready, lock, machine, watch)
    except BaseException:
        if machine is not None:
            machine.close()
        if watch is not None:
            watch.close()
        lock.release()
        raise


def _prepared(ready: Checked, lock: RunLock | StoreLock, machine: Machine, watch: Watch | None) -> Job:
    deployment = ready.deployment
    if ready.is_new:
        ready = ready.divided_among(machine.tasks(deployment))
        # first: of each checkpoint it is known what its files said
        write_files(deployment.checkpoint, ready.files.files)
        write_record(deployment.checkpoint, ready.record)
    note_release(deployment.checkpoint)
    keep_places(deployment)
    kept = read_record(deployment.checkpoint)
    if kept is not None and kept.chains != ready.record.chains:  # first, or the files would be older than chains
        write_record(deployment.checkpoint, kept.feeding())
    take_files(deployment, ready.files, ready.program, is_written=ready.is_written or ready.is_new)
    if ready.has_other_files:
        write_record(deployment.checkpoint, ready.record)
    keep_plan(deployment, ready.record, ready.program)
    finish_compactions(deployment, ready.record.identity)
    remove_old_files(deployment.checkpoint, ready.record)  # what a run that was killed has left
    if ready.record.tasks is not None:
        machine.keep_tasks(deployment, ready.record.tasks)
    _warn_of_single_tasks(ready.program)
    for source in deployment.all_sources:
        running_of(source).begin(source)
    return Job(ready, machine, lock, watch)


def finish_compactions(deployment: Deployment, identity: str) -> None:
    """Finish a compaction that was killed: until then readers of its folder may see rows twice."""
    unfinished = [sink for sink in deployment.sinks.values() if publishing(sink).has_unfinished(sink, identity)]
    if not unfinished:
        return
    lock = JobFolder(deployment.checkpoint).compaction_lock()
    try:
        lock.acquire()
    except PassingError:
        return  # it is at work just now
    try:
        for sink in unfinished:
            publishing(sink).finish(sink, identity)
    finally:
        lock.release()


def _warn_of_single_tasks(program: Program) -> None:
    """Say which queries do not get faster with more buckets and cores."""
    names, queries = program.names, program.plan().queries
    across = [f"'{query.public_title}'" for query in queries if names[query.title][0] == CHAINS]
    if across:
        warn(f"the queries {listed(across)} feed each other across keys, so they run as one task")
    for query in queries:
        order = shared_order(query, names[query.title])
        if order is not None and names[query.title][0] != CHAINS:
            warn(f"query {query.title}: {order}, runs as one task")
