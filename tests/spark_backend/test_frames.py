"""DataFrames of the user's own: bounded in, matches out; streaming in, tagged rows out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import querylang
from job_engine.sources.reading import Reading
from job_engine.wire.tagged_rows import Tag
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.engine.engine import Engine
from runtime.reading.tables import read_arrivals
from spark_backend.frame_matching import match_tagged, stream
from spark_backend.frames import decode, matches_frame
from spark_backend.source_stream import register
from spark_backend.spark_operator import on_worker
from tests.support.embedded import embedded, match_ids
from tests.support.sensors import QUERY, table


def plan_of(*names: str) -> Plan:
    plan = querylang.compile_text(QUERY).plan
    return Plan(plan.events, tuple(plan.query(name) for name in names))


def with_places(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(source="table", partition=0, offset=np.arange(1, len(rows) + 1), unused="x" * 100)


def ids(plan: Plan, rows: pd.DataFrame, query: str) -> list[str]:
    return match_ids(embedded(plan, read_arrivals(rows, plan)))[query]


def match(frame: DataFrame, plan: Plan, reading: Reading | None = None) -> DataFrame:
    return matches_frame(match_tagged(frame, plan, reading=reading), plan)


def column(frame: DataFrame, name: str) -> list[str]:
    return sorted(row[name] for row in frame.select(name).collect())


def test_one_query_gives_typed_matches(spark: SparkSession) -> None:
    plan, rows = plan_of("Rise"), with_places(table(1000))
    found = match(spark.createDataFrame(rows).repartition(3), plan)
    assert found.columns[:4] == ["match_id", "query", "instance", "key"]
    assert dict(found.dtypes)["key"] == "struct<sensor:string>"
    assert column(found, "match_id") == ids(plan, rows, "Rise")


def test_several_queries_give_the_columns_that_all_have(spark: SparkSession) -> None:
    plan, rows = plan_of("Rise", "Jump"), with_places(table(1000))
    found = match(spark.createDataFrame(rows), plan)
    assert found.columns == ["match_id", "query", "instance", "time", "definitive", "emitted", "waited"]
    assert column(found.where("query = 'Jump'"), "match_id") == ids(plan, rows, "Jump")


def test_only_columns_that_the_plan_needs_leave_the_jvm(spark: SparkSession) -> None:
    frame = match_tagged(spark.createDataFrame(with_places(table(10))), plan_of("Rise"))
    text = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "unused" not in text.split("MapInArrow")[-1].split("\n")[1]


def test_rows_without_coordinates_get_some_that_do_not_repeat(spark: SparkSession) -> None:
    plan, rows = plan_of("Rise"), table(1000)
    found = match(spark.createDataFrame(rows).repartition(4), plan)
    assert found.count() == len(ids(plan, rows, "Rise")) == found.select("match_id").distinct().count()


@pytest.mark.parametrize("reading", [Reading(arrival="time"), Reading(type_field="kind"), Reading(source_time="date")])
def test_a_column_that_is_declared_and_not_there_is_refused_before_anything_runs(
    spark: SparkSession, reading: Reading
) -> None:
    frame = spark.createDataFrame(table(3))
    with pytest.raises(InputError, match=r"has no column '(time|kind|date)'"):
        match(frame, plan_of("Rise"), reading=reading)


@pytest.mark.parametrize("has_places", [True, False])
def test_a_stream_of_rows_gives_tagged_rows(spark: SparkSession, tmp_path: Path, has_places: bool) -> None:
    plan = plan_of("Rise")
    rows = with_places(table(900)) if has_places else table(900)
    (tmp_path / "data").mkdir()
    for number, part in enumerate(np.array_split(np.arange(900), 3)):
        frame = spark.createDataFrame(rows.iloc[part])
        frame.coalesce(1).write.parquet(str(tmp_path / "data" / f"{number}"))
    source = (
        spark.readStream.schema(spark.createDataFrame(rows[:1]).schema)
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(tmp_path / "data"))
    )
    tagged, _ = stream({"table": source}, plan, buckets=2)
    assert tagged.isStreaming
    assert tagged.columns == ["bucket", "kind", "query", "rows", "data"]
    matches = decode(tagged, plan, Tag.MATCH, "Rise")
    query = (
        matches.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out"))
    engine = Engine(plan)
    result = engine.process(read_arrivals(rows, plan))
    wanted = sorted(result.matches["Rise"].column("match_id").to_pylist())
    assert found.count() == len(wanted)
    assert found.select("match_id").distinct().count() == len(wanted)
    if has_places:
        assert column(found, "match_id") == wanted


def test_an_executor_without_ensue_says_so() -> None:
    run = on_worker("spark_backend.not_installed_there", "pack_rows")
    with pytest.raises(RuntimeError, match="Ensue cannot be imported on a Spark executor"):
        list(run(iter(())))


CARDS = querylang.compile_text(
    "event A { float V; string k; }\ninputs { A() key k within 30.0; } find A as a1 -> A as a2"
).plan


def test_columns_are_found_in_any_case(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x", 1.0, 0, 1), (2, "x", 2.0, 0, 2)], ["AT", "K", "v", "Partition", "OFFSET"])
    assert match(frame, CARDS).count() == 1


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["AT", "At", "k", "V"], "DataFrame 'table': has no column 'at', but 'AT' and 'At'; rename one"),
        (["at", "k", "k", "V"], "DataFrame 'table': duplicate column 'k'"),
        (["at", "kk", "V", "x"], "table: has no column 'k', a field of 'A'; did you mean 'kk'?"),
        (["at", "event", "kk", "V"], "table: has no column 'k', a field of 'A'; did you mean 'kk'?"),
        (["when", "k", "V", "x"], "table: has neither a column 'at', the arrival time, nor a column 'ts'"),
    ],
)
def test_columns_that_are_not_there_or_twice_are_told(spark: SparkSession, columns: list[str], told: str) -> None:
    frame = spark.createDataFrame([(1, 1, 1, 1)], [f"c{number}" for number in range(4)]).toDF(*columns)
    with pytest.raises(InputError) as raised:
        match(frame, CARDS)
    assert str(raised.value).startswith(told)


def test_columns_of_events_that_a_source_need_not_have_may_be_missing(spark: SparkSession) -> None:
    both = querylang.compile_text(
        "event A { float V; string k; }\nevent B { string k; }\n"
        "inputs { A() key k within 30.0; B() key k within 30.0; } find A as a -> B as b"
    ).plan
    frame = spark.createDataFrame([(1.0, "B", "x")], "at double, event string, k string")
    assert match(frame, both).count() == 0


def test_rows_without_coordinates_are_taken_in_the_order_of_their_content(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pd.DataFrame({"at": np.arange(60) // 6, "k": "x", "V": np.random.default_rng(3).permutation(60) / 4})

    def found(frame: DataFrame) -> list[tuple[float, float]]:
        fields = [(row.a1.fields.V, row.a2.fields.V) for row in match(frame, CARDS).collect()]
        return sorted(fields)

    wanted = found(spark.createDataFrame(rows).coalesce(1))
    assert "DataFrame 'table' has no column 'partition' and no column 'offset'" in caplog.text
    shuffled = rows.sample(frac=1, random_state=1)
    assert found(spark.createDataFrame(shuffled).repartition(3)) == wanted


def test_a_session_may_know_the_data_source_already(spark: SparkSession) -> None:
    for session in (spark, spark.newSession(), spark):
        register(session)
        register(session)


def test_a_session_that_is_not_the_active_one_gets_the_data_source(spark: SparkSession) -> None:
    register(spark)
    spark.createDataFrame([(1,)], "a int")  # makes it the active session
    other = spark.newSession()
    register(other)
    assert other.readStream.format("ensue_files").load().isStreaming
    assert SparkSession.getActiveSession() is spark
