"""A checkpoint that is moved to another number of buckets: the job continues, and nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.job import run
from job_engine.job.upkeep import rebucket as moving
from job_engine.job.upkeep.rebucket import rebucket
from querylang.errors import InputError
from tests.support.old_checkpoint import continue_as_a_replay, unpacked

SAMPLE = Path(__file__).parents[1] / "snapshots" / "checkpoint-3.tar.gz"
SPARKS = {"commits", "metadata", "offsets", "state"}

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


def set_buckets(job: Path, count: int) -> None:
    text = job.read_text()
    job.write_text(text.replace(text[text.index("buckets: ") :].splitlines()[0], f"buckets: {count}"))


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
    set_buckets(job, 3)
    assert names(job) >= SPARKS
    (job.parent / "in/2-empty.csv").write_text("at,k,v,ts\n")  # brings no bucket a record
    run(job, once=True)
    continue_as_a_replay(job)
    assert names(job) & (SPARKS | {"spark-1", "spark-2"}) == {"spark-2"}
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
    set_buckets(job, 2)
    (rows / "2.csv").write_text("at,k,v\n1,a,1\n2,b,2\n3,a,3\n")
    report = run(job, once=True, flush=True)
    assert sum(report.matches.values()) == 1


def test_wrong_numbers_and_running_jobs_are_refused(job: Path) -> None:
    for number in (0, -1, 10_001):
        with pytest.raises(InputError, match=f"^{number} is not a number of buckets; expected 1 to 10000$"):
            rebucket(job, number)
    with pytest.raises(InputError, match="has 2 buckets already; nothing was changed"):
        rebucket(job, 2)
    lock = JobFolder(job.parent / "state").lock()
    lock.acquire()
    try:
        with pytest.raises(InputError, match="another run of this job is at work"):
            rebucket(job, 3)
    finally:
        lock.release()
    job.write_text(job.read_text().replace("clock: arrival", "") + "\nforget_keys: 3 days\n")
    with pytest.raises(InputError, match="'forget_keys' was"):
        rebucket(job, 3)
    (job.parent / "state/ensue.json").unlink()
    with pytest.raises(InputError, match=r"Spark checkpoint that Ensue did not make|there is no checkpoint yet"):
        rebucket(job, 3)
