"""The ways of running records: embedded, in batch on Spark, as a stream of micro-batches on Spark.

Takes a plan and records; gives results that must be the same for all of them. Spark is imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from querylang.plan import Plan
from runtime.replay import Records, replay_records
from runtime.results import Results


class Executor(StrEnum):
    """The words of `--ensue-executors`."""

    EMBEDDED = "embedded"
    BATCH = "batch"
    STREAM = "stream"


def embedded(plan: Plan, records: Records, *, flush: bool) -> Results:
    """In this process."""
    return replay_records(plan, records, flush=flush)


def batch(plan: Plan, records: Records, *, flush: bool) -> Results:
    """All records as one bounded Spark DataFrame."""
    from spark_backend.verify import match_in_batch

    return match_in_batch(plan, records.arrivals, flush=flush)


def stream(plan: Plan, records: Records, splits: Sequence[int], *, flush: bool) -> Results:
    """The records as micro-batches, cut before the rows `splits`, the job restarted in between."""
    from spark_backend.verify import stream_in_batches

    return stream_in_batches(plan, records.arrivals, splits, flush=flush)


def even_splits(count: int, batches: int) -> list[int]:
    """Where to cut `count` records into as many micro-batches, as even as can be."""
    cuts = {count * number // batches for number in range(1, batches)}
    return sorted(cuts - {0, count})
