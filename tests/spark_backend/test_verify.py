"""Records through batch and stream, cut and restarted anywhere: the embedded engine's results, row by row."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from job_engine.operator.cases import Case
from runtime.columns.arrivals import Arrivals
from spark_backend.frames.verify import run_bounded, run_streams
from tests.spark_backend.samples import PLAN
from tests.support.cut_cases import CASES
from tests.support.embedded import embedded, plain


@pytest.mark.parametrize("restart", [True, False])
def test_many_cases_in_one_stream_give_the_embedded_results_in_their_order(spark: SparkSession, restart: bool) -> None:
    found = run_streams(CASES, restart=restart)
    for case, results in zip(CASES, found, strict=True):
        assert plain(results) == plain(embedded(case.plan, case.arrivals, flush=case.flush))


def test_many_cases_in_one_batch_give_the_embedded_results_in_their_order(spark: SparkSession) -> None:
    for case, results in zip(CASES, run_bounded(CASES), strict=True):
        assert plain(results) == plain(embedded(case.plan, case.arrivals, flush=case.flush))


def test_one_case_alone(spark: SparkSession) -> None:
    case = CASES[2]
    wanted = plain(embedded(case.plan, case.arrivals, flush=True))
    assert plain(run_bounded([case])[0]) == wanted
    assert plain(run_streams([Case(case.plan, case.arrivals, (50,))])[0]) == wanted


def test_an_empty_table_gives_nothing(spark: SparkSession) -> None:
    results = run_streams([Case(PLAN, Arrivals.empty(PLAN))])[0]
    assert (results.matches, len(results.outputs), len(results.ledger)) == ({}, 0, 0)
