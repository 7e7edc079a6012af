"""Which columns of DataFrames are ours, and DataFrames that differ by a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import ensue
from ensue.data_options import DataOptions
from ensue.spark import match_files
from spark_backend.session import get_session

PAIRS = "event A { string k; integer n; } query Q { inputs { A() key k retain 2; } find A as a -> A as b }"
OPEN = "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.n > a.n }"
ROWS = [{"at": float(place), "k": "x", "n": place} for place in range(4)]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return get_session("tests", cores=2)


def with_column(name: str, *values: Any) -> list[dict[str, Any]]:
    return [row | {name: value} for row, value in zip(ROWS, values, strict=True)]


def test_columns_that_users_name(spark: SparkSession) -> None:
    rows = [row | {"event": "B", "part": "north", "number": 5 * row["n"]} for row in ROWS]
    frame = spark.createDataFrame(rows)
    found = ensue.match(frame, PAIRS, type="none", partition_column="part", offset_column="number").collect()
    replayed = ensue.replay(PAIRS, rows, type="none", partition_column="part", offset_column="number")
    assert sorted(row.match_id for row in found) == sorted(replayed.matches["match_id"])


@pytest.mark.parametrize("text", [PAIRS, OPEN])
def test_frames_may_differ_by_a_column(spark: SparkSession, text: str) -> None:
    short = [{"at": 10.0, "k": "x"}, {"at": 11.0, "k": "x"}]
    found = ensue.match({"a": spark.createDataFrame(ROWS), "b": spark.createDataFrame(short)}, PAIRS)
    assert found.count() == 5


def test_files_that_differ_by_a_column(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("at,k,n,event\n0,x,0,s\n1,x,1,t\n")
    (tmp_path / "2.csv").write_text("at,k\n2,x\n3,x\n")
    paths = [tmp_path / "1.csv", tmp_path / "2.csv"]
    found = match_files(ensue.load(PAIRS), paths, DataOptions()).collect()
    assert sorted(row.match_id for row in found) == sorted(ensue.replay(PAIRS, paths).matches["match_id"])
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("event", ("start", "stop", "start", "stop")),
        ("event", ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 1})),
        ("source", ({"ip": "a"}, {"ip": "b"}, {"ip": "a"}, {"ip": "a"})),
        ("offset", (1, 2, 1, 2)),
        ("offset", ("+01:00", "+02:00", "+01:00", "+01:00")),
        ("partition", (1.5, 2.5, 1.5, 1.5)),
    ],
)
def test_a_column_that_cannot_be_ours_is_a_field(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, name: str, values: tuple[Any, ...]
) -> None:
    found = ensue.match(spark.createDataFrame(with_column(name, *values)), PAIRS).collect()
    assert len(found) == len({row.match_id for row in found}) == 3
    assert f"DataFrame 'table': '{name}' is a field" in caplog.text


def test_a_query_reads_a_field_called_like_ours(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    text = OPEN.replace("b.n > a.n", "b.source.ip = a.source.ip and b.offset > a.offset")
    rows = [row | {"source": {"ip": "a"}, "offset": row["n"]} for row in ROWS]
    assert (
        ensue.match(
            spark.createDataFrame(rows, "at double, k string, n long, source struct<ip:string>, offset long"), text
        ).count()
        == 3
    )
    assert "'offset' is a field, not the offset of records: a query reads it" in caplog.text


def test_coordinates_of_a_frame_are_ours(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    rows = [row | {"partition": 0, "offset": row["n"], "source": "s", "event": "A"} for row in ROWS]
    found = ensue.match(spark.createDataFrame(rows), PAIRS).collect()
    assert sorted(row.match_id for row in found) == sorted(ensue.replay(PAIRS, rows).matches["match_id"])
    assert "is a field" not in caplog.text
