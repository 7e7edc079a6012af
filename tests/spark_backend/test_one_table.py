"""`layout: one`: the matches of all queries in one table, with what only one query has as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

from job_engine import delta_log
from job_engine.deployment_file import load_deployment
from job_engine.job.plan_rules import finished
from job_engine.job.preflight import checked
from job_engine.job.upkeep.results import compare_queries
from job_engine.sinks.bucket_results import Attempt, TaskFiles, put_in_one, refuse_unwritable
from job_engine.sinks.folder import publishing as of_folders
from job_engine.sinks.kinds import Layout, MicroBatch, Sink
from job_engine.sinks.run_sinks import publish
from job_engine.sinks.table.settings import TableSink
from job_engine.sinks.tables import json_rows, one_table, row_of_query
from job_engine.wire.tagged_rows import Tag, user_table
from querylang import compile_text
from querylang.errors import FileErrors, InputError
from runtime.engine.engine import Engine
from runtime.replay.replay import read_records
from tests.support.sinks import sink_of

TEXT = """
event A { string k; integer v; }
query Rise { inputs { A() key k within 5.0; } find A as a -> A as b where b.v > a.v }
query Sum { inputs { A() within 5.0; } find every A as a select sum(a.v) as total }
query Any { inputs { A() key k within 5.0; } find A as a -> A as b }
"""
PLAN = compile_text(TEXT).plan
ROWS = [{"at": float(at), "event": "A", "k": "é", "v": v} for at, v in enumerate((1, 2, 1, 5))]
BATCH = MicroBatch("0123456789ab", 0)


def matches() -> list[tuple[str, pa.Table]]:
    found = Engine(PLAN).process(read_records([ROWS], PLAN).arrivals).matches
    return [(title, user_table(table, Tag.MATCH, title, PLAN)) for title, table in found.items()]


def written(sink: Sink) -> None:
    sinks = {"matches": sink}
    refuse_unwritable("matches", sink, PLAN)
    files = TaskFiles.open(sinks, Attempt(BATCH, 0, 0))
    tables = put_in_one(matches(), files)
    publish(sinks, files.finish(), BATCH)
    assert {table.query: table.rows for table in tables} == {"Rise": 2, "Sum": 4, "Any": 3}


def job_of(folder: Path, sink: str) -> Path:
    (folder / "q.query").write_text(TEXT)
    (folder / "in").mkdir(exist_ok=True)
    file = folder / "job.yaml"
    file.write_text(
        f"name: j\nqueries: q.query\nsources: {{main: {{format: csv, path: in}}}}\ncheckpoint: ck\n"
        f"sinks: {{matches: {sink}}}\n"
    )
    return file


def test_a_row_has_all_that_the_querys_own_table_has() -> None:
    for _, table in matches():
        rows = one_table(table)
        assert [row_of_query(row) for row in json_rows(rows)] == json_rows(table)


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "delta"])
def test_one_place_has_the_matches_of_all_queries(tmp_path: Path, kind: str) -> None:
    own = TableSink(("query",)) if kind == "delta" else None
    sink = sink_of(kind, tmp_path / "out", own, layout=Layout.ONE)
    written(sink)
    refuse_unwritable("matches", sink, PLAN)
    if kind == "delta":
        rows = DeltaTable(sink.place).to_pyarrow_table().to_pylist()
    else:
        rows = pa.dataset.dataset(sink.place, format=kind).to_table().to_pylist()
    totals = [
        json.loads(row["members"]) for row in sorted(rows, key=lambda row: str(row["time"])) if row["query"] == "Sum"
    ]
    assert totals == [{"total": 1}, {"total": 3}, {"total": 4}, {"total": 9}]
    assert {row["key"] for row in rows} == {'{"k": "é"}', "{}"}
    file = job_of(tmp_path, f"{{format: {kind}, path: out, layout: one}}")
    found = compare_queries(file, "Rise", "Any").found
    assert (found.both, len(found.only_first), len(found.only_second)) == (2, 0, 1)
    with pytest.raises(InputError, match=r"no matches of a query .Ris. .*; did you mean .Rise."):
        compare_queries(file, "Ris", "Any")


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_folder_of_the_other_layout_is_refused(tmp_path: Path, kind: str) -> None:
    written(sink_of(kind, tmp_path / "out", layout=Layout.ONE))
    with pytest.raises(InputError, match="out: has matches of all queries; choose another folder, or 'layout: one'"):
        checked(load_deployment(job_of(tmp_path, f"{{format: {kind}, path: out}}")))
    written(sink_of(kind, tmp_path / "each" / "Rise", layout=Layout.ONE))
    with pytest.raises(InputError, match="each/Rise: has matches of one query; 'layout: one' needs another folder"):
        checked(load_deployment(job_of(tmp_path, f"{{format: {kind}, path: each, layout: one}}")))


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_change_of_the_queries_does_not_look_through_all_results(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = load_deployment(job_of(tmp_path, f"{{format: {kind}, path: out, layout: one}}"))
    written(deployment.sinks["matches"])
    looked = list[object]()
    for module, name in ((of_folders, "files_below"), (delta_log, "tables_below")):
        monkeypatch.setattr(module, name, lambda path: looked.append(path) or ())
    finished(PLAN, deployment, feeds=False)
    assert not looked


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ("{matches: {format: json, path: out, layout: two}}", "must be query or one, not 'two'"),
        ("{output: {format: json, path: out, layout: one}}", "'layout' is a setting of 'matches'; 'output' has one"),
        (
            "{matches: {format: kafka, topic: t, layout: one, options: {kafka.bootstrap.servers: 'h:1'}}}",
            "a topic has the matches of all queries",
        ),
        ("{matches: {format: delta, path: out, partition_by: query}}", "query"),
    ],
)
def test_a_wrong_layout_is_refused(tmp_path: Path, sinks: str, message: str) -> None:
    (tmp_path / "q.query").write_text(TEXT)
    file = tmp_path / "job.yaml"
    file.write_text(
        f"name: j\nqueries: q.query\nsources: {{main: {{format: csv, path: in}}}}\ncheckpoint: ck\nsinks: {sinks}\n"
    )
    with pytest.raises(FileErrors) as caught:
        load_deployment(file)
    assert message in str(caught.value)
