"""`ensue.match`, `ensue.stream` and the commands that run on Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession, types

import ensue
from ensue import cli
from ensue.spark import type_of_column
from runtime.reading.inference.types import EventsOfStructs
from spark_backend import spark_operator
from spark_backend.session import get_session
from spark_backend.spark_operator import on_worker

TEXT = "inputs { A() key card within 30.0 wait 5.0; } find A as a -> A as b where b.v > a.v"
TABLE = pd.DataFrame(
    {
        "at": [1.0, 2.0, 3.0, 4.0, 5.0],
        "event": "A",
        "ts": [1.0, 2.0, 1.5, 4.0, 5.0],
        "card": ["x", "x", "y", "y", None],
        "v": [1.0, 2.0, 5.0, 6.5, 7.0],
        "offset": [1, 2, 3, 4, 5],
    }
)


@pytest.fixture(scope="module")
def session() -> SparkSession:
    return get_session("tests")


def test_who_sees_matches_only_is_told_of_discards(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers log the first of each reason; a batch has them all in a table."""
    names = []

    def noting(module: str, name: str, *arguments: object) -> object:
        names.append(name)
        return on_worker(module, name, *arguments)

    monkeypatch.setattr(spark_operator, "on_worker", noting)
    for call in (ensue.match, ensue.batch):
        call(session.createDataFrame(TABLE), TEXT)
    assert names == ["run_bounded_of_user", "run_bounded"]


def test_a_data_frame_gives_the_matches_of_a_replay(session: SparkSession) -> None:
    wanted = ensue.replay(TEXT, TABLE).matches
    found = ensue.match(session.createDataFrame(TABLE), TEXT)
    assert sorted(row["match_id"] for row in found.collect()) == sorted(wanted["match_id"])
    assert len(wanted) == 2


def test_slow_queries_are_named_before_the_first_row(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """How many rows a DataFrame has is known only when it has been read, so the estimate is for a million."""
    frame = session.createDataFrame(TABLE)
    slow = TEXT.replace("b.v > a.v", 'a.card + b.card = "xx"')
    estimate = "about 100 times slower than a kernel (50 s of a processor for a million rows, more where"
    ensue.match(frame, slow)
    ensue.batch(frame, slow)
    ensue.stream(session.readStream.schema(frame.schema).parquet(str(tmp_path)), slow)
    assert [estimate in line for line in caplog.messages if "reference matcher" in line] == [True] * 3
    caplog.clear()
    ensue.match(frame, TEXT)
    assert not [line for line in caplog.messages if "reference matcher" in line]


def test_a_streaming_data_frame_gives_a_streaming_one(session: SparkSession, tmp_path: Path) -> None:
    frame = session.createDataFrame(TABLE)
    stream = session.readStream.schema(frame.schema).parquet(str(tmp_path))
    assert ensue.stream(stream, TEXT).isStreaming
    assert ensue.stream(stream, TEXT, idle="1 minute").isStreaming
    assert ensue.stream(stream, TEXT, idle="none").isStreaming


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"clock": "wall"}, "clock: unknown clock 'wall'; expected arrival or processing"),
        ({"idle": "soon"}, "idle: 'soon' is not a duration; expected one such as '1 second' or '500ms', or 'none'"),
        ({"clock": "processing", "idle": "1s"}, "idle: has no effect with the clock 'processing'"),
    ],
)
def test_a_wrong_clock_is_refused(session: SparkSession, settings: dict[str, str], found: str) -> None:
    with pytest.raises(ensue.InputError, match=found):
        ensue.stream(session.createDataFrame(TABLE), TEXT, **settings)


def test_data_frames_have_orderings(session: SparkSession, tmp_path: Path) -> None:
    text = TEXT.replace(" wait 5.0", "")
    ordering = "stream_analytics late=1s over=card"
    wanted = ensue.replay(text, TABLE, ordering=ordering).matches
    found = ensue.match(session.createDataFrame(TABLE), text, ordering=ordering)
    assert sorted(row["match_id"] for row in found.collect()) == sorted(wanted["match_id"])
    assert len(wanted) == 2
    frame = session.readStream.schema(session.createDataFrame(TABLE).schema).parquet(str(tmp_path))
    assert ensue.stream({"north": frame}, text, ordering={"north": ordering}).isStreaming
    with pytest.raises(ensue.InputError, match="there is no source 'nord'; did you mean 'north'"):
        ensue.stream({"north": frame}, text, ordering={"nord": ordering})


