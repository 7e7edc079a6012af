"""The ways of running records: embedded, in batch on Spark, as a stream of micro-batches on Spark.

Takes plans and records, many at once; gives results that must be the same for all of them. Spark is imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querylang.plan.model import Plan
from runtime.replay.replay import Records, replay_records
from runtime.results.schemas import Results


@dataclass(frozen=True, slots=True)
class Job:
    """Records for a plan. `splits`: the rows before which a stream is cut, stopped and started again."""

    plan: Plan
    records: Records
    flush: bool
    splits: tuple[int, ...] = ()


def embedded(job: Job) -> Results:
    """In this process."""
    return replay_records(job.plan, job.records, flush=job.flush)


def batch(jobs: Sequence[Job], sources: Sequence[str] = ()) -> list[Results]:
    """All records as bounded Spark DataFrames; of records of one moment those of `sources` come first, in this order."""
    from spark_backend.frames import verify

    cases = [verify.Case(job.plan, job.records.arrivals, (), job.flush) for job in jobs]
    return verify.run_bounded(cases, sources=sources)


def stream(jobs: Sequence[Job], sources: Sequence[str] = ()) -> list[Results]:
    """The records as micro-batches on Spark, in a new session after each."""
    from spark_backend.frames import verify

    cases = [verify.Case(job.plan, job.records.arrivals, job.splits, job.flush) for job in jobs]
    return verify.run_streams(cases, sources=sources)


def even_splits(count: int, batches: int) -> tuple[int, ...]:
    """Where to cut `count` records into as many micro-batches, as even as can be."""
    cuts = {count * number // batches for number in range(1, batches)}
    return tuple(sorted(cuts - {0, count}))
