"""Stop a run: put away what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from job_engine.job.batches.reporting import Reporter
from job_engine.job.checkpoint.driver_files import remove_old_files
from job_engine.job.driver import Running
from job_engine.job.preflight import Checked
from job_engine.job.told_sources import told_sources
from job_engine.places.local_path import LocalPath
from job_engine.sinks import run_sinks
from job_engine.sources.listing.input_planner import InputPlanner, RunSettings
from job_engine.sources.listing.places import DamagedManifest
from job_engine.wire.reports import Report
from querylang.logger import warn


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the driver, with what has to be put away at its end."""

    running: Running
    settings: RunSettings
    reporter: Reporter
    rows: Path | None


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
