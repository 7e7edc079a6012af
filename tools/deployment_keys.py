"""Make `docs/deployment.md` from the reader's own tables of keys, with what `docs/deployment.yaml` says of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from job_engine.document.setting_keys import (
    HISTORY_KEYS,
    JOB_KEYS,
    SPARK_KEYS,
    Change,
)
from job_engine.settings.sink_settings import sink_keys
from job_engine.sources.kinds import control_keys, source_keys

SAID = Path(__file__).resolve().parent.parent / "docs" / "deployment.yaml"

KEYS: Mapping[str, Mapping[str, Change]] = {
    "job": JOB_KEYS,
    "source": source_keys(),
    "history": HISTORY_KEYS,
    "sink": sink_keys(),
    "spark": SPARK_KEYS,
}

ON_A_CHECKPOINT = {
    Change.FREE: "may change",
    Change.FIXED: "refused: begin with a new checkpoint",
    Change.APPLIED: "may change, with [`ensue run --apply`](changes.md#changed-files)",
}

ELSEWHERE = {
    ("job", "buckets"): "refused: [`ensue rebucket`](care.md#another-number-of-buckets) moves it",
    ("job", "engine"): "refused: [`ensue move`](care.md#another-engine) moves it",
}
"""What is said of single keys instead."""

HEAD = """\
# Deployment files

<!-- Written by tools/reference.py from the reader's table of keys and deployment.yaml; do not edit. -->

Every key of the file that `ensue run` starts, with its type, its default and an example. The last column says what happens
if it is another one when the job continues from its checkpoint. [Jobs](spark.md) explains how they work together.
"""

TITLES = {
    "job": "The file itself",
    "source": "A source",
    "history": "The table of the history",
    "sink": "A sink",
    "spark": "Spark itself",
}


def said() -> dict[str, dict[str, list[str]]]:
    """By group and key: type, default, example, meaning."""
    document: dict[str, dict[str, list[str]]] = yaml.safe_load(SAID.read_text())
    return document


def page() -> str:
    """The whole page."""
    control = ", ".join(f"`{key}`" for key in control_keys())
    parts = [HEAD, *map(_section, KEYS), "## The control stream", f"`control` has these keys of a source: {control}."]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _section(group: str) -> str:
    rows = ["| key | type | default | | example | on a checkpoint |", "|---|---|---|---|---|---|"]
    for key, change in KEYS[group].items():
        type_, default, example, meaning = said()[group][key]
        kept = ELSEWHERE.get((group, key), ON_A_CHECKPOINT[change])
        rows.append(f"| `{key}` | {type_} | {default} | {meaning} | `{example}` | {kept} |")
    return f"## {TITLES[group]}\n\n" + "\n".join(rows)
