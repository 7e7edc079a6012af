"""A run of the driver: how it begins, and what it leaves behind at its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from job_engine.job.batches.batch_writer import BatchWriter
from job_engine.job.batches.reporting import Reporter
from job_engine.job.batches.reports import OnBatch
from job_engine.job.checkpoint.driver_files import remove_old_files
from job_engine.job.driver import Order, Running
from job_engine.job.preflight import Checked
from job_engine.job.stages.prepare import Job
from job_engine.job.told_sources import run_options, told_sources
from job_engine.job.watching.tries import marks_of_next_run
from job_engine.places.local_path import LocalPath
from job_engine.places.place import Place, retry_of
from job_engine.settings.deployment import Deployment
from job_engine.sinks import run_sinks
from job_engine.sources.listing.batch_log import Batches, DamagedManifest
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.wire.packed_rows import Signal
from job_engine.wire.program import Program
from job_engine.wire.reports import Report
from querylang.printable import warn


@dataclass(frozen=True, slots=True)
class RunKind:
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
        marks=marks_of_next_run(checkpoint, batches.open),
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
