"""Run records in one of four ways: embedded, in worker processes of a local job, in batch and as a
stream on Spark.

All must have the same results. Spark is imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from querylang.dataclass import dataclass, replace
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.lookup_tables import with_places
from runtime.replay import FileRecords, Records, Script, replay_epochs, replay_records
from runtime.results.schemas import Results
from spark_backend.versions import refuse_missing_spark

if TYPE_CHECKING:
    from job_engine.operator.cases import Case


@dataclass(frozen=True, slots=True)
class Job:
    """Records for a plan.

    flush: advance time after the last record until no timer is left
    splits: rows before which a stream ends a micro-batch, stops and restarts
    script: the plans that hold one after the other; None = the queries do not change
    """

    plan: Plan
    records: Records | FileRecords
    flush: bool
    splits: tuple[int, ...] = ()
    script: Script | None = None


def embedded(job: Job) -> Results:
    """Run in this process."""
    if job.script is not None:
        assert isinstance(job.records, Records), "records of changing queries are in memory"
        return replay_epochs(job.script, job.records, flush=job.flush)[0]
    return replay_records(job.plan, job.records, flush=job.flush)


def local(jobs: Sequence[Job]) -> list[Results]:
    """Run the records as micro-batches in workers, which save and read their states in between."""
    from job_engine.local.cases import run_local

    return run_local(_cases(jobs))


def batch(jobs: Sequence[Job]) -> list[Results]:
    """Run all records as bounded Spark DataFrames."""
    refuse_missing_spark()
    from spark_backend.frames import verify

    return verify.run_bounded(_cases(jobs))


def stream(jobs: Sequence[Job]) -> list[Results]:
    """Run the records as micro-batches on Spark, in a new session after each."""
    refuse_missing_spark()
    from spark_backend.frames import verify

    return verify.run_streams(_cases(jobs))


def spark_is_missing() -> str:
    """Why nothing can run on Spark; "" = PySpark is installed."""
    try:
        refuse_missing_spark()
    except InputError as error:
        return str(error).partition(";")[0]
    return ""


def _cases(jobs: Sequence[Job]) -> list[Case]:
    from job_engine.operator.cases import Case

    return [
        Case(with_places(job.plan), job.records.arrivals, job.splits, job.flush, _placed(job.script)) for job in jobs
    ]


def _placed(script: Script | None) -> Script | None:
    """The plans with tables that workers can read."""
    if script is None:
        return None
    epochs = tuple(replace(epoch, plan=with_places(epoch.plan)) for epoch in script.epochs)
    return replace(script, plan=with_places(script.plan), epochs=epochs)


def even_splits(count: int, batches: int) -> tuple[int, ...]:
    """Where to split `count` records into micro-batches of nearly the same size."""
    cuts = {count * number // batches for number in range(1, batches)}
    return tuple(sorted(cuts - {0, count}))
