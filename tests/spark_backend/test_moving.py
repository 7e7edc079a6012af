"""A checkpoint that is moved, to other buckets or another engine: the job continues, and nothing is lost on the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run
from job_engine.job.status import status_of
from job_engine.job.upkeep import moving
from job_engine.job.upkeep.moving import move, rebucket
from job_engine.place import place_of
from job_engine.setting_keys import Engine
from querylang.errors import InputError
from tests.support.chained_jobs import ACROSS_KEYS
from tests.support.embedded import by_word, ledger_of, match_ids
from tests.support.killed_runs import ROOT
from tests.support.moved_jobs import set_file
from tests.support.old_checkpoint import continue_as_a_replay, unpacked
from tests.support.sensors import add_files, answer, expected, project, project_of_two, streamed, table, totals

SAMPLES = Path(__file__).parents[1] / "snapshots"
SAMPLE = SAMPLES / "checkpoint-3.tar.gz"
DRIVERS = {"commits", "metadata", "offsets", "state"}

QUERY = """
event A { string k; float v; }
query Rise { inputs { A() key k within 10.0; } find A as a -> A as b where b.v > a.v { print b.k; } }
"""

DEPLOYMENT = """
name: rise
queries: [q.query]
sources: {s: {path: in, format: csv, event: A, arrival: at}}
sinks: {matches: {path: out, format: json}}
checkpoint: state
buckets: 3
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    unpacked(SAMPLE, tmp_path)
    return tmp_path / "old.yaml"


def names(job: Path) -> set[str]:
    return {path.name for path in (job.parent / "state").iterdir() if not path.name.startswith(".")}


@pytest.mark.usefixtures("spark")
def test_a_moved_checkpoint_continues_and_the_old_one_is_kept_until_it_has(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (job.parent / "state/ensue.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(moving, "write_record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rebucket(job, 5)
    assert (job.parent / "state/ensue.json").read_bytes() == before
    done = rebucket(job, 5)
    assert (done.before, done.buckets, done.batch, done.is_set) == (2, 5, 0, False)
    assert [path.name for path in (job.parent / "state/ensue").glob("seeds-*")] == ["seeds-1"]
    again = rebucket(job, 3)  # before the new one has run
    assert again.old == str((job.parent / "state/ensue/seeds-1").resolve())
    with pytest.raises(InputError, match=r"'buckets' was 3 and is 2.*`ensue rebucket .*old.yaml 2`"):
        run(job, once=True)
    set_file(job, buckets=3)
    assert names(job) >= DRIVERS
    (job.parent / "in/2-empty.csv").write_text("at,k,v,ts\n")  # brings no bucket a record
    run(job, once=True)
    continue_as_a_replay(job)
    assert names(job) & (DRIVERS | {"spark-1", "spark-2"}) == {"spark-2"}
    assert not list((job.parent / "state/ensue").glob("seeds-*"))
    assert json.loads((job.parent / "state/ensue.json").read_text())["moved"]["seeds"] is None
    max((job.parent / "state/spark-2/commits").glob("[0-9]*")).unlink()
    with pytest.raises(InputError, match="a run was interrupted in micro-batch"):
        rebucket(job, 2)


@pytest.mark.usefixtures("spark")
def test_a_job_whose_files_have_brought_nothing_yet_is_moved(tmp_path: Path) -> None:
    job, rows = tmp_path / "job.yaml", tmp_path / "in"
    (tmp_path / "q.query").write_text(QUERY)
    rows.mkdir()
    job.write_text(DEPLOYMENT)
    (rows / "1.csv").write_text("at,k,v\n")
    run(job, once=True)
    assert rebucket(job, 2).batch == 0
    set_file(job, buckets=2)
    (rows / "2.csv").write_text("at,k,v\n1,a,1\n2,b,2\n3,a,3\n")
    report = run(job, once=True, flush=True)
    assert sum(report.matches.values()) == 1


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("checkpoint-*.tar.gz")), ids=lambda path: path.name)
def test_a_job_continues_with_the_other_engine(tmp_path: Path, sample: Path) -> None:
    """With waits, held records, an open handover, other instances and texts in the journal."""
    unpacked(sample, tmp_path)
    job = tmp_path / "old.yaml"
    record = read_record(place_of(str(tmp_path / "state")))
    assert record is not None
    other = Engine.SPARK if record.engine is Engine.LOCAL else Engine.LOCAL
    buckets = int(str(record.settings["buckets"])) + 3
    done = move(job, other, buckets)
    assert (done.engine_before, done.engine, done.buckets) == (record.engine, other, buckets)
    assert done.to_set == {"engine": str(other), "buckets": str(buckets)}
    with pytest.raises(InputError, match=f"this checkpoint is of `engine: {other}`"):
        run(job, once=True)
    set_file(job, **done.to_set)
    continue_as_a_replay(job)
    folder = json.loads((tmp_path / "state/ensue.json").read_text())["moved"]["folder"]
    assert folder.startswith(f"{other}-")
    assert names(job) == {"ensue", "ensue.json", folder}


