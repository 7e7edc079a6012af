"""Every construct of the language on Spark: cut into micro-batches, restarted, in batch, through files; as embedded."""

from __future__ import annotations

import json
import os
import random
from decimal import Decimal
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import querylang
from job_engine.job.job import run
from job_engine.operator.cases import Case
from job_engine.setting_keys import Engine
from job_engine.wire.tagged_rows import Tag, without_order
from querylang.errors import InputError
from querylang.parameters import Given, with_instances
from querylang.plan.model import Plan
from runtime.column_types import arrow_type
from runtime.replay.records import Records
from runtime.replay.replay import read_records, replay_records
from runtime.results.for_users import spread_matches
from spark_backend.case_runs import run_bounded, run_streams
from spark_backend.frame_matching import match_tagged
from spark_backend.frames import decode
from tests.support.embedded import by_word, ledger_of, plain
from tests.support.engines import ON_BOTH

QUERIES = Path(__file__).with_name("constructs.query")
ROWS = 240
START = 1_700_000_000.0
INSTANCES = {"Above": {"low": {"least": 30.0}, "high": {"least": 70.0, "period": 20.0}}}


def event_table(seed: int = 3) -> pd.DataFrame:
    """Events a second or two apart, up to 6 s late, of few keys; one key is idle after a third."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    at = START
    for number in range(ROWS):
        at += draw.choice([0.0, 0.5, 1.0, 1.5])
        kind = draw.choices(["A", "B", "Beat", "Quiet"], [6, 4, 1, 1])[0]
        key = draw.choice(["x1", "x2", "y1"] + ["z1"] * (number < ROWS // 3))
        row: dict[str, Any] = {"at": at, "event": kind, "ts": at - draw.choice([0.0, 1.0, 3.0, 6.0])}
        if kind in "AB":
            row |= {"k": key, "n": number, "v": float(draw.randrange(100))}
        if kind == "A":
            row |= composite(draw)
        rows.append(row)
    return pd.DataFrame(rows).astype({"n": "Int64", "mark": "Int64"})


def composite(draw: random.Random) -> dict[str, Any]:
    """Values of the types that are not plain columns."""
    return {
        "price": Decimal(draw.randrange(300)) / 100,
        "tags": draw.sample(["red", "green", "blue"], draw.randrange(4)),
        "parts": sorted({draw.choice("xyz"): float(draw.randrange(9)) for _ in range(3)}.items()),
        "place": dict.fromkeys(("x1", "y1", "x2", "y2"), float(draw.randrange(3))),
        "point": {"x": draw.random(), "y": float(draw.randrange(5))},
        "mark": draw.choice([None, 3, 5, 8]),
    }


@cache
def plan() -> Plan:
    return with_instances(querylang.compile_paths([QUERIES]).plan, Given(INSTANCES))


@cache
def records() -> Records:
    return read_records([event_table()], plan())


def wanted(*, flush: bool = True) -> dict[str, object]:
    return plain(replay_records(plan(), records(), flush=flush))


def test_every_query_matches_something() -> None:
    """Otherwise the comparisons below would say nothing about it."""
    matches = replay_records(plan(), records()).matches
    assert {title: len(table) > 3 for title, table in matches.items()} == {
        query.title: True for query in plan().queries
    }


def cases() -> list[Case]:
    arrivals = records().arrivals
    cuts = [((80, 160), True), ((7, 200), False), ((120, 121), True)]
    return [Case(plan(), arrivals, splits, flush) for splits, flush in cuts]


def test_a_stream_with_restarts_gives_the_embedded_results(spark: SparkSession) -> None:
    for case, results in zip(cases(), run_streams(cases(), buckets=3), strict=True):
        assert plain(results) == wanted(flush=case.flush)


def test_batch_gives_the_embedded_results(spark: SparkSession) -> None:
    for case, results in zip(cases(), run_bounded(cases(), buckets=3), strict=True):
        assert plain(results) == wanted(flush=case.flush)


DEPLOYMENT = """\
name: constructs
queries: [constructs.query]
sources:
  events: {format: parquet, path: data, options: {maxFilesPerTrigger: 1}}
sinks:
  matches:   {format: parquet, path: matches}
  output:    {format: parquet, path: output}
  discarded: {format: parquet, path: discarded}
buckets: 3
checkpoint: state
parameters:
  Above:
    low:  {least: 30.0}
    high: {least: 70.0, period: 20.0}
