"""A small job on one folder of readings, written but not run."""

from __future__ import annotations

import json
from pathlib import Path

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.checkpoint.progress import JobProgress, QueryTime


def write_job(folder: Path, text: str, **settings: object) -> Path:
    """Write the query file and the deployment file; gives the latter. `settings`: more keys of it."""
    (folder / "q.query").write_text(text, "utf-8")
    deployment = {
        "name": "readings",
        "queries": "q.query",
        "sources": {"readings": {"path": "in", "format": "csv", "event": "Reading"}},
        "sinks": {"matches": {"path": "out", "format": "json"}},
        "checkpoint": "state",
        **settings,
    }
    job = folder / "job.yaml"
    job.write_text(json.dumps(deployment), "utf-8")
    return job


def let_it_have_read(checkpoint: Path, clock: int = 1_000_000) -> None:
    """As if a micro-batch had read records up to this arrival, µs."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(exist_ok=True)
        (checkpoint / name / "0").write_text("v1\n{}", "utf-8")
    progress = JobProgress(queries={"Rising": QueryTime(clock=clock)}).to_plain()
    JobFolder(checkpoint).progress.write(0, {"queries": {}, "progress": progress})
