"""Records through the workers of a local job, cut and restarted anywhere: the embedded engine's results, row by row."""

from __future__ import annotations

import pytest

from job_engine.local.buckets import run_local
from job_engine.operator.cases import Case
from runtime.columns.arrivals import Arrivals
from tests.spark_backend.samples import PLAN
from tests.support.cut_cases import CASES
from tests.support.embedded import embedded, plain


@pytest.mark.parametrize("restart", [True, False])
def test_cases_in_workers_give_the_embedded_results_in_their_order(restart: bool) -> None:
    found = run_local(CASES, buckets=3, restart=restart)
    for case, results in zip(CASES, found, strict=True):
        assert plain(results) == plain(embedded(case.plan, case.arrivals, flush=case.flush))


def test_an_empty_table_gives_nothing() -> None:
    results = run_local([Case(PLAN, Arrivals.empty(PLAN))])[0]
    assert (results.matches, len(results.outputs), len(results.ledger)) == ({}, 0, 0)
