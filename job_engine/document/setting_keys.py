"""The keys of a deployment file, and what may change on a checkpoint.

A setting is *fixed* if it decides which records are read, what they mean, or which bucket has them.
The record beside a checkpoint keeps fixed settings, and a run with other ones is refused by name.
*Applied* ones say which queries run: a run with other ones is refused without `--apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Engine(StrEnum):
    """Which driver runs a job."""

    SPARK = "spark"
    LOCAL = "local"


class Change(StrEnum):
    """Whether a setting may change between two runs on one checkpoint."""

    FIXED = "fixed"
    APPLIED = "applied"
    FREE = "free"


JOB_KEYS: Mapping[str, Change] = {
    "name": Change.FREE,
    "queries": Change.APPLIED,
    "sources": Change.FIXED,
    "control": Change.FIXED,
    "live": Change.FREE,
    "history": Change.FREE,
    "sinks": Change.FREE,
    "channels": Change.FREE,
    "retry": Change.FREE,
    "mode": Change.FREE,
    "clock": Change.FIXED,
    "idle": Change.FREE,
    "buckets": Change.FIXED,
    "trigger": Change.FREE,
    "checkpoint": Change.FREE,
    "engine": Change.FIXED,
    "forget_keys": Change.FIXED,
    "parameters": Change.APPLIED,
    "kernels": Change.FREE,
    "spark": Change.FREE,
    "metrics": Change.FREE,
    "log": Change.FREE,
}
"""The record keeps a fingerprint of queries and parameters, and the keys of each source.

`ensue rebucket` changes `buckets` on a checkpoint, and `ensue move` its `engine`.
"""

SOURCE_KEYS: Mapping[str, Change] = {
    "format": Change.FIXED,
    "event": Change.FIXED,
    "type": Change.FIXED,
    "type_field": Change.FIXED,
    "source_time": Change.FIXED,
    "arrival": Change.FIXED,
    "options": Change.FREE,
    "decode": Change.FIXED,
    "ordering": Change.FIXED,
    "idle": Change.FREE,
    "ahead": Change.FREE,
    "max_record": Change.FREE,
    "time_unit": Change.FIXED,
    "time_format": Change.FIXED,
}
"""Those of sources of every kind; each kind has more. Some options choose records and are fixed."""

CONTROL_KEYS = ("format", "options")
"""Those of them that the control stream may have; some kinds have more."""

HISTORY_KEYS: Mapping[str, Change] = dict.fromkeys(
    (
        *("format", "path", "options", "source"),
        *("event", "type_field", "source_time", "arrival", "time_unit", "time_format", "outside_files"),
    ),
    Change.FREE,
)
"""Those of `history`."""

SPARK_KEYS: Mapping[str, Change] = {
    "master": Change.FREE,
    "packages": Change.FREE,
    "jars": Change.FREE,
    "conf": Change.FREE,
    "executor_memory": Change.FREE,
    "driver_memory": Change.FREE,
}
"""Those of `spark`."""