@pytest.mark.usefixtures("spark")
def test_a_job_that_was_moved_there_and_back_is_as_it_was(tmp_path: Path) -> None:
    unpacked(SAMPLES / "checkpoint-4-held.tar.gz", tmp_path)
    job = tmp_path / "old.yaml"
    assert move(job, Engine.LOCAL).to_set == {"engine": "local"}
    assert move(job, Engine.SPARK, 3).to_set == {"buckets": "3"}
    assert json.loads((tmp_path / "state/ensue.json").read_text())["version"] == 4
    set_file(job, buckets=3)
    continue_as_a_replay(job)


@pytest.mark.usefixtures("spark")
def test_a_job_is_moved_in_the_middle_of_its_stream_and_back(tmp_path: Path) -> None:
    job, rows = project(tmp_path), table()
    stages = [(Engine.LOCAL, 3), (Engine.SPARK, 5), (Engine.LOCAL, 2)]
    for number, (engine, buckets) in enumerate(stages):
        if number:
            assert move(job, engine, buckets).batch == 3 * number - 1
        set_file(job, engine=engine, buckets=buckets)
        add_files(tmp_path, rows.iloc[number * 1000 : (number + 1) * 1000], 3, first=3 * number)
        run(job, once=True, flush=number == 2)
    assert streamed(tmp_path) == expected(tmp_path)
    assert totals(status_of(job).ledger, "Rise")["received"] == 3000


@pytest.mark.usefixtures("spark")
def test_queries_that_cross_buckets_are_moved_into_one(tmp_path: Path) -> None:
    job, rows = project_of_two(tmp_path), table(1800)
    (tmp_path / "sensors.query").write_text(ACROSS_KEYS)
    for number, (engine, buckets) in enumerate([(Engine.LOCAL, 3), (Engine.SPARK, 4), (Engine.LOCAL, 2)]):
        if number:
            move(job, engine, buckets)
        set_file(job, engine=engine, buckets=buckets)
        own = rows.iloc[number * 600 : (number + 1) * 600]
        add_files(tmp_path, own[own.sensor < "s2"], 1, number, source="north")
        add_files(tmp_path, own[own.sensor >= "s2"], 1, number, source="south")
        run(job, once=True, flush=number == 2)
    wanted = answer(tmp_path)
    assert streamed(tmp_path) == match_ids(wanted)
    assert all(streamed(tmp_path).values())
    assert by_word(status_of(job).ledger) == by_word(ledger_of(wanted.ledger.to_pylist()))
    record = read_record(place_of(str(tmp_path / "state")))
    assert record is not None
    assert (record.crosses, record.version) == (False, 7)


def test_wrong_numbers_and_running_jobs_are_refused(job: Path) -> None:
    for number in (0, -1, 10_001):
        with pytest.raises(InputError, match=f"^{number} is not a number of buckets; expected 1 to 10000$"):
            rebucket(job, number)
    with pytest.raises(InputError, match="has 2 buckets already; nothing was changed"):
        rebucket(job, 2)
    with pytest.raises(InputError, match="is of `engine: spark`, with 2 buckets, already; nothing was changed"):
        move(job, Engine.SPARK)
    lock = JobFolder(job.parent / "state").lock()
    lock.acquire()
    try:
        for engine, buckets in ((None, 3), (Engine.LOCAL, None)):
            with pytest.raises(InputError, match="another run of this job is at work"):
                move(job, engine, buckets)
    finally:
        lock.release()
    job.write_text(job.read_text().replace("clock: arrival", "") + "\nforget_keys: 3 days\n")
    with pytest.raises(InputError, match="'forget_keys' was"):
        rebucket(job, 3)
    (job.parent / "state/ensue.json").unlink()
    with pytest.raises(InputError, match=r"Spark checkpoint that Ensue did not make|there is no checkpoint yet"):
        rebucket(job, 3)


def kept(folder: Path) -> dict[Path, bytes]:
    """All files of a checkpoint but its lock."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "at-work"}


def test_a_move_to_spark_without_java_says_what_it_needs(tmp_path: Path) -> None:
    job = project(tmp_path)
    set_file(job, engine="local")
    add_files(tmp_path, table(300), 1)
    run(job, once=True)
    before = kept(tmp_path / "state")
    done = subprocess.run(
        [sys.executable, "-m", "ensue", "move", str(job), "--to", "spark"],
        env={**{key: value for key, value in os.environ.items() if key != "JAVA_HOME"}, "PATH": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(r"cannot be moved to `engine: spark`.*: no Java was found: Spark needs Java", done.stderr)
    assert "Nothing was changed" in done.stderr
    assert kept(tmp_path / "state") == before
