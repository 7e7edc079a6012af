"""The published tables of Stream Analytics and StreamInsight in jobs: in batch, and as micro-batches with a restart between them.

All of them run in one job an executor. What they expect is what the oracle of time says, which is shown elsewhere to be what the tables
say, and which the embedded engine gives too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ensue.executors import Job, even_splits
from ensue.testing.case_run import RUNS
from runtime.replay.records import Records
from tests.conformance.published import SOURCE, idle_cases, increment_cases, ordered_tables
from tests.differential.timed_compare import Seen, expectation, same, take
from tests.support.time_oracle import run
from tests.support.timed import Record, Timed
from tests.support.timed_engine import arrivals_of, plan_of

MICRO_BATCHES = 2


def queries() -> Iterator[tuple[str, Timed]]:
    """Every table with its stream; if time advances past the last record, with a tick there."""
    for table in ordered_tables():
        for action in ("adjust", "drop"):
            yield f"{table.name}, {action}", table.timed(action)
    for idle in idle_cases():
        yield idle.name, idle.query
    for case in increment_cases():
        until = () if case.until is None else (Record(case.until, source=SOURCE),)
        yield case.name, replace(case.query, records=(*case.query.records, *until))


def job_of(query: Timed) -> Job:
    """The stream, cut in half."""
    plan, numbered = plan_of(query), query.ordered()
    records = Records(arrivals_of(plan, numbered), np.array([offset for offset, _ in numbered]), (SOURCE,))
    return Job(plan, records, flush=True, splits=even_splits(len(numbered), MICRO_BATCHES))


@pytest.mark.parametrize("executor", ["local", "batch", "stream"])
def test_every_table_gives_the_same_in_jobs(executor: str) -> None:
    named = list(queries())
    jobs = [job_of(query) for _, query in named]
    found = RUNS[executor](jobs)
    told = []
    for (name, query), job, results in zip(named, jobs, found, strict=True):
        seen = Seen()
        take(seen, job.plan, results)
        try:
            same(f"{executor}: {name}", seen, expectation(job.plan, query, run(query)))
        except AssertionError as error:
            told.append(str(error))
    assert not told, "\n\n".join(told)
