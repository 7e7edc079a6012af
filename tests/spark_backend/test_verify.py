"""Records through batch and stream, cut and restarted anywhere: the embedded engine's results, row by row."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.replay.replay import in_order
from runtime.results.schemas import OUTPUT_SCHEMA, Results, discard_schema
from spark_backend.frames.verify import Case, run_bounded, run_streams
from tests.spark_backend.samples import PLAN, SEVERAL, arrivals_of
from tests.spark_backend.test_step import with_system_rows


def embedded(plan: Plan, arrivals: Arrivals, *, flush: bool) -> Results:
    engine = Engine(plan)
    found = [engine.process(arrivals), *([engine.flush()] if flush else [])]
    matches = {
        query.name: pa.concat_tables(result.matches[query.name] for result in found if query.name in result.matches)
        for query in plan.queries
        if any(query.name in result.matches for result in found)
    }
    discarded = [result.discarded for result in found if result.discarded is not None]
    return in_order(
        plan,
        Results(
            matches=matches,
            outputs=pa.concat_tables([OUTPUT_SCHEMA.empty_table(), *(result.outputs for result in found)]),
            discarded=pa.concat_tables([discard_schema(plan).empty_table(), *discarded]),
            ledger=engine.ledger(),
        ),
    )


def plain(results: Results) -> dict[str, object]:
    return {
        "matches": {name: without_rank(table) for name, table in results.matches.items()},
        "outputs": without_rank(results.outputs),
        "discarded": [] if results.discarded is None else results.discarded.to_pylist(),
        "ledger": results.ledger.to_pylist(),
    }


def without_rank(table: pa.Table) -> list[dict[str, object]]:
    return table.drop_columns("_rank").to_pylist()


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
