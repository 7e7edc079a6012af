"""`ensue why JOB`: what it says holds a match back does, and what it says lets it come does so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ensue.asking_jobs import why_job
from job_engine.job.stages.start import RunKind
from querylang.errors import InputError
from querylang.printable import forget_secrets, keep_secret
from runtime.why import Status
from tests.ensue.command import runner
from tests.support.local_jobs import begun
from tests.support.waiting import LONGEST

QUERY = """@OutOfOrder()
event Report { string device; }

query Silent {
    inputs { Report() key device within 10 minutes wait 10 seconds; }
    find Report as last -> wait(5 minutes) without Report as next
}
"""
JOB = """name: silent
queries: [silent.query]
engine: local
sources:
  reports: {format: csv, path: in, arrival: at}
sinks:
  matches: {format: json, path: out/matches}
  discarded: {format: json, path: out/discarded}
buckets: 2
checkpoint: state
"""
ROWS = """at,ts,device
2026-01-01T12:00:00Z,2026-01-01T12:00:00Z,d1
2026-01-01T12:01:00Z,2026-01-01T12:01:00Z,d2
2026-01-01T12:02:00Z,2026-01-01T12:00:10Z,d2
2026-01-01T12:03:00Z,2026-01-01T12:02:55Z,device-three
"""


def read(path: Path) -> int:
    """Runs the job over what is new, without letting time advance behind it; gives how many matches came."""
    handle, batches = begun(path, kind=RunKind(is_bounded=True, flush=False))
    assert handle.await_termination(LONGEST)
    return sum(sum(batch.matches.values()) for batch in batches)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "silent.query").write_text(QUERY)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(ROWS)
    return tmp_path / "job.yaml"


def test_a_match_comes_at_the_latest_when_it_says(job: Path) -> None:
    assert read(job) == 0
    answers = [answer for answer in why_job(job, ["d1"]) if answer.status is Status.NOT_YET]
    (awaited,) = [answer.awaited for answer in answers]
    assert awaited is not None
    assert awaited.due == "2026-01-01T12:05:00.000000Z"
    assert awaited.latest == "2026-01-01T12:05:10.000000Z"
    before = "2026-01-01T12:05:09.999999Z"
    (job.parent / "in" / "2.csv").write_text(f"at,ts,device\n{before},{before},d9\n")
    assert read(job) == 0
    (job.parent / "in" / "3.csv").write_text(f"at,ts,device\n{awaited.latest},{awaited.latest},d9\n")
    assert read(job) == 1


def test_all_that_waits_and_all_that_was_discarded_is_said(job: Path) -> None:
    read(job)
    answer = why_job(job)
    waits, counts, row = answer
    assert waits.says == "2 matches wait and 1 event is held until time is definitive; 2 events in windows, 3 keys"
    assert counts.says == "discarded as late: 1 of `reports`"
    assert row.event is not None
    assert (row.event.source, row.event.offset) == ("1.csv", 3)
    assert row.reason is not None
    assert row.reason.by == 100.0
    assert row.says.endswith("is a `wait`, or a delay of its ordering policy, of 1 minute 50 seconds")
    assert answer.remarks == ("as of micro-batch 0; the job does not run",)


def test_the_wait_that_it_names_lets_the_late_record_in(job: Path) -> None:
    (job.parent / "silent.query").write_text(QUERY.replace("wait 10 seconds", "wait 1 minute 50 seconds"))
    read(job)
    assert [answer.status for answer in why_job(job)] == [Status.NOT_YET]


def test_what_is_pending_of_a_key_and_what_is_in_windows(job: Path) -> None:
    read(job)
    (pending,) = why_job(job, ["device-three"])
    assert pending.event is not None
    assert pending.event.fields == {"device": "device-three"}
    assert pending.says.startswith("it is held until its time is definitive")
    *_, kept = why_job(job, ["d1"])
    assert kept.says.startswith("1 event in windows may be part of a later match")
    (nothing,) = why_job(job, ["d8"])
    assert nothing.says.startswith("nothing is kept of this key")


def test_a_source_that_is_behind_is_named_and_its_next_record_lets_time_advance(job: Path) -> None:
    text = JOB.replace(
        "  reports: {format: csv, path: in, arrival: at}\n",
        "  reports: {format: csv, path: in, arrival: at, event: Report}\n"
        "  others: {format: csv, path: others, arrival: at, event: Report}\nidle: none\n",
    )
    job.write_text(text)
    others = job.parent / "others"
    others.mkdir()
    (others / "1.csv").write_text("at,ts,device\n2026-01-01T12:00:30Z,2026-01-01T12:00:30Z,e1\n")
    (job.parent / "in" / "2.csv").write_text("at,ts,device\n2026-01-01T12:06:00Z,2026-01-01T12:06:00Z,d1\n")
    handle, batches = begun(job, kind=RunKind(is_bounded=False, flush=False))
    try:
        for _ in range(600):
            handle.await_termination(0.1)
            if sum(batch.records for batch in batches) == 6:
                break
    finally:
        handle.stop()
    assert sum(sum(batch.matches.values()) for batch in batches) == 0
    (answer,) = [item for item in why_job(job) if item.status is Status.NOT_YET]
    assert answer.awaited is not None
    assert answer.awaited.held_by.startswith("others, whose last record arrived at 2026-01-01T12:00:30")
    assert answer.awaited.setting.startswith("`idle` of `others`")
    (others / "2.csv").write_text("at,ts,device\n2026-01-01T12:06:00Z,2026-01-01T12:06:00Z,e1\n")
    assert read(job) > 0


def test_nothing_is_changed_by_asking(job: Path) -> None:
    read(job)
    before = {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()}
    why_job(job)
    why_job(job, ["d1"])
    assert {path: path.read_bytes() for path in job.parent.rglob("*") if path.is_file()} == before


def test_the_command_prints_text_or_json(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    assert run("why", str(job)).stdout.startswith("(the job has not run yet")
    read(job)
    assert "Silent, device d1: not yet" in run("why", str(job), "--key", "d1").stdout
    assert json.loads(run("why", str(job), "--key", "d1", "--json").stdout)["answers"][0]["status"] == "not yet"


def test_secrets_are_masked(job: Path) -> None:
    read(job)
    answer = why_job(job, ["device-three"])
    keep_secret("PIN", "device-three")
    try:
        shown = str(answer) + json.dumps(answer.to_plain())
        assert "${PIN}" in shown
        assert "device-three" not in shown
    finally:
        forget_secrets()


def test_what_a_job_cannot_answer_has_a_way_out(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(monkeypatch, capsys)
    assert "ask files that it reads: `ensue why QUERY FILES --row N`" in run("why", str(job), "--row", "3").stderr
    assert "name event tables behind the query" in run("why", str(job.parent / "silent.query")).stderr
    read(job)
    with pytest.raises(InputError):
        why_job(job, ['{"other": 2}'])
