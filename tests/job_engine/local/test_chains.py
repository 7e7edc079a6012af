"""Jobs whose queries feed each other: they give what a replay gives, wherever they end and begin again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import querylang
from job_engine.deployment_file import load_deployment
from job_engine.job import compilation
from job_engine.job.checkpoint import checkpoint_record
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.history.running import send_with_history
from job_engine.job.job import run as run_once
from job_engine.job.stages import between_batches
from job_engine.job.stages.prepare import prepare
from job_engine.job.stages.start import RunKind, start
from job_engine.job.upkeep.backup import back_up, restore
from job_engine.job.upkeep.moving import rebucket
from job_engine.job.upkeep.opened_checkpoint import open_checkpoint, saved_states
from job_engine.operator.bucket_state import close_state, open_state
from job_engine.wire.program import Program
from querylang.errors import InputError
from tests.support.chained_jobs import ACROSS_KEYS as QUERY
from tests.support.local_jobs import NEVER, Crash, CrashAt, begun, crashed, local, run
from tests.support.sensors import add_files, answer, expected, project, streamed, table, totals
from tests.support.waiting import LONGEST


def job(folder: Path, files: int = 5, query: str = QUERY) -> Path:
    path = local(project(folder, files=1))
    (folder / "sensors.query").write_text(query)
    add_files(folder, table(), files)
    return path


def assert_exactly_once(folder: Path) -> None:
    wanted = expected(folder)
    assert all(len(ids) > 20 for ids in wanted.values())
    assert streamed(folder) == wanted
    ledger = JobFolder(folder / "state").ledger.total()
    assert {source for query, source, _ in ledger if query == "Both"} == {"readings", "route:Rise"}
    counts = totals(ledger, "Both")
    assert counts.pop("received") == sum(counts.values()) > len(table())


@pytest.mark.parametrize(
    ("point", "count", "interval"),
    [("begun", 2, 0.0), ("stepped", 2, NEVER), ("published", 1, 0.0), ("states", 0, NEVER), ("committed", 0, 0.0)],
)
def test_a_chain_continues_behind_each_durable_write(tmp_path: Path, point: str, count: int, interval: float) -> None:
    path = job(tmp_path)
    crashed(path, CrashAt(point, count), interval=interval)
    run(path)
    assert_exactly_once(tmp_path)
    record = read_record(load_deployment(path).checkpoint)
    assert record is not None
    assert (record.chains, record.crosses, record.gathered, record.version) == (True, True, (), 8)


def test_queries_that_feed_each_other_across_keys_are_divided_among_buckets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = job(tmp_path)
    run(path)
    assert_exactly_once(tmp_path)
    assert "one task" not in caplog.text
    opened = open_checkpoint(load_deployment(path))
    states = [open_state(opened.program, bucket, data) for bucket, data in saved_states(opened)]
    keys = [{name: own["keys"] for engine in state.engines for name, own in engine.sizes().items()} for state in states]
    assert all(own["Rise"] > 3 < own["Again"] for own in keys)
    assert [own["Both"] for own in keys] == [1, 0, 0]


FIRST, *_ = QUERY.partition("query Both")
NEXT = """\
query Next {
    inputs { Risen() key sensor within 60.0 wait 20.0; Reading(value > 60.0) key sensor within 30.0 wait 5.0; }
    find Risen as p -> Reading as r { print r.sensor; }
}
"""


def test_what_stays_with_its_key_is_divided_among_buckets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = job(tmp_path, query=FIRST + NEXT)
    crashed(path, CrashAt("published", 1), interval=0.0)
    run(path)
    wanted = expected(tmp_path)
    assert len(wanted["Next"]) > 20
    assert streamed(tmp_path) == wanted
    assert "one task" not in caplog.text
    opened = open_checkpoint(load_deployment(path))
    states = [open_state(opened.program, bucket, data) for bucket, data in saved_states(opened)]
    assert [len(state.engines) for state in states] == [1] * 3
    assert all(state.engines[0].sizes()["Next"]["keys"] > 3 for state in states)


def test_a_chain_continues_from_a_backup_and_in_other_buckets(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    (tmp_path / "sensors.query").write_text(QUERY)
    add_files(tmp_path, table().iloc[:1500], 3)
    run_once(path, once=True)
    back_up(path, tmp_path / "copy")
    add_files(tmp_path, table().iloc[1500:], 3, first=3)
    run(path)
    wanted = streamed(tmp_path)
    restore(path, tmp_path / "copy", replace=True, remove_results=True)
    rebucket(path, 5)
    path.write_text(path.read_text().replace("buckets: 3", "buckets: 5"))
    run(path)
    assert streamed(tmp_path) == wanted
    assert_exactly_once(tmp_path)


def test_a_chain_continues_without_a_file_that_is_gone(tmp_path: Path) -> None:
    path = job(tmp_path)
    crashed(path, CrashAt("begun", 2), interval=0.0)
    (tmp_path / "data" / "002.parquet").unlink()
    handle, _ = begun(path, kind=RunKind(is_bounded=True, flush=True, accepts_loss=True))
    assert handle.await_termination(LONGEST)
    wanted = expected(tmp_path)
    assert all(len(ids) > 20 for ids in wanted.values())
    assert streamed(tmp_path) == wanted


TYPES, RISE, BOTH, AGAIN = (part if not at else f"query {part}" for at, part in enumerate(QUERY.split("query ")))
APART = """\
query Apart { inputs { Reading(value > 50.0) key sensor within 9.0; } find Reading as r -> Reading as s }
"""
LATER = {
    "the last": (RISE + BOTH, AGAIN),
    "all": (APART, RISE + BOTH + AGAIN),
    "beside one of its key": (RISE + APART, NEXT + BOTH),
}
"""Queries that a job begins with, and those that it gets with history."""


def half_read(folder: Path, texts: tuple[str, str]) -> Path:
    """A job that has read one half of its files."""
    path = local(project(folder, files=1))
    (folder / "sensors.query").write_text(TYPES + texts[0])
    add_files(folder, table().iloc[:1500], 3)
    run_once(path, once=True)
    return path


def other_half(folder: Path) -> None:
    add_files(folder, table().iloc[1500:], 3, first=3)


def assert_as_if_always_there(folder: Path, texts: tuple[str, str]) -> None:
    """Behind their place the later queries give what a replay gives, and nothing before; the others all of it."""
    (folder / "sensors.query").write_text(TYPES + "".join(texts))
    replayed = answer(folder)
    wanted = [row for table in (*replayed.matches.values(), replayed.outputs) for row in table.to_pylist()]
    ledger = {(row["query"], row["source"], row["what"]): row["count"] for row in replayed.ledger.to_pylist()}
    found = [row for path in (folder / "out/matches", folder / "out/output") for row in rows_below(path)]
    place = next(row["emitted"] for row in found if row.get("kind") == "deployed")
    for name in re.findall(r"query (\w+)", "".join(texts)):
        is_later = f"query {name}" in texts[1]
        own = Counter(
            map(told, (row for row in wanted if row["query"] == name and not (is_later and row["emitted"] <= place)))
        )
        assert Counter(told(row) for row in found if row["query"] == name and row.get("kind") != "deployed") == own, (
            name
        )
        assert own.total() > 20, name
        assert totals(JobFolder(folder / "state").ledger.total(), name) == totals(ledger, name)


def rows_below(folder: Path) -> list[dict[str, Any]]:
    return [row for path in folder.rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


def told(row: dict[str, Any]) -> tuple[object, ...]:
    return row.get("match_id"), row.get("kind"), row.get("text"), row["emitted"]


@pytest.mark.parametrize(
    ("name", "point", "count", "interval"),
    [
        ("the last", "begun", 1, 0.0),
        ("all", "stepped", 1, NEVER),
    ],
)
def test_queries_that_cross_buckets_have_their_history_behind_each_durable_write(
    tmp_path: Path, name: str, point: str, count: int, interval: float
) -> None:
    path = half_read(tmp_path, LATER[name])
    send_with_history(load_deployment(path), TYPES + LATER[name][1], wait=False)
    other_half(tmp_path)
    crashed(path, CrashAt(point, count), interval=interval)
    run(path)
    assert_as_if_always_there(tmp_path, LATER[name])


def test_a_killed_start_takes_a_history_across_buckets_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = half_read(tmp_path, LATER["beside one of its key"])
    send_with_history(load_deployment(path), TYPES + LATER["beside one of its key"][1], wait=False)
    job = prepare(path)
    with monkeypatch.context() as patch:
        patch.setattr(between_batches, "_answer", killed)
        with pytest.raises(Crash):
            start(job, id, RunKind())
    job.close()
    other_half(tmp_path)
    run(path)
    assert_as_if_always_there(tmp_path, LATER["beside one of its key"])


def killed(*_: object) -> None:
    raise Crash


def test_a_table_has_the_first_records_of_a_history_across_buckets(tmp_path: Path) -> None:
    path = half_read(tmp_path, LATER["the last"])
    path.write_text(path.read_text() + "history: {format: parquet, path: past, event: Reading, arrival: at}\n")
    (tmp_path / "past").mkdir()
    own = table().iloc[:900].reset_index(names="row")
    coordinates = {"source": [f"{row // 500:03}.parquet" for row in own["row"]], "partition": 0}
    own.assign(**coordinates, offset=own["row"] % 500 + 1).to_parquet(tmp_path / "past" / "0.parquet")
    gone = (tmp_path / "data" / "000.parquet").rename(tmp_path / "000.parquet")
    send_with_history(load_deployment(path), TYPES + AGAIN, uses_table=True, wait=False)
    gone.rename(tmp_path / "data" / "000.parquet")
    other_half(tmp_path)
    run(path)
    assert_as_if_always_there(tmp_path, LATER["the last"])


@pytest.mark.parametrize(
    ("first", "later", "reason"),
    [
        (RISE + BOTH, RISE.replace("query Rise", "query Other"), "'Other' feeds 'Both', which has run without it"),
        (BOTH + AGAIN, RISE, "'Rise' feeds 'Both', which has run without it"),
        (RISE + AGAIN, BOTH, "'Both' feeds 'Again', which has run without it"),
    ],
    ids=["another", "the first", "the middle"],
)
def test_what_would_have_fed_other_buckets_begins_without_a_history(
    tmp_path: Path, first: str, later: str, reason: str
) -> None:
    path = job(tmp_path, files=1, query=TYPES + first)
    run(path)
    deployment = load_deployment(path)
    with pytest.raises(InputError, match=f"{reason}; deploy it without a history"):
        send_with_history(deployment, TYPES + later)
    assert not JobFolder(deployment.checkpoint).commands.pending()


@pytest.mark.parametrize(("query", "name"), [(FIRST + NEXT, "Next"), (QUERY, "Again")])
def test_a_query_that_runs_is_fed_by_files_that_are_applied(tmp_path: Path, query: str, name: str) -> None:
    path = job(tmp_path, query=FIRST)
    run(path)
    (tmp_path / "sensors.query").write_text(query)
    with pytest.raises(InputError, match=f"the files have changed.*deploy '{name}'"):
        prepare(path)
    prepare(path, apply=True).close()
    later = table(seed=9)
    later["at"] += pd.Timedelta(seconds=400)
    later["ts"] += 400
    add_files(tmp_path, later, 2, first=5)
    run(path)
    assert len(streamed(tmp_path)[name]) > 20
    record = read_record(load_deployment(path).checkpoint)
    assert record is not None
    assert (record.chains, record.crosses, record.gathered) == (True, True, ())


@pytest.mark.parametrize("version", [6, 7])
def test_queries_of_an_earlier_checkpoint_stay_in_one_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    path = job(tmp_path, query=QUERY)
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint_record, "crosses", lambda engine: False)
        earlier.setattr(compilation, "crosses", lambda engine: False)
        crashed(path, CrashAt("committed", 1), interval=0.0)
    file = tmp_path / "state" / "ensue.json"
    record = json.loads(file.read_text())
    assert record["version"] == 7
    assert {tuple(name[:2]) for _, name in record["gathered"]} == {("chains", True)}
    if version == 6:  # it says nothing of groups: all are in one bucket
        del record["gathered"]
    file.write_text(json.dumps(record | {"version": version}))
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)
    assert set(open_checkpoint(load_deployment(path)).program.names.values()) == {("chains", True, ("readings",))}


def test_what_an_older_checkpoint_routes_stays_an_output(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = job(tmp_path, query=FIRST + NEXT)
    prepare(path).close()
    file = tmp_path / "state" / "ensue.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 5, "chains": False, "gathered": None}))
    ready = prepare(path)
    ready.close()
    assert "was written before queries fed each other" in caplog.text
    assert not any(query.routes for query in ready.checked.program.plan().queries)


def test_the_state_of_keys_that_were_apart_is_refused() -> None:
    text = "event A { integer k; } event B { integer k; } " + "".join(
        f"query {name} {{ inputs {{ {takes}() key k within 9.0; }} find {takes} as x {{ {does} }} }} "
        for name, takes, does in [("P", "A", "route B(x.k);"), ("Q", "B", 'print "x";')]
    )
    plan = querylang.compile_text(text).plan
    apart, together = (Program.of(own, buckets=2) for own in (plan.without_routes(), plan))
    saved = close_state(apart, 0, open_state(apart, 0, None)).to_bytes()
    assert open_state(apart, 0, saved).engines
    with pytest.raises(InputError, match="its queries did not feed each other"):
        open_state(together, 0, saved)
    own = close_state(together, 0, open_state(together, 0, None)).to_bytes()
    assert open_state(together, 0, own).engines
