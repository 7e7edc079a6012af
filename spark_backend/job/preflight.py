"""Check a deployment before anything starts: all that can be refused is refused here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from querylang.changes.merging import FileChange
from querylang.changes.running import Running
from querylang.errors import InputError, did_you_mean, listed
from querylang.paths import exists
from querylang.plan.model import EventType, QueryPlan
from spark_backend.job.changes.file_changes import refuse_changed_files
from spark_backend.job.changes.file_texts import read_files
from spark_backend.job.changes.plain_running import is_same
from spark_backend.job.checkpoint_record import Record, read_record, refuse_difference
from spark_backend.job.checks.damaged_logs import refuse_damaged_logs
from spark_backend.job.checks.delta_tables import refuse_unreadable_tables
from spark_backend.job.checks.earlier_results import refuse_other_results
from spark_backend.job.checks.missing_places import refuse_missing_bucket
from spark_backend.job.checks.name_conflicts import refuse_name_conflicts
from spark_backend.job.checks.open_waits import clock_sources
from spark_backend.job.compilation import compile_deployment
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.listed_sources import listed_source, of_files
from spark_backend.job.spark_checkpoint import placed
from spark_backend.places.place import Place
from spark_backend.places.remote_path import RemotePath
from spark_backend.settings.catalog.table_names import unplaced
from spark_backend.settings.deployment import Deployment
from spark_backend.sinks.bucket_results import refuse_unwritable
from spark_backend.sinks.formats import MATCHES
from spark_backend.sinks.one_table import refuse_other_layout
from spark_backend.sources.formats import source_format
from spark_backend.wire.program import Program


@dataclass(frozen=True, slots=True)
class Checked:
    """A deployment that can start.

    record: what its checkpoint is for
    is_new: whether the checkpoint has no record yet
    idle: queries that do not run, because their parameters have no values
    files: what the files say, before and now
    """

    deployment: Deployment
    program: Program
    record: Record
    is_new: bool
    idle: tuple[QueryPlan, ...]
    files: FileChange

    @property
    def has_other_files(self) -> bool:
        """Whether the files have changed since they were last applied."""
        return not is_same(self.files.before, self.files.files)

    def divided_among(self, tasks: int | None) -> Checked:
        """The same for a checkpoint whose buckets are divided among so many tasks of Spark."""
        record = replace(self.record, tasks=tasks)
        return replace(self, program=placed(self.program, record, self.deployment.checkpoint), record=record)


def checked(deployment: Deployment, *, apply: bool = False) -> Checked:
    """Check and compile a deployment; writes nothing.

    apply: changed files are to be applied to the checkpoint

    Raises InputError or QueryErrors.
    """
    _refuse_unplaced(deployment)
    for source in of_files(deployment.sources):
        refuse_missing_bucket(source.path)
        source_format(source.format).refuse_unreadable(listed_source(source))
    refuse_unreadable_tables(deployment)
    for folder in (deployment.checkpoint, *(sink.path for sink in deployment.sinks.values() if sink.kafka is None)):
        refuse_missing_bucket(folder)
        _refuse_unwritable(folder)
    kept = read_record(deployment.checkpoint)
    refuse_damaged_logs(deployment.checkpoint)
    compiled = compile_deployment(deployment, None if kept is None else kept.types())
    refuse_name_conflicts(deployment.file, compiled.plan)
    program = Program.of(
        compiled.plan, buckets=deployment.buckets, clock=deployment.clock, sources=clock_sources(deployment)
    )
    program = replace(program, live=deployment.live)
    wanted = Record.of(deployment, program, compiled.schemas)
    files = Running.of(compiled.template, compiled.instances, compiled.hidden)
    change = FileChange(_files_before(deployment, kept, wanted, files), files, returns=apply)
    if kept is not None:
        wanted = replace(kept, plan=wanted.plan, queries=wanted.queries)
        refuse_changed_files(deployment, change, program)
    _refuse_unknown_events(deployment, (*compiled.plan.events, *change.before.events))
    for name, sink in deployment.sinks.items():
        refuse_unwritable(name, sink, compiled.plan)
    if MATCHES in deployment.sinks:
        refuse_other_layout(deployment.sinks[MATCHES])
    _refuse_doubled_results(deployment, wanted)
    checked = Checked(deployment, program, wanted, kept is None, compiled.idle, change)
    return checked.divided_among(checked.record.tasks)


def _files_before(deployment: Deployment, kept: Record | None, wanted: Record, files: Running) -> Running:
    """What the files said when they were last applied; raises InputError for another deployment."""
    if kept is None:
        return files
    before = read_files(deployment)
    known = kept if before is None else replace(kept, plan=wanted.plan, queries=wanted.queries)
    refuse_difference(deployment.checkpoint, known, wanted, deployment)
    return before.annotated_by(files) if before is not None else files


def _refuse_doubled_results(deployment: Deployment, record: Record) -> None:
    folder = JobFolder(deployment.checkpoint)
    totals = {files.folder.name: files.numbers() for files in (folder.ledger.files, folder.progress)}
    refuse_other_results(deployment.checkpoint, record.identity, deployment.sinks, totals)
    for files in (folder.ledger.files, folder.progress):
        files.latest()  # a damaged file is refused before anything starts


def _refuse_unplaced(deployment: Deployment) -> None:
    """Raise InputError for tables that only a catalog could find: it is asked when a job starts."""
    for name in unplaced(deployment):
        raise InputError(f"{deployment.file}: where the table '{name}' is will be known once the job has started")


def _refuse_unwritable(folder: Place) -> None:
    """The folder, or else the nearest one above it that exists, must be a folder and writable."""
    if isinstance(folder, RemotePath):
        return  # what a store permits is seen when it is asked to do it
    existing = next(path for path in (folder, *folder.parents) if exists(path))
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be written: '{existing.name}' is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written: no permission to write to '{existing}'")


def _refuse_unknown_events(deployment: Deployment, events: Iterable[EventType]) -> None:
    known = list(dict.fromkeys(event.name for event in events))
    for source in deployment.sources:
        if source.event is not None and source.event not in known:
            raise InputError(
                f"{deployment.file}: the source '{source.name}' has the event type '{source.event}', which the queries"
                f" do not know{did_you_mean(source.event, known) or f'; they know {listed(known)}'}"
            )
