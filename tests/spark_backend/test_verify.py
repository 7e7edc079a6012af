"""Records through batch and stream, cut and restarted anywhere: the embedded engine's results, row by row."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

import ensue
import querylang
from job_engine.operator.cases import Case
from runtime.columns.arrivals import Arrivals
from runtime.reading.tables import read_arrivals
from spark_backend.case_runs import run_bounded, run_streams
from tests.spark_backend.samples import PLAN
from tests.support.books import book, rows
from tests.support.cut_cases import CASES
from tests.support.embedded import embedded, plain


def test_many_cases_in_one_stream_give_the_embedded_results_in_their_order(spark: SparkSession) -> None:
    for case, results in zip(CASES, run_streams(CASES), strict=True):
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


def books() -> list[Case]:
    """Random programs whose queries feed each other, over random rows, cut anywhere."""
    found = []
    for seed in range(12):
        chance = random.Random(seed)
        program = book(chance)
        program = replace(program, queries=sorted(program.queries))  # rows of one step are shown in this order
        plan = querylang.compile_text(program.text).plan
        arrivals = read_arrivals(rows(chance, program.from_sources), plan)
        cut = chance.randrange(len(arrivals))
        found.append(Case(plan, arrivals, (cut,) if cut else (), flush=chance.random() < 0.5))
    return found


def test_queries_that_feed_each_other_give_the_embedded_results(spark: SparkSession) -> None:
    cases = books()
    for run in (run_bounded, lambda cases: run_streams(cases, restart=False)):
        for case, results in zip(cases, run(cases), strict=True):
            assert plain(results) == plain(embedded(case.plan, case.arrivals, flush=case.flush))


CHAIN = """event Login { string host; boolean ok; }
event Suspect { string host; integer failures; }
query Burst { inputs { Login(ok = false) key host within 9.0; }
    find every Login as l select count() as n having count() = 2 { route Suspect(host, n); } }
query Taken { inputs { Suspect() key host within 9.0; Login(ok = true) key host within 9.0; }
    find Suspect as s -> Login as l }"""


def test_dataframes_need_no_fields_of_what_is_routed(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(at, "Login", host, at % 3 == 0) for at, host in enumerate("aaabbb", 1)]
    frame = spark.createDataFrame(rows, "at long, event string, host string, ok boolean")
    assert {row["query"] for row in ensue.match(frame, CHAIN).collect()} == {"Burst", "Taken"}
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = ensue.stream(spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")), CHAIN)
    writer = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "state"))
    writer.format("parquet").option("path", str(tmp_path / "out")).start().awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).groupBy("query").count().count() == 2
