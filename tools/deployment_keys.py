"""Make `docs/deployment.md` from the reader's own tables of keys, with what `docs/deployment.yaml` says of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from job_engine.deployment_sections import sink_keys
from job_engine.setting_keys import (
    HISTORY_KEYS,
    JOB_KEYS,
    SPARK_KEYS,
    TABLE_KEYS,
    Change,
)
from job_engine.sources.kinds import control_keys, kinds, source_keys
from tools.prose import filled

SAID = Path(__file__).resolve().parent.parent / "docs" / "deployment.yaml"

KEYS: Mapping[str, Mapping[str, Change]] = {
    "job": JOB_KEYS,
    "source": source_keys(),
    "history": HISTORY_KEYS,
    "table": TABLE_KEYS,
    "sink": sink_keys(),
    "spark": SPARK_KEYS,
}

ELSEWHERE = {
    ("job", "buckets"): "fixed: [`ensue rebucket`](care.md#another-number-of-buckets) moves it",
    ("job", "engine"): "fixed: [`ensue move`](care.md#another-engine) moves it",
}
"""What is said of single keys instead."""

HEAD = """\
# Deployment files

<!-- Written by tools/reference.py from the reader's table of keys and deployment.yaml; do not edit. -->
"""

ABOUT = """\
Every key of the file that `ensue run` starts, with its type, its default and an example. [Jobs](jobs.md) explains how
they work together.

A checkpoint knows what it was made for. The last column says whether a setting may change between two runs of it:
*free* ones may; *applied* ones may with [`ensue run --apply`](care.md#changed-files); a run with another *fixed* one is
refused by name, and needs a new checkpoint. Sources and the control stream may not be added, removed or renamed.
Checkpoints of release 0.1 are refused.

`${NAME}` in a value is read from the environment, `${file:/run/secrets/name}` from a file, without the end of its line;
a relative path is relative to the deployment file. More of [secrets](jobs.md#secrets).
"""

TITLES = {
    "job": "The file itself",
    "source": "A source",
    "history": "The table of the history",
    "table": "A table beside the stream",
    "sink": "A sink",
    "spark": "Spark itself",
}


@cache
def said() -> dict[str, dict[str, list[str]]]:
    """By group and key: type, default, example, meaning."""
    document: dict[str, dict[str, list[str]]] = yaml.safe_load(SAID.read_text())
    return document


def page() -> str:
    """The whole page."""
    control = ", ".join(f"`{key}`" for key in control_keys())
    fixed = [key for kind in kinds() for key, change in kind.options.items() if change is Change.FIXED]
    parts = [HEAD, ABOUT, *map(_section, KEYS)]
    parts += ["## Options of a source", filled(f"{_listed(fixed)} are fixed, all other options are free.")]
    parts += ["## The control stream", filled(f"`control` has these keys of a source: {control}.")]
    parts += [filled("Next: [running a job](jobs.md), [changing and caring for it](care.md).")]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _listed(names: Sequence[str]) -> str:
    *most, last = (f"`{name}`" for name in dict.fromkeys(names))
    return f"{', '.join(most)} and {last}"


def _section(group: str) -> str:
    rows = ["| key, for example | type | default | | on a checkpoint |", "|---|---|---|---|---|"]
    for key, change in KEYS[group].items():
        type_, default, example, meaning = said()[group][key]
        kept = ELSEWHERE.get((group, key), str(change))
        rows.append(f"| `{example}` | {type_} | {default} | {meaning} | {kept} |")
    return f"## {TITLES[group]}\n\n" + "\n".join(rows)
