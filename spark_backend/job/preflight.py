"""Check a deployment before anything starts: all that can be refused is refused here."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from querylang.errors import InputError, did_you_mean, listed
from querylang.paths import exists
from querylang.plan.model import Plan, QueryPlan
from spark_backend.job.checkpoint_record import Record, read_record, refuse_difference
from spark_backend.job.checks.damaged_logs import refuse_damaged_logs
from spark_backend.job.checks.earlier_results import refuse_other_results
from spark_backend.job.checks.name_conflicts import refuse_name_conflicts
from spark_backend.job.checks.open_waits import clock_sources
from spark_backend.job.compilation import compile_deployment
from spark_backend.job.file_sources.listed_sources import listed_source
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.settings import Deployment
from spark_backend.sources.formats import source_format
from spark_backend.wire.program import Program


@dataclass(frozen=True, slots=True)
class Checked:
    """A deployment that can start.

    record: what its checkpoint is for
    is_new: whether the checkpoint has no record yet
    idle: queries that do not run, because their parameters have no values
    """

    deployment: Deployment
    program: Program
    record: Record
    is_new: bool
    idle: tuple[QueryPlan, ...]

    def divided_among(self, tasks: int | None) -> Checked:
        """The same for a checkpoint whose buckets are divided among so many tasks of Spark."""
        return replace(self, program=replace(self.program, tasks=tasks), record=replace(self.record, tasks=tasks))


def checked(deployment: Deployment) -> Checked:
    """Check and compile a deployment; writes nothing. Raises InputError or QueryErrors."""
    for source in deployment.sources:
        source_format(source.format).refuse_unreadable(listed_source(source))
    for folder in (deployment.checkpoint, *(sink.path for sink in deployment.sinks.values())):
        _refuse_unwritable(folder)
    kept = read_record(deployment.checkpoint)
    refuse_damaged_logs(deployment.checkpoint)
    compiled = compile_deployment(deployment, None if kept is None else kept.types())
    _refuse_unknown_events(deployment, compiled.plan)
    refuse_name_conflicts(deployment.file, compiled.plan)
    program = Program.of(
        compiled.plan, buckets=deployment.buckets, clock=deployment.clock, sources=clock_sources(deployment)
    )
    wanted = Record.of(deployment, program, compiled.schemas)
    if kept is not None:
        refuse_difference(deployment.checkpoint, kept, wanted, deployment)
    _refuse_doubled_results(deployment, kept or wanted)
    checked = Checked(deployment, program, kept or wanted, kept is None, compiled.idle)
    return checked.divided_among(checked.record.tasks)


def _refuse_doubled_results(deployment: Deployment, record: Record) -> None:
    folder = JobFolder(deployment.checkpoint)
    totals = {files.folder.name: files.numbers() for files in (folder.ledger.files, folder.progress)}
    refuse_other_results(deployment.checkpoint, record.identity, deployment.sinks, totals)
    for files in (folder.ledger.files, folder.progress):
        files.latest()  # a damaged file is refused before anything starts


def _refuse_unwritable(folder: Path) -> None:
    """The folder, or else the nearest one above it that exists, must be a folder and writable."""
    existing = next(path for path in (folder, *folder.parents) if exists(path))
    if not existing.is_dir():
        raise InputError(f"{folder}: cannot be written: '{existing.name}' is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written: no permission to write to '{existing}'")


def _refuse_unknown_events(deployment: Deployment, plan: Plan) -> None:
    known = [event.name for event in plan.events]
    for source in deployment.sources:
        if source.event is not None and source.event not in known:
            raise InputError(
                f"{deployment.file}: the source '{source.name}' has the event type '{source.event}', which the queries"
                f" do not know{did_you_mean(source.event, known) or f'; they know {listed(known)}'}"
            )
