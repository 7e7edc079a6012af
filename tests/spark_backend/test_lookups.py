"""Tables beside the stream on Spark: batch and streams give what brute force finds, and what the embedded run gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import ensue
from ensue import executors
from ensue.data_options import DataOptions
from ensue.embedded import read
from job_engine.job.job import run
from tests.support.lookup_cases import every, of_results, two_steps, wanted

QUERY = """table Asset { key string host; integer level; string owner; }
event A { string host; }
query Q {
    inputs { A(Asset.hasKey(host)) within 1 hour; }
    find A as one -> A as two
        where Asset[one.host].level < Asset[two.host].level {
        print Asset[two.host].owner;
    }
}"""

TABLES = {"Asset": [{"host": "a", "level": 1, "owner": "ann"}, {"host": "b", "level": 2, "owner": "bob"}]}

ROWS = [(1.0, "a", 0, 1), (2.0, "c", 0, 2), (3.0, "b", 0, 3)]
COLUMNS = ["at", "host", "partition", "offset"]


def test_random_cases_in_batch_and_as_streams() -> None:
    cases = [two_steps(4_200_001 + 2 * seed) for seed in range(8)] + [every(4_200_000 + 4 * seed) for seed in range(2)]
    ready = [read(case.text, case.rows, DataOptions(tables=case.tables)) for case in cases]
    jobs = [
        executors.Job(item.plan, item.records, True, executors.even_splits(len(case.rows), 2))
        for item, case in zip(ready, cases, strict=True)
    ]
    for executor in (executors.batch, executors.stream):
        for case, results in zip(cases, executor(jobs), strict=True):
            assert of_results(case, results) == wanted(case), case.text


def test_frames_of_users(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(ROWS, COLUMNS)
    batch = ensue.batch(frame, QUERY, tables=TABLES)
    assert [row["text"] for row in batch.outputs.collect()] == ["bob"]
    frame.write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    found = ensue.stream(source, QUERY, tables=TABLES).writeStream.format("parquet")
    query = found.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    query.start(str(tmp_path / "out")).awaitTermination()
    rows: list[Any] = spark.read.parquet(str(tmp_path / "out")).select("one.fields.host", "two.fields.host").collect()
    assert [tuple(row) for row in rows] == [("a", "b")]


def test_a_table_that_nobody_gives_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(ensue.InputError, match="table 'Asset' has no content"):
        ensue.batch(spark.createDataFrame(ROWS, COLUMNS), QUERY)


def test_a_job_of_spark_takes_versions_as_the_local_engine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_engine.job.lookup_files.APART", 0.01)
    (tmp_path / "q.query").write_text(QUERY)
    found = {}
    for engine in ("spark", "local"):
        folder = tmp_path / engine
        (folder / "in").mkdir(parents=True)
        deployment = {
            "name": "lookups",
            "engine": engine,
            "queries": str(tmp_path / "q.query"),
            "sources": {"logins": {"format": "csv", "path": str(folder / "in"), "event": "A"}},
            "sinks": {"matches": {"format": "json", "path": str(folder / "out")}},
            "tables": {"Asset": {"path": str(folder / "assets"), "format": "delta"}},
            "buckets": 1,
            "checkpoint": str(folder / "state"),
        }
        for number, level in enumerate((1, 3)):
            assets = pa.table({"host": ["a", "b"], "level": [level, 2], "owner": ["ann", "bob"]})
            write_deltalake(str(folder / "assets"), assets, mode="overwrite", partition_by=["owner"])
            hosts = "".join(f"{10 * number + at},{host}\n" for at, host in enumerate("abcab"))
            (folder / "in" / f"{number}.csv").write_text(f"at,host\n{hosts}")
            job = folder / "job.yaml"
            job.write_text(json.dumps(deployment))
            run(job, once=True)
        files = sorted((folder / "out").rglob("*.json"))
        found[engine] = [json.loads(line)["match_id"] for file in files for line in file.read_text().splitlines()]
    assert sorted(found["spark"]) == sorted(found["local"])
    assert len(found["spark"]) == 6  # b after a twice; then also a after b, and b after the a of the first version
