"""A table whose rows are shuffled, or that is several tables, gives the answer of the sorted one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import ensue
from ensue import executors
from ensue.data_options import DataOptions
from ensue.executors import contents
from ensue.replay_to_file import replay_to_file
from ensue.spark import match_files
from runtime.replay import records
from spark_backend.session import get_session

QUERY = """event A { string k; integer n; }
query Q { inputs { A() key k within 20.0 wait 3.0; } find A as a -> A as b where b.n > a.n }
query W { inputs { A() key k within 20.0; } find A as a -> wait(2.0) without A as c where c.n > a.n { print a.k; } }"""


SCHEMA_WITHOUT_PLACES = "at double, ts double, k string, n bigint"
SCHEMA = f"{SCHEMA_WITHOUT_PLACES}, source string, partition bigint, offset bigint"


def drawn(random: Random, count: int = 60, *, has_ties: bool = False) -> list[dict[str, Any]]:
    """Rows in order of arrival; has_ties: several arrive together, in the order of `offset`."""
    times = random.choices(range(100), k=count) if has_ties else random.sample(range(10_000), count)
    step = 1 if has_ties else 100
    return [
        {
            "at": at / step,
            "ts": at / step - random.randrange(500) / 100,
            "k": random.choice("abc"),
            "n": random.randrange(9),
            "source": "s",
            "partition": 0,
            "offset": number,
        }
        for number, at in enumerate(sorted(times))
    ]


def answer(tables: Any) -> tuple[list[Any], list[Any], list[Any]]:
    result = ensue.replay(QUERY, tables)
    found = [(one["query"], one["match_id"], one["time"], one["emitted"]) for one in result.match_objects()]
    return found, result.output_objects(), result.results.ledger.to_pylist()


@pytest.mark.parametrize("seed", range(20))
def test_shuffled_and_divided_tables_have_the_answer_of_the_sorted_one(seed: int) -> None:
    random = Random(seed)
    rows = drawn(random)
    expected = answer(rows)
    assert expected[0]
    shuffled = random.sample(rows, len(rows))
    assert answer(shuffled) == expected
    cut = random.randrange(1, len(rows))
    assert answer([shuffled[:cut], shuffled[cut:]]) == expected


@pytest.mark.parametrize("seed", range(10))
def test_offsets_order_what_arrives_together(seed: int) -> None:
    random = Random(seed)
    rows = drawn(random, has_ties=True)
    assert answer(random.sample(rows, len(rows))) == answer(rows)


def test_offsets_order_large_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ROWS_AT_ONCE", 1_000)
    monkeypatch.setattr(records, "LEAST", 1_000)
    numbers = np.arange(2 * records.ROWS_AT_ONCE + 12)
    table = pa.table({"at": numbers // 4 / 1000.0, "k": ["a"] * len(numbers), "n": numbers % 4, "offset": numbers})
    query = "event A { string k; integer n; }\ninputs { A() key k retain 2; } find A as a -> A as b where b.n = a.n + 1"
    for name, order in (("sorted", numbers), ("reversed", numbers // 4 * 4 + 3 - numbers % 4)):
        pq.write_table(table.take(order), tmp_path / f"{name}.parquet")
    found = [ensue.replay(query, tmp_path / f"{name}.parquet") for name in ("sorted", "reversed")]
    assert len(found[0]) == len(numbers) // 4 * 3
    for column in ("time", "a.n", "b.n"):
        assert found[0].matches[column].tolist() == found[1].matches[column].tolist()


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return get_session("tests", cores=2)


def found(frame: DataFrame) -> list[tuple[str, ...]]:
    return sorted((row.query, row.match_id, str(row.time)) for row in frame.collect())


def shown(replay: ensue.Replay) -> list[tuple[str, ...]]:
    """The matches of a replay as `found` has them."""
    return sorted(
        (name, row["match_id"], str(row["time"].replace(tzinfo=None)))
        for name, table in replay.results.matches.items()
        for row in table.select(["match_id", "time"]).to_pylist()
    )


@pytest.mark.parametrize("has_ties", [False, True])
def test_repartitioned_data_frames_have_the_answer_of_the_sorted_table(spark: SparkSession, has_ties: bool) -> None:
    random = Random(20)
    rows = drawn(random, 400, has_ties=has_ties)
    shuffled = random.sample(rows, len(rows))
    frame = spark.createDataFrame(shuffled, SCHEMA).repartition(3)
    expected = shown(ensue.replay(QUERY, rows))
    assert expected
    assert found(ensue.match(frame, QUERY)) == expected


def test_distinct_times_suffice_without_places(spark: SparkSession) -> None:
    random = Random(21)
    rows = [{name: row[name] for name in ("at", "ts", "k", "n")} for row in drawn(random, 400)]
    frame = spark.createDataFrame(random.sample(rows, len(rows)), SCHEMA_WITHOUT_PLACES).repartition(3)
    expected = sorted((name, time) for name, _, time in shown(ensue.replay(QUERY, rows)))
    assert sorted((name, time) for name, _, time in found(ensue.match(frame, QUERY))) == expected


def test_every_executor_has_the_same_answer_to_shuffled_tables(spark: SparkSession) -> None:
    replays = []
    for seed in range(8):
        random = Random(seed)
        rows = drawn(random)
        replays.append(ensue.replay(QUERY, random.sample(rows, len(rows))))
        assert shown(replays[-1]) == shown(ensue.replay(QUERY, rows))
    jobs = [executors.Job(replay.plan, replay.records, replay.flush, (30,)) for replay in replays]
    for given in (executors.local(jobs), executors.batch(jobs), executors.stream(jobs)):
        for replay, results in zip(replays, given, strict=True):
            assert contents(results) == contents(replay.results)


def written(folder: Path, parts: list[list[dict[str, Any]]]) -> list[Path]:
    """The parts as CSV files."""
    paths = [folder / f"{number}.csv" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_text("\n".join(",".join(map(str, row)) for row in (part[0], *(row.values() for row in part))))
    return paths


@pytest.mark.parametrize("seed", range(3))
def test_history_is_in_order_of_source_time(seed: int) -> None:
    random = Random(seed)
    rows = [{name: row[name] for name in ("ts", "k", "n", "source", "offset")} for row in drawn(random)]
    rows.sort(key=lambda row: row["ts"])
    shuffled = random.sample(rows, len(rows))
    assert answer(shuffled) == answer(rows)
    assert answer([shuffled[:20], shuffled[20:]]) == answer(rows)


def test_several_tables_have_one_answer_in_every_executor(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(22)
    rows = drawn(random, 200)
    expected = shown(ensue.replay(QUERY, rows))
    shuffled = random.sample(rows, len(rows))
    parts = [shuffled[:70], shuffled[70:]]
    paths = written(tmp_path, parts)
    queries, options = ensue.load(QUERY), DataOptions()
    assert shown(ensue.replay(QUERY, paths)) == expected
    assert found(match_files(queries, paths, options)) == expected
    frames = {f"t{number}": spark.createDataFrame(part, SCHEMA).repartition(2) for number, part in enumerate(parts)}
    assert found(ensue.match(frames, QUERY)) == expected
    one_query = QUERY.partition("query W")[0]
    replay_to_file(ensue.load(one_query), paths, options, tmp_path / "found.parquet")
    ids = [match_id for query, match_id, _ in expected if query == "Q"]
    assert sorted(pq.read_table(tmp_path / "found.parquet").column("match_id").to_pylist()) == sorted(ids)
