"""`ensue.stream`, `ensue.streams` and `ensue.batch` on real micro-batches, in the user's own session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ensue
from job_engine.wire.tagged_rows import Tag, TaggedRow
from spark_backend.session import get_session
from spark_backend.worker_functions import warn_of_first_ones
from tests.support.waiting import LONGEST

EVENTS = """
@TimeFrom("getTime") @OutOfOrder()
event A { string k; float v; float s; action getTime() returns float { return s; } }
"""
INPUTS = "inputs { A() key k within 30.0 wait 5.0; }"
TEXT = f"""{EVENTS}
query Q {{ {INPUTS} find A as a -> A as b where b.v > a.v {{ print b.k; }} }}
query P {{ {INPUTS} find A as a where a.v > 0.8 }}
"""
SINGLE = f"{EVENTS}\nquery Q {{ {INPUTS} find A as a -> A as b where b.v > a.v }}"
ROWS = pd.DataFrame(
    {
        "at": [float(number) for number in range(60)],
        "k": ["x", "y", "z"] * 20,
        "v": [number * 7 % 11 / 10 for number in range(60)],
        "s": [float(number) - (20.0 if number % 13 == 12 else 0.0) for number in range(60)],
        "partition": 0,
        "offset": range(1, 61),
    }
)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    session = get_session("tests", cores=2)
    before = settings(session)
    yield session
    assert settings(session) == before


def settings(session: SparkSession) -> dict[str, str]:
    found = session.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        session._jsparkSession.conf().getAll()
    )
    return dict(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files with the first two thirds of the rows."""
    for number in range(2):
        write(tmp_path / "in", number)
    return tmp_path


def write(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    ROWS[number * 20 : (number + 1) * 20].to_parquet(folder / f"{number}.parquet", index=False)


def source(session: SparkSession, folder: Path) -> DataFrame:
    reader = session.readStream.schema(session.createDataFrame(ROWS[:1]).schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "in"))


