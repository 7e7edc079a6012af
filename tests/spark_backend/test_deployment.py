"""A deployment from files to files: micro-batches, restarts, flush, control events, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from job_engine.job.compilation import file_prefixes
from job_engine.job.job import deploy, run
from job_engine.job.reports import BatchReport
from job_engine.setting_keys import Engine
from job_engine.sources.source import Source
from querylang.errors import InputError
from tests.support.engines import ON_BOTH
from tests.support.sensors import QUERY, ROWS, add_files, expected, project, streamed, table, totals


@pytest.mark.parametrize(
    ("kind", "engine"),
    [("parquet", Engine.SPARK), ("parquet", Engine.LOCAL), ("csv", Engine.LOCAL), ("json", Engine.LOCAL)],
    indirect=["engine"],
)
def test_files_in_several_batches_and_runs_give_what_one_engine_gives(
    engine: Engine, tmp_path: Path, kind: str
) -> None:
    path = project(tmp_path, kind=kind)
    rows = table()
    add_files(tmp_path, rows[:1500], 2, kind=kind)
    reports: list[BatchReport] = []
    first = run(path, once=True, progress=reports.append)
    assert [report.records for report in reports] == [750, 750]
    assert first.records == 1500
    add_files(tmp_path, rows[1500:], 2, first=2, kind=kind)
    last = run(path, once=True, flush=True)
    wanted = expected(tmp_path)
    assert min(len(ids) for ids in wanted.values()) > 50
    assert streamed(tmp_path) == wanted
    for query in ("Rise", "Jump"):
        account = totals(last.ledger, query)
        received = account.pop("received")
        assert received == ROWS == sum(account.values())
        assert "pending" not in account


def test_files_of_one_name_are_told_apart_by_their_folders_and_sources(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    other = "\n  more: {format: parquet, path: more, event: Reading}\ncontrol"
    text = path.read_text().replace("{maxFilesPerTrigger: 1}", "{recursiveFileLookup: true}")
    path.write_text(text.replace("\ncontrol", other))
    rows = table(1500)
    folders = ["data/day0", "data/day1", "more"]
    for folder, part in zip(folders, np.array_split(np.arange(1500), 3), strict=True):
        (tmp_path / folder).mkdir()
        rows.iloc[part].to_parquet(tmp_path / folder / "part.parquet")
    report = run(path, once=True, flush=True)
    assert {source for _, source, _ in report.ledger} == {"more", "readings"}
    files = {"readings/day0/part.parquet", "readings/day1/part.parquet", "more/part.parquet"}
    found = pd.read_parquet(tmp_path / "out" / "matches" / "Rise")
    assert set(found["first"].map(lambda member: member["source"])) == files
    assert len(found) == found["match_id"].nunique() > 100


def test_a_run_with_nothing_new_does_nothing(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    add_files(tmp_path, table(500), 1)
    before = run(path, once=True, flush=True)
    again = run(path, once=True, flush=True)
    assert (again.records, again.matches) == (0, {"Rise": 0, "Jump": 0})
    assert again.ledger == before.ledger
    newest = max(int(entry.name) for entry in (tmp_path / "state" / "offsets").glob("[0-9]*"))
    (tmp_path / "state" / "offsets" / str(newest)).unlink()
    with pytest.raises(InputError, match=f"has reached micro-batch {newest - 1}, but .* of micro-batch {newest}"):
        run(path, once=True)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(InputError, match="the sink 'matches' holds results of another checkpoint"):
        run(path, once=True)


def test_outputs_are_read_by_pandas_duckdb_and_spark_alike(spark: SparkSession, tmp_path: Path) -> None:
    path = project(tmp_path, files=2)
    add_files(tmp_path, table(), 4)
    run(path, once=True, flush=True)
    folder = tmp_path / "out" / "matches" / "Rise"
    frame = pd.read_parquet(folder)
    assert list(frame.columns) == [
        "match_id", "query", "instance", "key", "time", "definitive", "emitted", "waited", "first", "second",
    ]  # fmt: skip
    assert duckdb.sql(f"select count(*), count(distinct match_id) from '{folder}/*.parquet'").fetchall() == [
        (len(frame), len(frame))
    ]
    read = spark.read.parquet(str(folder))
    assert read.where("second.fields.value > first.fields.value + 50").count() == len(frame)
    unkeyed = pd.read_parquet(tmp_path / "out" / "matches" / "Jump")
    assert "key" not in unkeyed.columns
    output = pd.read_parquet(tmp_path / "out" / "output")
    assert set(output["kind"]) == {"send", "print"}
    assert len(output) == len(frame) + len(unkeyed)
    ledger = duckdb.sql(
        f"select what, sum(count)::int from '{tmp_path}/out/ledger/*.parquet' where query = 'Rise' group by what"
    )
    assert dict(ledger.fetchall())["received"] == ROWS


@pytest.mark.parametrize("sink", ["json", "csv"])
def test_sinks_of_other_formats_hold_the_same_matches(engine: Engine, tmp_path: Path, sink: str) -> None:
    path = project(tmp_path, sink=sink)
    add_files(tmp_path, table(1000), 2)
    run(path, once=True, flush=True)
    folder = tmp_path / "out" / "matches" / "Rise"
    files = sorted(folder.glob(f"*.{sink}"))
    frames = [pd.read_csv(file) if sink == "csv" else pd.read_json(file, lines=True) for file in files]
    found = pd.concat(frames)
    assert sorted(found["match_id"]) == expected(tmp_path)["Rise"]
    if sink == "csv":
        assert (found["second.fields.value"] > found["first.fields.value"]).all()


@ON_BOTH
def test_control_events_reach_every_bucket_once_in_order_of_arrival(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path, buckets=4)
    add_files(tmp_path, table(1000), 3)
    events = [
        {"at": "2023-11-14T22:13:30Z", "event": "com.apama.queries.SetDelayedEventsLeeway(1.0, 2.0)", "offset": 1},
        {"at": "2023-11-14T22:13:31Z", "event": "SetDelayedEventsLeeway(3.0)", "offset": 2},
        {"at": "2023-11-14T22:13:31Z", "event": "SetDelayedEventsLeeway(soon, 1.0)", "offset": 3},
        {"at": "2023-11-14T22:13:31Z", "event": "SetLeeway(3.0, 1.0)", "offset": 4},
    ]
    (tmp_path / "control" / "one.json").write_text("\n".join(map(json.dumps, events)))
    report = run(path, once=True, flush=True)
    assert streamed(tmp_path) == expected(tmp_path)
    output = pd.read_parquet(tmp_path / "out" / "output")
    assert sorted(output[output["kind"] == "error"]["text"]) == [
        "'SetDelayedEventsLeeway(soon, 1.0)' is not a control event: 'soon' is not a value; strings are written in double quotes",
        "SetDelayedEventsLeeway(delayLeeway, reorderBuffer) takes 2 arguments",
        "unknown control event 'SetLeeway'; did you mean SetDelayedEventsLeeway(delayLeeway, reorderBuffer)?",
    ]
    assert report.ledger["Rise", "control", "control"] == 4
    assert report.ledger["Jump", "control", "control"] == 4


def test_rows_that_cannot_be_read_are_discarded_with_their_line(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path, kind="csv")
    add_files(tmp_path, table(200), 1, kind="csv")
    lines = (tmp_path / "data" / "000.csv").read_text().split("\n")
    lines[5] = lines[5].replace(",", ";")
    (tmp_path / "data" / "000.csv").write_text("\n".join(lines))
    report = run(path, once=True)
    assert report.ledger["Rise", "readings", "malformed"] == 1
    discarded = pd.read_parquet(tmp_path / "out" / "discarded")
    malformed = discarded[discarded["reason"] == "malformed"]
    assert list(malformed["offset"]) == [5]
    assert "line 6" in malformed.iloc[0]["text"]


def test_another_bucket_count_plan_or_source_is_refused_by_name(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    add_files(tmp_path, table(300), 1)
    run(path, once=True)
    good = path.read_text()
    state = {file: file.stat().st_mtime_ns for file in (tmp_path / "state").rglob("*") if file.is_file()}

    path.write_text(good.replace("buckets: 3", "buckets: 5"))
    with pytest.raises(InputError, match="'buckets' was 3 and is 5"):
        run(path, once=True)
    path.write_text(good.replace("  readings:", "  values:"))
    with pytest.raises(InputError, match="sources without readings and with values"):
        run(path, once=True)
    path.write_text(good)
    (tmp_path / "sensors.query").write_text(QUERY.replace("query Jump", "query Leap"))
    with pytest.raises(InputError, match="deploy 'Leap'; undeploy 'Jump'"):
        run(path, once=True)
    (tmp_path / "sensors.query").write_text(QUERY.replace("50.0", "60.0"))
    with pytest.raises(InputError, match="the files have changed since they were last applied: replace 'Rise'"):
        run(path, once=True)
    assert state == {file: file.stat().st_mtime_ns for file in (tmp_path / "state").rglob("*") if file.is_file()}


@ON_BOTH
def test_a_file_that_is_no_table_ends_the_run_with_one_clear_line(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    add_files(tmp_path, table(300), 1)
    (tmp_path / "data" / "000.parquet").write_text("this is no Parquet")
    with pytest.raises(InputError, match=r"^/.*/000.parquet: cannot be read as a table: .*$"):
        run(path, once=True)


def test_a_later_file_that_is_no_table_is_discarded_and_the_run_goes_to_its_end(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = project(tmp_path)
    add_files(tmp_path, table(300), 3)
    (tmp_path / "data" / "001.parquet").write_text("this is no Parquet")
    report = run(path, once=True)
    assert report.records == 201
    assert report.ledger["Rise", "readings", "malformed_file"] == 1
    discarded = pd.read_parquet(tmp_path / "out" / "discarded")
    assert list(discarded[discarded["reason"] == "malformed_file"]["source"]) == ["001.parquet"]
    assert "malformed_file: files that are not tables are discarded: 1 of 'readings'" in caplog.text


def test_folders_that_are_something_else_are_refused_and_left_alone(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    text = path.read_text()
    for old, new, message in [
        ("checkpoint: state", "checkpoint: notes", "notes: holds files that are not a checkpoint"),
        ("checkpoint: state", "checkpoint: sensors.query", r"cannot be written: 'sensors\.query' is not a folder"),
        ("path: out/matches", "path: sensors.query/matches", r"cannot be written: 'sensors\.query' is not a folder"),
    ]:
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / "monday.txt").write_text("x")
        path.write_text(text.replace(old, new))
        with pytest.raises(InputError, match=message):
            run(path, once=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        *("control", "data", "notes", "sensors.query", "sensors.yaml")
    ]


def test_an_event_that_the_queries_do_not_know_is_refused(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    path.write_text(path.read_text().replace("path: data", "path: data, event: Raeding"))
    with pytest.raises(InputError, match=r"'readings' has the event type 'Raeding', .*; did you mean 'Reading'"):
        run(path, once=True)
    assert not (tmp_path / "state").exists()


def test_a_folder_of_other_files_is_refused(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path, kind="csv")
    add_files(tmp_path, table(100), 1)
    with pytest.raises(InputError, match=r"no file of the source 'readings' ends in .csv or .tsv; found '000.parquet'"):
        run(path, once=True)


def test_event_types_without_a_definition_are_read_from_the_data_and_kept(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path, kind="csv")
    (tmp_path / "sensors.query").write_text(
        "inputs { Reading() key sensor within 20.0; }\nfind Reading as a -> Reading as b where b.value > a.value + 50.0"
    )
    rows = table(600).drop(columns="event")
    add_files(tmp_path, rows[:300], 1, kind="csv")
    path.write_text(path.read_text().replace("path: data,", "path: data, event: Reading, infer: true,"))
    run(path, once=True)
    add_files(tmp_path, rows[300:], 1, first=1, kind="csv")
    report = run(path, once=True, flush=True)
    assert report.matches["sensors"] + 0 > 0
    assert json.loads((tmp_path / "state" / "ensue.json").read_text())["schemas"]["Reading"]["value"] == "float"


@ON_BOTH
def test_a_deployment_runs_until_it_is_stopped(engine: Engine, tmp_path: Path) -> None:
    path = project(tmp_path)
    path.write_text(path.read_text() + "trigger: 200ms\nidle: 1 second\n")
    add_files(tmp_path, table(300), 1)
    seen: list[BatchReport] = []
    handle = deploy(path, progress=seen.append)
    try:
        # The last readings wait 5 s for others; after a second of silence time advances, until nothing is pending.
        for _ in range(600):
            handle.await_termination(0.5)
            ledger = handle.status().ledger
            if ledger and not any(what == "pending" for _, _, what in ledger):
                break
        with pytest.raises(InputError, match="another run of this job is at work"):
            deploy(path)
        status = handle.status()
        assert status.is_active
        assert not any(what == "pending" for _, _, what in status.ledger)
    finally:
        handle.stop()
    assert streamed(tmp_path) == expected(tmp_path)


def test_files_are_named_by_their_source_only_where_there_are_several() -> None:
    sources = [Source(name, "csv", Path(name), event=event) for name, event in (("a", "A"), ("b", "B"))]
    assert file_prefixes(sources) == {"a": "a/", "b": "b/"}
    assert file_prefixes(sources[:1]) == {"a": ""}
