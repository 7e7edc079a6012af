"""Stop a run: put away what it leaves behind."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from querylang.logger import warn
from spark_backend.job.batches.reporting import Reporter
from spark_backend.job.checkpoint.spark_checkpoint import remove_old_files
from spark_backend.job.preflight import Checked
from spark_backend.job.source_streams import told_sources
from spark_backend.sinks import run_sinks
from spark_backend.sources.listing.input_planner import InputPlanner, RunSettings
from spark_backend.sources.listing.places import DamagedManifest
from spark_backend.wire.reports import Report


@dataclass(frozen=True, slots=True)
class Run:
    """A streaming query of Spark, with what has to be put away at its end."""

    query: StreamingQuery
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
            shutil.rmtree(run.rows, ignore_errors=True)