def started(frame: DataFrame, folder: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "state"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    assert query.awaitTermination(LONGEST), "it ends by itself"
    return query


def without_flush(rows: pd.DataFrame, text: str) -> ensue.Replay:
    return ensue.replay(text, rows, flush=False)


def test_a_stream_of_matches_ends_and_continues_from_its_checkpoint(session: SparkSession, folder: Path) -> None:
    frame = ensue.stream(source(session, folder), SINGLE, flat=True)
    assert frame.columns[:5] == ["match_id", "query", "instance", "k", "time"]
    assert {"a_v", "b_v", "b_offset", "a_time"} < set(frame.columns)
    first = started(frame, folder)
    wanted = without_flush(ROWS[:40], SINGLE)
    assert matches(session.read.parquet(str(folder / "out"))) == sorted(wanted.matches["match_id"])
    counts = [progress["observedMetrics"].get("ensue") for progress in map(as_dict, first.recentProgress)]
    assert sum(row["discarded"] for row in counts if row) == len(wanted.discarded) > 0
    assert sum(row["matches"] for row in counts if row) == len(wanted.matches)
    write(folder / "in", 2)
    started(ensue.stream(source(session, folder), SINGLE, flat=True), folder)
    whole = without_flush(ROWS, SINGLE).matches
    assert matches(session.read.parquet(str(folder / "out"))) == sorted(whole["match_id"])


def as_dict(progress: Any) -> dict[str, Any]:
    return dict(progress) if isinstance(progress, dict) else dict(__import__("json").loads(progress.json))


def matches(frame: DataFrame) -> list[str]:
    return sorted(row["match_id"] for row in frame.select("match_id").collect())


def test_process_all_available_ends(session: SparkSession, folder: Path) -> None:
    frame = ensue.stream(source(session, folder), SINGLE)
    query = frame.writeStream.format("memory").queryName("found").outputMode("append").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert matches(session.table("found")) == sorted(without_flush(ROWS[:40], SINGLE).matches["match_id"])


def test_a_function_gets_all_results_of_each_micro_batch(session: SparkSession, folder: Path) -> None:
    found: dict[int, dict[str, Any]] = {}

    def take(batch: ensue.Batch) -> None:
        found[batch.id] = {
            "Q": matches(batch.matches["Q"]),
            "P": [row["a"]["fields"]["v"] for row in batch.matches["P"].collect()],
            "outputs": [row["text"] for row in batch.outputs.collect()],
            "discarded": [(row["query"], row["offset"]) for row in batch.discarded.collect()],
            "ledger": {(row["query"], row["what"]): row["count"] for row in batch.ledger.collect()},
        }

    for part in ([0, 1], [2]):
        if part == [2]:
            write(folder / "in", 2)
        streams = ensue.streams(source(session, folder), TEXT)
        query = streams.write(take, checkpoint=str(folder / "state"), trigger="availableNow")
        assert query.awaitTermination(LONGEST)
    assert sorted(found) == [0, 1, 2]
    wanted = without_flush(ROWS, TEXT)
    assert joined(found, "Q") == sorted(wanted.matches_of("Q")["match_id"])
    assert joined(found, "P") == sorted(wanted.matches_of("P")["a.v"])
    assert joined(found, "outputs") == sorted(wanted.outputs["text"])
    discarded = wanted.discarded
    assert joined(found, "discarded") == sorted(zip(discarded["query"], discarded["offset"], strict=True))
    total: dict[tuple[str, str], int] = {}
    for batch in found.values():
        for key, count in batch["ledger"].items():
            total[key] = total.get(key, 0) + count
    ledger = wanted.ledger
    expected = zip(zip(ledger["query"], ledger["what"], strict=True), ledger["count"], strict=True)
    assert {key: count for key, count in total.items() if count} == dict(expected)


def joined(found: dict[int, dict[str, Any]], what: str) -> list[Any]:
    return sorted(item for batch in found.values() for item in batch[what])


def test_bounded_data_frames_give_the_same(session: SparkSession) -> None:
    batch = ensue.batch(session.createDataFrame(ROWS), TEXT, flat=True)
    wanted = ensue.replay(TEXT, ROWS)
    assert list(batch.matches) == ["Q", "P"]
    assert matches(batch.matches["Q"]) == sorted(wanted.matches_of("Q")["match_id"])
    assert sorted(row["a_v"] for row in batch.matches["P"].collect()) == sorted(wanted.matches_of("P")["a.v"])
    assert batch.outputs.count() == len(wanted.outputs)
    assert batch.discarded.columns == list(wanted.discarded.columns)
    assert batch.discarded.count() == len(wanted.discarded)
    assert sum(row["count"] for row in batch.ledger.where("what = 'received'").collect()) == 120
    with pytest.raises(ensue.InputError, match="there is no query 'R'; there are Q, P"):
        batch.matches["R"]
    batch.unpersist()


def test_mistakes_are_found_before_anything_runs(session: SparkSession, folder: Path) -> None:
    bounded, streaming = session.createDataFrame(ROWS), source(session, folder)
    for frame, wrong in ((bounded, ensue.stream), (bounded, ensue.streams)):
        with pytest.raises(ensue.InputError, match=r"is not streaming: use `ensue.match`, or `ensue.batch`"):
            wrong(frame, TEXT)
    for other in (ensue.match, ensue.batch):
        with pytest.raises(ensue.InputError, match=r"is streaming: use `ensue.stream`, or `ensue.streams`"):
            other(streaming, TEXT)
    with pytest.raises(ensue.InputError, match="has no column 'v', a field of 'A'"):
        ensue.stream(streaming.drop("v"), TEXT)
    with pytest.raises(ensue.InputError, match="column 'v' is string, but field 'v' of 'A' is float"):
        ensue.stream(streaming.withColumn("v", streaming["k"]), TEXT)
    typed = streaming.withColumn("event", streaming["k"])
    other = "event B { string k; integer n; }" + TEXT.replace("wait 5.0; }", "wait 5.0; B() key k within 1.0; }", 1)
    with pytest.raises(ensue.InputError, match="has no column 'n', a field of 'B'"):
        ensue.stream(typed, other)
    assert ensue.stream({"a": typed, "b": typed.withColumn("n", typed["offset"])}, other).isStreaming
    with pytest.raises(ensue.InputError, match="a: has no column 'n', a field of 'B'"):
        ensue.stream({"a": typed, "b": typed}, other)
    streams = ensue.streams(streaming, TEXT, idle="1 minute")
    with pytest.raises(ensue.InputError, match="trigger: 'availableNow' does not end while time advances"):
        streams.write(print, checkpoint=str(folder / "state"), trigger="availableNow")
    with pytest.raises(ensue.InputError, match="trigger: expected 'availableNow' or a duration"):
        streams.write(print, checkpoint=str(folder / "state"), trigger="often")
    with pytest.raises(ensue.InputError, match="write: expected a function that takes a `Batch`; found 'out'"):
        streams.write("out", checkpoint=str(folder / "state"))  # type: ignore[arg-type]


def test_the_first_discarded_record_of_a_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    discarded = ensue.replay(SINGLE, ROWS).results.discarded
    row = TaggedRow(Tag.DISCARDED, "", discarded)
    warn_of_first_ones("", [row, row])
    assert [record.message for record in caplog.records] == [
        "discarded as late by Q: A of table, offset 13; others like it are only counted"
    ]
