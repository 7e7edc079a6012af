"""A small job on one folder of readings, written but not run."""

from __future__ import annotations

import json
from pathlib import Path


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
