"""Ordering policies through Spark, cut into micro-batches with restarts: the embedded results, the account, the status."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from ensue.commands.status_text import status_text
from job_engine.deployment_file import load_deployment
from job_engine.job.compilation import compile_deployment
from job_engine.job.job import run
from job_engine.job.reports import RunReport
from job_engine.job.status import Status, status_of
from job_engine.operator.cases import Case
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import Results
from spark_backend.case_runs import run_streams
from tests.spark_backend.samples import POLICIES, ordered, places
from tests.support.embedded import by_word, embedded, ledger_of, match_ids, plain
from tests.support.sensors import add_files

QUERY = """\
event Reading { string sensor; float value; }

query Rise {
    inputs { Reading() key sensor within 20.0; }
    find Reading as first -> Reading as second where second.value > first.value + 50.0
}
"""

DEPLOYMENT = """\
name: readings
queries: [rise.query]
sources:
  meters:
    format: csv
    path: meters
    event: Reading
    options: {maxFilesPerTrigger: 1}
    ordering: {policy: stream_analytics, late: 4s, out_of_order: 2s, early: 3s, action: drop}
sinks:
  matches:   {format: parquet, path: out/matches}
  discarded: {format: parquet, path: out/discarded}
  ledger:    {format: parquet, path: out/ledger}
buckets: 3
checkpoint: state
"""


def test_every_policy_gives_the_embedded_results_through_restarts(spark: SparkSession) -> None:
    plans = [ordered(policy) for policy in POLICIES.values()]
    cases = [Case(plan, places(150, seed=seed), (40, 41, 100), flush=seed % 2 == 0) for seed, plan in enumerate(plans)]
    cases = [Case(case.plan, in_order_of_arrival(case.arrivals), case.splits, case.flush) for case in cases]
    for name, case, results in zip(POLICIES, cases, run_streams(cases), strict=True):
        assert plain(results) == plain(embedded(case.plan, case.arrivals, flush=case.flush)), name


def in_order_of_arrival(arrivals: Arrivals) -> Arrivals:
    order = [(f"_{name}", "ascending") for name in ("arrival", "source", "partition", "offset")]
    table = arrivals.table.append_column("_name", arrivals.table["_source"].cast("string"))
    keys = [("_name" if name == "_source" else name, way) for name, way in order]
    return Arrivals(table.sort_by(keys).drop_columns("_name"))


def rows() -> pd.DataFrame:
    """Two partitions; some readings are late, some early, some out of order; the second ends half-way."""
    random = np.random.default_rng(5)
    at = 1_700_000_000 + np.arange(900) * 0.1
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(at, unit="s", utc=True).round("us"),
            "ts": pd.to_datetime(
                at - random.random(900) * 5 + (random.random(900) > 0.97) * 9, unit="s", utc=True
            ).round("us"),
            "partition": random.integers(0, 2, 900),
            "offset": np.arange(900),
            "sensor": [f"s{number}" for number in random.integers(0, 8, 900)],
            "value": random.random(900) * 100,
        }
    )
    return frame[(frame["partition"] == 0) | (frame.index < 450)]


@dataclass(frozen=True, slots=True)
class Finished:
    """A job after two runs; its last file came between them."""

    deployment: Path
    report: RunReport
    status: Status


def project(folder: Path) -> Path:
    (folder / "meters").mkdir()
    (folder / "rise.query").write_text(QUERY)
    (folder / "readings.yaml").write_text(DEPLOYMENT)
    return folder / "readings.yaml"


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("ordering")
    path, table = project(folder), rows()
    add_files(folder, table[:-200], 2, kind="csv", source="meters")
    run(path, once=True)
    add_files(folder, table[-200:], 1, first=2, kind="csv", source="meters")
    report = run(path, once=True, flush=True)
    return Finished(path, report, status_of(path))


def of_one_engine(job: Path) -> Results:
    plan = compile_deployment(load_deployment(job), None).plan
    files = sorted((job.parent / "meters").iterdir())
    return embedded(plan, Arrivals.concat([read_arrivals(path, plan, source=f"meters/{path.name}") for path in files]))


def test_a_deployment_gives_the_matches_of_one_engine(finished: Finished) -> None:
    wanted = match_ids(of_one_engine(finished.deployment))["Rise"]
    found = pd.read_parquet(finished.deployment.parent / "out" / "matches")
    assert sorted(found["match_id"]) == wanted
    assert len(wanted) > 50


def test_a_deployment_gives_the_account_of_one_engine(finished: Finished) -> None:
    account = ledger_of(of_one_engine(finished.deployment).ledger.to_pylist())
    assert by_word(finished.report.ledger) == by_word(account)
    assert {"early", "late", "out_of_order"} < {what for _, _, what in account}
    folder = finished.deployment.parent / "out" / "ledger"
    written = f"select query, source, what, sum(count)::int from '{folder}/*.parquet' group by all"
    assert {tuple(row[:3]): row[3] for row in duckdb.sql(written).fetchall() if row[3]} == account


def test_the_status_names_the_timeline_that_holds_definitive_time_back(finished: Finished) -> None:
    (query,) = finished.status.queries
    assert query.order == "ordered by source partition"
    assert [(line.timeline, line.holds_back) for line in query.timelines] == [("meters/0", False), ("meters/1", True)]
    assert "one task: ordered by source partition" in status_text(finished.status)


def test_what_parallelism_is_left_is_told_at_the_start(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = project(tmp_path)
    add_files(tmp_path, rows()[:100], 1, kind="csv", source="meters")
    run(path, once=True)
    told = [message for message in caplog.messages if "records are late" not in message]
    assert told == ["query Rise: ordered by source partition, runs as one task"]


def test_another_ordering_on_the_same_checkpoint_is_refused(finished: Finished) -> None:
    other = finished.deployment.with_name("other.yaml")
    other.write_text(DEPLOYMENT.replace("late: 4s", "late: 5s"))
    with pytest.raises(InputError, match="in 'meters' 'ordering' was"):
        run(other, once=True)
