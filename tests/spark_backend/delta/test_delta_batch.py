"""A user's own program: Delta tables written in the function of `ensue.streams`, once, whatever is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import ensue
from querylang.errors import InputError

QUERY = """
event A { float v; }
query Q { inputs { A() within 30 seconds; } find A as low -> A as high where high.v > low.v { print "up"; } }
"""
ROWS = [(0.0, "A", 1.0, 0, 1), (10.0, "A", 3.0, 0, 2), (90000.0, "A", 2.0, 0, 3), (90001.0, "A", 5.0, 0, 4)]
SCHEMA = "at double, event string, v double, partition int, offset int"


@pytest.fixture
def far_away(spark: SparkSession) -> Iterator[None]:
    """Spark gives times in the zone of the session, and tables have UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.usefixtures("far_away")
def test_a_micro_batch_that_is_repeated_is_in_each_table_once(tmp_path: Path, spark: SparkSession) -> None:
    source = tmp_path / "in"
    frame = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    frame.limit(2).write.parquet(str(source))
    calls: list[tuple[int, bool, bool]] = []

    def take(batch: ensue.Batch) -> None:
        matches = batch.write_delta(batch.matches["Q"], tmp_path / "matches", partition_by="day")
        outputs = batch.write_delta(batch.outputs.select("text"), tmp_path / "outputs")
        calls.append((batch.id, matches, outputs))
        if len(calls) in (1, 3):
            raise OSError("the program ends here")

    def run() -> None:
        streams = ensue.streams(spark.readStream.schema(SCHEMA).parquet(str(source)), QUERY)
        streams.write(take, checkpoint=str(tmp_path / "state"), trigger="availableNow").awaitTermination()

    with pytest.raises(Exception, match="the program ends here"):
        run()
    run()
    frame.offset(2).write.mode("append").parquet(str(source))
    with pytest.raises(Exception, match="the program ends here"):
        run()
    run()
    assert calls == [(0, True, True), (0, False, False), (1, True, True), (1, False, False)]
    found = DeltaTable(str(tmp_path / "matches")).to_pyarrow_table().to_pylist()
    assert sorted(str(row["day"]) for row in found) == ["1970-01-01", "1970-01-02"]
    assert DeltaTable(str(tmp_path / "outputs")).to_pyarrow_table().num_rows == 2
    assert len(list(tmp_path.glob("matches/day=*/*.parquet"))) == 2


def test_mistakes_are_named_before_anything_is_written(tmp_path: Path, spark: SparkSession) -> None:
    batch = ensue.batch(spark.createDataFrame(ROWS, SCHEMA), QUERY)
    matches = batch.matches["Q"]
    for columns, message in (("dya", "no column 'dya'"), ("key", "no column 'key'|'key' is not text")):
        with pytest.raises(InputError, match=message):
            batch.write_delta(matches, tmp_path / columns, partition_by=columns)
    with pytest.raises(InputError, match="http://host/table: Delta tables are written to folders, or to a URI"):
        batch.write_delta(matches, "http://host/table")
    assert batch.write_delta(matches, tmp_path / "t")
    with pytest.raises(InputError, match="has been written there already; write the union of both"):
        batch.write_delta(matches, str(tmp_path / "t"))
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 2
