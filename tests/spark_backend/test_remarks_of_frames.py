"""What surprises in DataFrames is reported: of types by the call, of values by workers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue

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