def test_match_writes_parquet_and_verify_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.query").write_text(TEXT)
    Path("b").mkdir()
    files = ["e.csv", "b/e.csv", "a.csv"]  # two of one name; ties in the order given
    for file in files:
        TABLE.drop(columns="offset").to_csv(file, index=False)
    for arguments in (
        ["match", "q.query", *files, "--out", "found"],
        ["verify", "q.query", *files, "--batches", "2"],
    ):
        monkeypatch.setattr(sys, "argv", ["ensue", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code
    wanted = ensue.replay("q.query", files).matches
    assert sorted(pyarrow.parquet.read_table("found")["match_id"].to_pylist()) == sorted(wanted["match_id"])
    assert capsys.readouterr().out == (
        "6 matches in found\nembedded = local = batch = stream (2 micro-batches): 6 matches, 0 outputs, 3 discards\n"
    )


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        (types.BooleanType(), "boolean"),
        (types.ShortType(), "integer"),
        (types.FloatType(), "float"),
        (types.TimestampType(), "float"),
        (types.DecimalType(38, 18), "decimal"),
        (types.DecimalType(38, 0), "float"),
        (types.StringType(), "string"),
        (types.ArrayType(types.ArrayType(types.LongType())), "sequence<sequence<integer>>"),
        (types.MapType(types.StringType(), types.DoubleType()), "dictionary<string,float>"),
        (types.StructType([types.StructField("a", types.LongType())]), "A_x"),
        (types.VariantType(), "None"),
    ],
)
def test_a_column_of_a_data_frame_has_the_type_of_the_same_column_elsewhere(column: types.DataType, type_: str) -> None:
    assert str(type_of_column(column, "A_x", EventsOfStructs())) == type_


PARAMETERS = "query Q { parameters { float least; } inputs { A(v >= least) within 30.0; } find A as a }"


def test_parameters_make_instances_on_spark_too(session: SparkSession) -> None:
    parameters = {"Q": {"some": {"least": 5.0}, "few": {"least": 6.5}}}
    wanted = ensue.replay(PARAMETERS, TABLE, parameters=parameters).matches
    found = ensue.match(session.createDataFrame(TABLE), PARAMETERS, parameters=parameters)
    rows = [(row["instance"], row["match_id"]) for row in found.collect()]
    assert sorted(rows) == sorted(zip(wanted["instance"], wanted["match_id"], strict=True))
    assert sorted(instance for instance, _ in rows) == ["few", "few", "some", "some", "some"]


@pytest.mark.parametrize("call", [ensue.match, ensue.batch, ensue.stream, ensue.streams])
def test_what_is_not_a_data_frame_of_spark_is_refused(call: Callable[..., object]) -> None:
    text = "inputs { A() retain 1; } find A as a"
    with pytest.raises(
        ensue.InputError, match=r"^a DataFrame is not a DataFrame of Spark; `ensue.replay` is for other"
    ):
        call(pd.DataFrame({"at": [1]}), text)
    with pytest.raises(ensue.InputError, match=r"^a str is not a DataFrame of Spark; give DataFrames first"):
        call(text, pd.DataFrame({"at": [1]}))


@pytest.mark.parametrize("is_exact", ["true", "false"])
def test_columns_may_have_any_names(session: SparkSession, is_exact: str) -> None:
    """Spark takes dots and backquotes apart, and may not tell upper from lower case."""
    session.conf.set("spark.sql.caseSensitive", is_exact)
    try:
        rows = [(float(n), n, 1, 2, 3, 4, 5) for n in range(3)]
        frame = session.createDataFrame(rows).toDF("at", "n", "x", "X", "a`b", "c.d", "e f")
        query = "query Q { inputs { E() within 1 hour; } find E as a -> E as b where b.n = a.n + 1 and b.`c.d` = 4 }"
        found = ensue.match(frame, query).collect()
        assert [list(row["b"]["fields"].asDict().values()) for row in found] == [[n, 1, 2, 3, 4, 5] for n in (1, 2)]
    finally:
        session.conf.unset("spark.sql.caseSensitive")


def test_columns_of_any_type_lose_no_row_of_a_data_frame(session: SparkSession) -> None:
    frame = session.sql(
        "select cast(id as double) at, id n, array(1, null) l, map('k', cast(null as int)) m, null v, array() e,"
        " named_struct('p', array(1, null)) s, named_struct('a', 1, 'a', 2) d, binary('b') b, interval '1' day i,"
        " map(array(1), 2) k from range(3)"
    )
    query = "query Q { inputs { E() within 1 hour; } find E as a -> E as b where b.n = a.n + 1 and a.l.size() = 2 }"
    assert ensue.match(frame, query).count() == 2
