"""What surprises in DataFrames is reported: of types by the call, of values by workers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue
from job_engine.wire.tagged_rows import Tag, read_table
from tests.support.waiting import LONGEST

OPEN = "query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.n > a.n }"
DEFINED = f"event A {{ string k; integer n; string note; }}\n{OPEN}"
WHOLE = "at double, offset long, partition int, k string, n long, note string"
SHORT = "at double, offset long, partition int, k string, n long"


def frames(spark: SparkSession) -> Mapping[str, DataFrame]:
    return {
        "long": spark.createDataFrame([(1.0, 1, 0, "x", 1, "a"), (2.0, 2, 0, "x", 2, "b")], WHOLE).coalesce(1),
        "short": spark.createDataFrame([(3.0, 1, 0, "x", 3), (4.0, 2, 0, "x", 4)], SHORT).coalesce(1),
    }


def test_a_data_frame_without_the_key_is_refused(spark: SparkSession) -> None:
    given = frames(spark)
    given = {**given, "short": given["short"].drop("k")}
    with pytest.raises(ensue.InputError, match="short: has no column 'k', which 'A' has as its key or time"):
        ensue.match(given, DEFINED)


def test_what_types_say_is_told_once(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[tuple[Any, ...]] = [(1.0, "x", 1, Decimal(1), None), (2.0, "x", 2, Decimal(2), None)]
    frame = spark.createDataFrame(rows, "at double, k string, n long, v decimal(38,0), w interval day to second")
    text = OPEN.replace("b.n > a.n", "b.n / 2 >= a.n / 2")
    for call in (ensue.match, ensue.batch):
        caplog.clear()
        call(frame, text)
        told = [message for message in caplog.messages if "offset" not in message]
        assert len(told) == len(set(told)) == 3, told


TIMED = """@TimeFrom("getTime") @OutOfOrder()
event A { string k; integer n; float s; action getTime() returns float { return s; } }
query Q { inputs { A() key k within 30.0 wait 5.0; } find A as a -> A as b }"""
DATES = "at double, offset long, partition int, k string, n long, s double"
SHORT_TOLD = "short: has no column 'note', which other tables have: it is null there"


def dates(spark: SparkSession) -> DataFrame:
    rows = [(1.0, 1, 0, "x", 1, 20240101.0), (2.0, 2, 0, "x", 2, 20240102.0)]
    return spark.createDataFrame(rows, DATES).coalesce(1)


def reports(batch: ensue.Batch) -> list[tuple[str, str, int, str]]:
    """What workers report: a table of each report's row."""
    tagged = batch._tagged.where(f"kind = '{Tag.REPORT}'").collect()
    rows = [row for item in tagged for row in read_table(bytes(item["data"])).to_pylist()]
    return [tuple(row[name] for name in ("cause", "field", "count", "example")) for row in rows]


def test_a_column_that_a_data_frame_lacks_is_reported(spark: SparkSession) -> None:
    assert reports(ensue.batch(frames(spark), DEFINED)) == [("missing_column", "note", 1, SHORT_TOLD)]


def test_numbers_like_dates_in_a_data_frame_are_reported(spark: SparkSession) -> None:
    ((cause, _, _, example), *others) = reports(ensue.batch(dates(spark), TIMED))
    assert (cause, others) == ("odd_times", [])
    assert example.startswith("table: ")


def test_the_reports_of_a_stream_are_those_of_its_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    streams = {}
    for name, frame in frames(spark).items():
        frame.write.parquet(str(tmp_path / name))
        streams[name] = spark.readStream.schema(frame.schema).parquet(str(tmp_path / name))
    found: list[tuple[str, str, int, str]] = []
    query = ensue.streams(streams, DEFINED).write(
        lambda batch: found.extend(reports(batch)), checkpoint=str(tmp_path / "state"), trigger="availableNow"
    )
    assert query.awaitTermination(LONGEST)
    assert found == [("missing_column", "note", 1, SHORT_TOLD)]
