"""Start a job: a run of its driver, with the changes of the queries that wait.

An interrupted micro-batch is repeated first, with the settings of the run that began it. Some sinks
may have its results already. With another `idle`, or with `--once`, which looks at no wall clock,
the repeated one would give others: what is missing then comes in a later micro-batch, and is in
those sinks twice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TypedDict

from job_engine.durable_files import JobFile
from job_engine.job.batches.reports import OnBatch
from job_engine.job.checkpoint.job_folder import JobFolder, Reached
from job_engine.job.remarks import said_at_start
from job_engine.job.stages.change import changed_program
from job_engine.job.stages.handle import Handle
from job_engine.job.stages.prepare import Job
from job_engine.job.stages.run import Run, RunKind, begin_run, put_away
from job_engine.places.place import Place
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.batch_log import Batches
from job_engine.sources.source import Source
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.program import Program
from querylang.plan.model import Plan
from querylang.printable import warn


def start(job: Job, report: OnBatch, kind: RunKind) -> Handle:
    """Start a job; its end unlocks the checkpoint."""
    plan, deployment = job.checked.program.plan(), job.checked.deployment
    for remark in said_at_start(plan, deployment, is_bounded=kind.is_bounded, is_new=job.checked.is_new):
        warn(remark)
    handle = Handle(job, lambda: _begin(job, report, kind), is_bounded=kind.is_bounded)
    _warn_of_slow_queries(plan)
    return handle


def _begin(job: Job, report: OnBatch, kind: RunKind) -> Run:
    """Start a run, with the changes of the queries that wait."""
    deployment, reached = job.checked.deployment, job.folder.reached()
    program = _program(job, kind, reached)
    settings = settings_of(program, deployment)
    before = settings_of_interrupted(deployment.checkpoint, reached.batches)
    if before is not None and before != settings:
        old, sources = settings_with(before, program, deployment.sources)
        repeats = replace(kind, is_bounded=True, only_repeats=True)
        _repeat(job, report, repeats, old, replace(deployment, sources=sources), reached.batches)
        reached = job.folder.reached()
        program = _program(job, kind, reached)  # no change was taken while a micro-batch was open
    write_settings(deployment.checkpoint, settings)
    run = begin_run(job, report, kind, program, deployment, reached.batches)
    if job.watch is not None:
        job.watch.follow(run.running)
    return run


def _program(job: Job, kind: RunKind, reached: Reached) -> Program:
    program = changed_program(job.checked, reached)
    # the wall clock says nothing about input that is already there
    return program.without_idle() if kind.is_bounded else program


def _repeat(
    job: Job, report: OnBatch, kind: RunKind, program: Program, deployment: Deployment, batches: Batches
) -> None:
    """Repeat the micro-batch that was interrupted, and wait for its end."""
    run = begin_run(job, report, kind, program, deployment, batches)
    try:
        run.running.wait()
    finally:
        put_away(job.checked, run)


def _warn_of_slow_queries(plan: Plan) -> None:
    """Say which queries run on the reference matcher, while the first micro-batch is planned."""
    from runtime.matching.choose import slow_queries

    for line in slow_queries(plan):
        warn(line)


_WAY_OUT = (
    "It has the settings of the last run: delete the file, and its micro-batch is repeated with those of this run"
)


class Settings(TypedDict):
    """What a run may set that decides which results a micro-batch has, as plain data."""

    idle: int | None
    live: bool
    sources: list[ClockSource]
    max_record: dict[str, int | None]


def settings_of(program: Program, deployment: Deployment) -> Settings:
    """The settings of a run."""
    return {
        "idle": program.idle,
        "live": program.live,
        "sources": list(program.sources),
        "max_record": {source.name: source.max_record for source in deployment.sources},
    }


def settings_of_interrupted(checkpoint: Place, batches: Batches) -> Settings | None:
    """Those of the run that a micro-batch was interrupted in; None = none was, or not known.

    An earlier release did not write them down.
    """
    return None if batches.open is None else _settings_file(checkpoint).read()


def write_settings(checkpoint: Place, settings: Settings) -> None:
    """Write them down, before the first micro-batch of a run."""
    file = _settings_file(checkpoint)
    if file.readable() != settings:
        file.write(settings)


def settings_with(
    settings: Settings, program: Program, sources: tuple[Source, ...]
) -> tuple[Program, tuple[Source, ...]]:
    """A program, and sources of a deployment, with the settings of another run."""
    own = replace(program, idle=settings["idle"], live=settings["live"], sources=tuple(settings["sources"]))
    limits = settings["max_record"]
    return own, tuple(replace(source, max_record=limits.get(source.name)) for source in sources)


def _settings_file(checkpoint: Place) -> JobFile[Settings]:
    return JobFile(JobFolder(checkpoint).path / "run.json", Settings, _WAY_OUT, text=_text)


def _text(settings: Settings) -> str:
    return json.dumps(settings, default=asdict) + "\n"
