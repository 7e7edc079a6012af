"""Local jobs without an end: changes of their queries, time that passes, and what is asked of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.errors import JobError
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.commands import send_change
from job_engine.job.history.running import send_with_history
from job_engine.job.stages.start import LOOK_FOR_CHANGES, Handle, RunKind
from job_engine.job.status import status_of
from job_engine.local.machine import LocalMachine, LocalRunning
from tests.support.local_jobs import NEVER, Crash, CrashAt, begun, crashed, run
from tests.support.waiting import LONGEST, wait_for

EVENT = "event Reading { float ts; string sensor; float value; }\n"
RISING = """query Rising {
  inputs { Reading() key sensor within 60.0; }
  find Reading:a -> Reading:b where b.value > a.value
}"""
FALLING = RISING.replace("Rising", "Falling").replace("b.value >", "b.value <")
SILENCE = """query Silent {
  inputs { Reading() key sensor within 60.0; }
  find Reading:a -> wait(2.0):w
}"""


def job(folder: Path, text: str = RISING, **settings: object) -> Path:
    """A job on two folders."""
    (folder / "q.query").write_text(EVENT + text)
    sources = {}
    for name in ("north", "south"):
        (folder / name).mkdir()
        sources[name] = {"format": "csv", "path": name, "event": "Reading", "arrival": "at", "source_time": "ts"}
    deployment = {
        "name": "readings",
        "engine": "local",
        "queries": "q.query",
        "sources": sources,
        "sinks": {"matches": {"path": "out", "format": "json"}},
        "checkpoint": "state",
        "buckets": 2,
        "trigger": "50ms",
        **settings,
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(deployment))
    return path


def bring(folder: Path, source: str, number: int, moments: range) -> None:
    rows = "".join(f"{at}.0,{at}.0,s{at % 3},{(at * 7 + at // 9) % 10}.0\n" for at in moments)
    draft = folder / f".{number}.csv"
    draft.write_text(f"at,ts,sensor,value\n{rows}")
    draft.rename(folder / source / f"{number}.csv")


def matches(folder: Path, query: str, column: str = "match_id") -> list[str]:
    files = (folder / "out" / query).glob("*.json") if (folder / "out" / query).exists() else ()
    return sorted(json.loads(line)[column] for file in files for line in file.read_text().splitlines())


@contextmanager
def running(path: Path, *, interval: float = 0.2) -> Iterator[Handle]:
    handle, _ = begun(path, interval=interval, kind=RunKind())
    try:
        yield handle
    finally:
        handle.stop()


def read(folder: Path, query: str = "Rising") -> int:
    """The number of records of a query that the account of what is committed has."""
    total = JobFolder(folder / "state").ledger.total()
    return sum(count for (title, _, what), count in total.items() if (title, what) == (query, "received"))


def test_queries_are_changed_while_a_job_runs(tmp_path: Path) -> None:
    path = job(tmp_path)
    bring(tmp_path, "north", 1, range(100))
    bring(tmp_path, "south", 1, range(100))
    with running(path) as handle:
        wait_for(lambda: matches(tmp_path, "Rising"))
        outcome = handle.control(json.dumps({"DeployQuery": [FALLING]}), seconds=60)
        assert outcome is not None
        assert not outcome.errors
        bring(tmp_path, "north", 2, range(100, 200))
        bring(tmp_path, "south", 2, range(100, 200))
        wait_for(lambda: matches(tmp_path, "Falling"))
        outcome = handle.control('UndeployQuery("Rising")', seconds=60)
        assert outcome is not None
        assert not outcome.errors
    before = matches(tmp_path, "Falling")
    bring(tmp_path, "north", 3, range(200, 300))
    bring(tmp_path, "south", 3, range(200, 300))
    run(path)
    assert max(matches(tmp_path, "Rising", "time")) < "1970-01-01T00:03:20"
    after = matches(tmp_path, "Falling")
    assert len(set(after)) == len(after) > len(before)


def test_a_query_that_has_ended_does_not_hold_the_clock_of_the_job_back(tmp_path: Path) -> None:
    path = job(tmp_path, f"{RISING}\n{FALLING}")
    with running(path) as handle:
        for number in range(4):
            for source in ("north", "south"):
                bring(tmp_path, source, number, range(100 * number, 100 * number + 100))
            wait_for(lambda: read(tmp_path, "Falling") >= 200 * (number + 1))  # noqa: B023  it is called at once
            if number == 1:
                assert handle.control('UndeployQuery("Rising")', seconds=60) is not None
    status = status_of(path)
    assert status.clock == 399 * 1_000_000
    assert [query.query for query in status.queries] == ["Falling"]
    assert JobFolder(tmp_path / "state").last_progress().queries.keys() == {"Falling"}


def test_a_control_event_that_a_history_has_taken_is_taken_once(tmp_path: Path) -> None:
    """A query of a source that is ahead: what runs already holds the event for its own, which is behind."""
    other = '@TimeFrom("ts")\nevent Other { float ts; string sensor; float value; }\n'
    waits = "query Waits { inputs { Other() key sensor within 60.0 wait 5.0; } find Other:a -> Other:b }"
    sources = {
        name: {"format": "csv", "path": name, "event": event, "arrival": "at", "source_time": "ts"}
        for name, event in (("north", "Other"), ("south", "Reading"))
    }
    (tmp_path / "control").mkdir()
    path = job(tmp_path, sources=sources, control={"format": "csv", "path": "control"})
    (tmp_path / "q.query").write_text(other + EVENT + RISING)
    bring(tmp_path, "north", 1, range(100))
    bring(tmp_path, "south", 1, range(20))
    (tmp_path / "control" / "1.csv").write_text('at,event\n50.0,"SetDelayedEventsLeeway(3.0, 1.0)"\n')
    with running(path):
        wait_for(lambda: JobFolder(tmp_path / "state").last_progress().furthest == 99_000_000)
    send_with_history(load_deployment(path), other + waits, wait=False)
    bring(tmp_path, "south", 2, range(20, 200))
    run(path)
    total = JobFolder(tmp_path / "state").ledger.total()
    assert sum(count for (query, _, what), count in total.items() if (query, what) == ("Waits", "control")) == 1


def test_time_passes_a_silent_source(tmp_path: Path) -> None:
    path = job(tmp_path, SILENCE, idle="1s")
    now = int(time.time())
    bring(tmp_path, "north", 1, range(now - 100, now - 90))
    bring(tmp_path, "south", 1, range(now - 100, now - 99))
    with running(path):
        wait_for(lambda: len(matches(tmp_path, "Silent")) == 11)
    assert len(set(matches(tmp_path, "Silent"))) == 11


def test_micro_batches_of_timers_are_repeated_at_their_moments(tmp_path: Path) -> None:
    path = job(tmp_path, SILENCE, idle="1s")
    now = int(time.time())
    bring(tmp_path, "north", 1, range(now - 100, now - 90))
    bring(tmp_path, "south", 1, range(now - 100, now - 99))

    def at(point: str) -> None:
        if point == "published" and len(matches(tmp_path, "Silent")) == 11:
            raise Crash(point)

    handle, _ = begun(path, at, interval=NEVER, kind=RunKind())
    with pytest.raises(JobError, match="published"):
        handle.await_termination(LONGEST)
    found = matches(tmp_path, "Silent")
    moments = {file.name: file.read_text() for file in (tmp_path / "state" / "offsets").iterdir()}
    assert len(moments) > 2
    assert not list((tmp_path / "state" / "commits").iterdir())
    with running(path):
        wait_for(lambda: list((tmp_path / "state" / "commits").iterdir()))
    assert matches(tmp_path, "Silent") == found
    again = {name: (tmp_path / "state" / "offsets" / name).read_text() for name in moments}
    assert again == moments


def test_a_stop_commits_what_was_published(tmp_path: Path) -> None:
    path = job(tmp_path)
    bring(tmp_path, "north", 1, range(100))
    bring(tmp_path, "south", 1, range(100))
    with running(path, interval=NEVER):
        wait_for(lambda: matches(tmp_path, "Rising"))
        assert not list((tmp_path / "state" / "commits").glob("[0-9]*"))
    begun_, committed = (
        sorted(int(file.name) for file in (tmp_path / "state" / log).glob("[0-9]*")) for log in ("offsets", "commits")
    )
    assert committed == begun_[-1:]
    assert read(tmp_path) == 200


def test_a_running_job_commits_now_and_then(tmp_path: Path) -> None:
    path = job(tmp_path)
    with running(path, interval=0.1) as handle:
        for number in range(3):
            for name in ("north", "south"):
                bring(tmp_path, name, number, range(number * 100, number * 100 + 100))
            wait_for(lambda number=number: read(tmp_path) == 200 * (number + 1))
        status = handle.status()
        assert status.is_active


def test_files_are_archived_once_they_are_committed(tmp_path: Path) -> None:
    path = job(tmp_path)
    text = json.loads(path.read_text())
    (tmp_path / "done").mkdir()
    text["sources"]["north"] |= {"after": "archive done"}
    path.write_text(json.dumps(text))
    bring(tmp_path, "north", 1, range(100))
    bring(tmp_path, "south", 1, range(100))
    crashed(path, CrashAt("published"))
    assert (tmp_path / "north" / "1.csv").exists()
    run(path)
    assert not (tmp_path / "north" / "1.csv").exists()
    assert len(matches(tmp_path, "Rising")) == len(set(matches(tmp_path, "Rising")))


def test_a_stop_gives_up_a_micro_batch_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_engine.local.machine.PATIENCE", 0.5)
    path = job(tmp_path)
    bring(tmp_path, "north", 1, range(100))
    bring(tmp_path, "south", 1, range(100))
    handle, _ = begun(path, interval=NEVER, kind=RunKind())
    wait_for(lambda: matches(tmp_path, "Rising"))
    machine = handle._job.machine  # who stops its workers
    assert isinstance(machine, LocalMachine)
    for pid in machine.pool.pids:
        os.kill(pid, signal.SIGSTOP)  # they are busy for long
    log = tmp_path / "state" / "offsets"
    count = len(list(log.iterdir()))
    bring(tmp_path, "north", 2, range(100, 200))
    bring(tmp_path, "south", 2, range(100, 200))
    wait_for(lambda: len(list(log.iterdir())) > count)
    handle.stop()
    run(path)
    found = matches(tmp_path, "Rising")
    assert len(found) == len(set(found))
    assert read(tmp_path) == 400


def test_a_change_waits_for_a_micro_batch_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_engine.local.machine.PATIENCE", 0.1)
    path = job(tmp_path)
    bring(tmp_path, "north", 1, range(100))
    bring(tmp_path, "south", 1, range(100))
    handle, batches = begun(path, interval=NEVER, kind=RunKind())
    wait_for(lambda: matches(tmp_path, "Rising"))
    machine, first = handle._job.machine, handle._run.running
    assert isinstance(machine, LocalMachine)
    assert isinstance(first, LocalRunning)
    for pid in machine.pool.pids:
        os.kill(pid, signal.SIGSTOP)  # they are busy for long
    log = tmp_path / "state" / "offsets"
    count = len(list(log.iterdir()))
    bring(tmp_path, "north", 2, range(100, 200))
    wait_for(lambda: len(list(log.iterdir())) > count)
    send_change(handle._job.checked.deployment, 'UndeployQuery("Rising")', wait=False)
    wait_for(first._run._stopping.is_set)
    assert not first.wait(1.0), "it is given up by nobody"
    for pid in machine.pool.pids:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not list(handle._job.folder.commands.pending()))
    handle.stop()
    assert len({batch.batch for batch in batches}) == len(batches), "no micro-batch was repeated"


def test_a_job_in_the_background_says_once_what_has_ended_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = job(tmp_path, SILENCE, idle="1s")
    bring(tmp_path, "north", 1, range(10))

    def at(point: str) -> None:
        if point == "stepped":
            raise Crash(point)

    handle, _ = begun(path, at, kind=RunKind())
    wait_for(lambda: "has ended" in caplog.text)
    assert not handle.is_active
    assert [record.message for record in caplog.records if "has ended" in record.message] == [
        "the job 'readings' has ended: the job ended with an error: stepped"
    ]
    with pytest.raises(JobError, match="stepped"):
        handle.await_termination(LONGEST)
    handle.stop()


def test_a_failure_that_somebody_waits_for_is_raised_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = job(tmp_path, SILENCE, idle="1s")
    bring(tmp_path, "north", 1, range(10))
    is_awaited = Event()

    def at(point: str) -> None:
        is_awaited.wait(LONGEST)
        raise Crash(point)

    handle, _ = begun(path, at, kind=RunKind())
    assert not handle.await_termination(0.01)
    is_awaited.set()
    with pytest.raises(JobError):
        handle.await_termination(LONGEST)
    time.sleep(2 * LOOK_FOR_CHANGES)
    assert "has ended" not in caplog.text
