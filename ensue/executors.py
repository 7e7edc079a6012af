"""Run records in one of three ways: embedded, in batch on Spark, as a stream on Spark.

All three must have the same results. Spark is imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querylang.plan.model import Plan
from runtime.replay.replay import Records, replay_records
from runtime.results.schemas import Results


@dataclass(frozen=True, slots=True)
class Job:
    """Records for a plan.

    flush: advance time after the last record until no timer is left
    splits: rows before which a stream ends a micro-batch, stops and restarts
    """

    plan: Plan
    records: Records
    flush: bool
    splits: tuple[int, ...] = ()


def embedded(job: Job) -> Results:
    """Run in this process."""
    return replay_records(job.plan, job.records, flush=job.flush)


def batch(jobs: Sequence[Job]) -> list[Results]:
    """Run all records as bounded Spark DataFrames."""
    from spark_backend.frames import verify

    cases = [verify.Case(job.plan, job.records.arrivals, (), job.flush) for job in jobs]
    return verify.run_bounded(cases)


def stream(jobs: Sequence[Job]) -> list[Results]:
    """Run the records as micro-batches on Spark, in a new session after each."""
    from spark_backend.frames import verify

    cases = [verify.Case(job.plan, job.records.arrivals, job.splits, job.flush) for job in jobs]
    return verify.run_streams(cases)


def even_splits(count: int, batches: int) -> tuple[int, ...]:
    """Where to split `count` records into micro-batches of nearly the same size."""
    cuts = {count * number // batches for number in range(1, batches)}
    return tuple(sorted(cuts - {0, count}))
