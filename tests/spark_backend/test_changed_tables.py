"""Tables whose control events change the queries: on Spark as embedded, wherever they are cut."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ensue
from ensue import executors
from ensue.answer import Replay
from ensue.data_options import DataOptions
from ensue.embedded import replay
from ensue.executors import even_splits
from ensue.spark import match_files
from job_engine.operator.cases import Case, Cases, FoundTable
from job_engine.operator.step import run_step
from job_engine.wire.packed_rows import Signal
from runtime.results.schemas import Results
from spark_backend.frame_matching import has_change

EVENT = "event A { string k; integer v; }\n"
PATTERNS = (
    "A as a -> A as b where b.v > a.v",
    "A as a -> wait(2.0)",
    "A as a -> A as b+ where last(b).v > a.v",
    "A as a => A as b",
    "A as a and A as b where a.v != b.v",
)


def query(name: str, chance: random.Random) -> str:
    window = chance.choice(["within 5.0", "retain 3", "within 8.0 retain 4"])
    parameters = chance.choice(["", "parameters { integer least := 1; }"])
    find = f"{chance.choice(PATTERNS)} {chance.choice(['', '{ print k; }'])}"
    return f"query {name} {{ {parameters} inputs {{ A() key k {window}; }} find {find} }}"


def change(chance: random.Random) -> str:
    """A control event, often a wrong one."""
    name = chance.choice(["Q", "R", "S", "Nope"])
    text = query(name, chance)
    value = chance.choice([1, 2.5, "s"])
    return chance.choice(
        [
            json.dumps({"DeployQuery": [text]}),
            json.dumps({"DeployQuery": [text + " " + query("T", chance)]}),
            json.dumps({"ReplaceQuery": [text]}),
            json.dumps({"ReplaceQuery": [text, "now"]}),
            f'UndeployQuery("{name}")',
            f'SetParameters("{name}", "{chance.choice(["", "eu"])}", {json.dumps({"least": value})})',
            f'RemoveInstance("{name}", "{chance.choice(["", "eu"])}")',
            "SetDelayedEventsLeeway(1.0, 2.0)",
            'DeployQuery("query")',
        ]
    )


def rows_of(chance: random.Random, count: int = 30) -> list[dict[str, object]]:
    """Several rows often arrive together."""
    rows: list[dict[str, object]] = []
    at = 0.0
    for number in range(1, count + 1):
        at += chance.choice((0, 0.5, 1, 1, 2))
        is_change = chance.random() < 0.25
        event = change(chance) if is_change else "A" if chance.random() < 0.95 else "B"
        fields = {"k": None, "v": None} if is_change else {"k": chance.choice("xy"), "v": chance.randint(0, 4)}
        rows.append({"at": at, "event": event, **fields, "partition": 0, "offset": number})
    return rows


def in_buckets(case: Case, buckets: int, *, is_bounded: bool) -> Results:
    """A case through the buckets of Spark's operator, each called anew from its state."""
    job = Cases([replace(case, splits=()) if is_bounded else case], buckets)
    states: dict[int, bytes] = {}
    for step in range(len(job.cases[0].pieces())):
        packed = [batch.to_pydict() for batch in job._packed(0, step)]
        for bucket in range(buckets):
            rows = [data for batch in packed for own, data in zip(*batch.values(), strict=True) if own == bucket]
            signal = Signal.CATCH_UP if is_bounded else None
            done = run_step(job.program, bucket, states.get(bucket), rows, 0, signal=signal)
            states[bucket] = done.state
            job.found += [FoundTable(0, bucket, step, row.tag, row.query, row.table) for row in done.rows]
    return job.results()[0]


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_in_batch_and_in_micro_batches_do_what_they_do_embedded(seed: int) -> None:
    chance = random.Random(seed)
    start, flush = EVENT + query("Q", chance) + "\n" + query("Z", chance), seed % 2 == 0
    replayed = replay(start, rows_of(chance), DataOptions(), flush=flush)
    expected = executors.contents(replayed.results)
    assert expected["outputs"]
    splits = even_splits(30, chance.choice([2, 5, 30]))
    case = Case(replayed.plan, replayed.records.arrivals, splits, flush, replayed.script)
    assert executors.contents(in_buckets(case, 2, is_bounded=True)) == expected
    assert executors.contents(in_buckets(case, 3, is_bounded=False)) == expected


CHANGING = 3
"""A seed whose changes deploy, replace and end queries."""


def changed() -> tuple[str, list[dict[str, object]], Replay]:
    chance = random.Random(CHANGING)
    start = EVENT + query("Q", chance) + "\n" + query("Z", chance)
    rows = rows_of(chance)
    return start, rows, ensue.replay(start, rows)


def told(rows: list[dict[str, object]]) -> Counter[tuple[object, ...]]:
    return Counter((row["kind"], row["query"], row["instance"], row["text"] or "") for row in rows)


def test_batch_on_spark_changes_the_queries_of_a_data_frame(spark: SparkSession) -> None:
    start, rows, replayed = changed()
    schema = "at double, event string, k string, v long, `partition` long, `offset` long"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], schema).repartition(3)
    found = ensue.batch(frame, start)
    outputs = [row.asDict() for row in found.outputs.collect()]
    assert told(outputs) == told(replayed.outputs.to_dict("records"))
    matches = Counter(row["match_id"] for row in found.matches["Q"].collect())
    assert matches == Counter(replayed.matches_of("Q")["match_id"])
    found.unpersist()


def test_match_on_spark_changes_the_queries_of_files(spark: SparkSession, tmp_path: Path) -> None:
    start, rows, replayed = changed()
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = match_files(ensue.load(start), [file], DataOptions())
    expected = ensue.replay(start, file).matches["match_id"]
    assert Counter(row["match_id"] for row in found.collect()) == Counter(expected)
    assert len(expected) == len(replayed.matches)


def test_only_files_that_may_have_a_change_are_read_for_them(tmp_path: Path) -> None:
    for name, text, expected in (
        ("a.csv", "at,event\n1,A\n", False),
        ("b.csv", '1,"UndeployQuery(""Q"")"\n', True),
        ("c.csv", "", True),
        ("d.parquet", "A", True),
    ):
        (tmp_path / name).write_text(text, "utf-8")
        assert has_change(tmp_path / name) is expected, name
    (tmp_path / "wide.csv").write_text("at,event\n", "utf-16")
    assert has_change(tmp_path / "wide.csv")
