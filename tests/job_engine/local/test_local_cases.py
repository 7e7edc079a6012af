"""Records through the workers of a local job, cut and restarted anywhere: the embedded engine's results, row by row."""

from __future__ import annotations

import dataclasses

import pytest

from job_engine.local.cases import run_local
from job_engine.operator.cases import Case
from runtime.columns.arrivals import Arrivals
from tests.spark_backend.samples import PLAN, SEVERAL, arrivals_of, with_system_rows
from tests.support.embedded import embedded, plain

CASES = [
    Case(plan, with_system_rows(arrivals_of(120, keys=3, plan=plan, seed=seed)), splits, flush)
    for seed, (plan, splits, flush) in enumerate(
        [
            (PLAN, (), True),
            (PLAN, (60,), False),
            (SEVERAL, (11, 41, 42, 71), True),
            (SEVERAL, (30, 30, 90), False),
            (dataclasses.replace(PLAN), tuple(range(10, 120, 10)), True),
        ]
    )
]


@pytest.mark.parametrize("restart", [True, False])
def test_cases_in_workers_give_the_embedded_results_in_their_order(restart: bool) -> None:
    found = run_local(CASES, buckets=3, restart=restart)
    for case, results in zip(CASES, found, strict=True):
        assert plain(results) == plain(embedded(case.plan, case.arrivals, flush=case.flush))


def test_an_empty_table_gives_nothing() -> None:
    results = run_local([Case(PLAN, Arrivals.empty(PLAN))])[0]
    assert (results.matches, len(results.outputs), len(results.ledger)) == ({}, 0, 0)