"""


def project(folder: Path) -> Path:
    (folder / "data").mkdir()
    (folder / "constructs.query").write_text(QUERIES.read_text())
    (folder / "constructs.yaml").write_text(DEPLOYMENT)
    return folder / "constructs.yaml"


def add_file(folder: Path, number: int, rows: pd.DataFrame) -> None:
    """With the columns' own types: maps, lists, structs, decimals."""
    path = folder / "data" / f"{number}.parquet"
    pa.parquet.write_table(pa.Table.from_pandas(rows, arrow_table_schema(), preserve_index=False), path)
    os.utime(path, (1e9 + number, 1e9 + number))


def arrow_table_schema() -> pa.Schema:
    """Of `event_table`."""
    columns = {"at": pa.float64(), "event": pa.string(), "ts": pa.float64()}
    fields = {field.name: arrow_type(field.type, plan()) for field in plan().event("A").fields}
    return pa.schema(list((columns | fields).items()))


@ON_BOTH
def test_a_deployment_with_instances_writes_what_each_gives(engine: Engine, tmp_path: Path) -> None:
    path, rows = project(tmp_path), event_table()
    for number in range(2):
        add_file(tmp_path, number, rows[number * 80 : number * 80 + 80])
    run(path, once=True)
    add_file(tmp_path, 2, rows[160:])
    report = run(path, once=True, flush=True)
    tables = sorted((tmp_path / "data").iterdir())
    embedded = replay_records(plan(), read_records(tables, plan()))
    ids = {title: sorted(table.column("match_id").to_pylist()) for title, table in embedded.matches.items()}
    found = {title: pd.read_parquet(tmp_path / "matches" / title) for title in ids}
    assert {title: sorted(frame["match_id"]) for title, frame in found.items()} == ids
    assert {title: set(frame["instance"]) for title, frame in found.items() if "/" in title} == {
        "Above/low": {"low"},
        "Above/high": {"high"},
    }
    assert len(pd.read_parquet(tmp_path / "output")) == len(embedded.outputs)
    assert by_word(report.ledger) == by_word(ledger_of(embedded.ledger.to_pylist()))
    kept = json.loads((tmp_path / "state" / "ensue.json").read_text())
    assert kept["queries"][-3:] == ["Above/low", "Above/high", "Marked"]


def test_another_instance_is_a_change_of_the_files(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    add_file(tmp_path, 0, event_table()[:5])
    run(path, once=True)
    path.write_text(DEPLOYMENT.replace("    low: ", "    least: "))
    with pytest.raises(InputError, match=r"instance 'least' of 'Above' has .*; remove instance 'low' of 'Above'"):
        run(path, once=True)


def test_typed_frames_hold_every_type_and_can_be_written(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    table = pa.Table.from_pandas(event_table(), arrow_table_schema(), preserve_index=False)
    places = {"source": ["table"] * ROWS, "partition": [0] * ROWS, "offset": range(1, ROWS + 1)}
    for name, column in places.items():
        table = table.append_column(name, pa.array(column))
    tagged = match_tagged(spark.createDataFrame(table), plan(), buckets=2).cache()
    embedded = replay_records(plan(), records()).matches
    for title in ("Silent", "Totals", "Marked", "TrailingWait"):
        frame = decode(tagged, plan(), Tag.MATCH, title)
        frame.coalesce(1).write.parquet(str(tmp_path / title))
        found = pa.parquet.read_table(tmp_path / title)
        wanted = spread_matches(without_order(embedded[title]), plan().query(title))
        assert found.column_names == wanted.column_names
        assert by_identity(found) == by_identity(wanted)


def by_identity(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=itemgetter("match_id"))


def test_other_formats_hold_every_type_and_queries_without_values_are_told(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    text = DEPLOYMENT[: DEPLOYMENT.index("parameters:")]
    text = text.replace("parquet, path: matches", "json, path: matches").replace(
        "parquet, path: disc", "csv, path: disc"
    )
    path.write_text(text)
    add_file(tmp_path, 0, event_table()[:100])
    report = run(path, once=True, flush=True)
    assert [query.name for query in report.idle] == ["Above"]
    files = [file for file in (tmp_path / "matches" / "Marked").iterdir() if file.suffix == ".json"]
    matches = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert matches
    assert {type(match["a"]["fields"]["price"]) for match in matches} == {str}
    assert {type(match["b"]["fields"]["parts"]) for match in matches} == {dict}
    discarded = pd.concat(pd.read_csv(file) for file in (tmp_path / "discarded").glob("*.csv"))
    late = discarded[discarded["event"] == "A"]
    assert len(late)
    assert set(late["fields.tags:sequence<string>"].map(lambda tags: type(json.loads(tags)))) == {list}
