"""One run at a time has a checkpoint: the second is refused at once, the first continues."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from job_engine.job import job
from job_engine.job.checkpoint import locks
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.locks import RunLock
from querylang.errors import InputError
from tests.support.sensors import project


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path / "state" / "ensue" / "at-work"), RunLock(tmp_path / "state" / "ensue" / "at-work")
    assert not first.is_held()
    first.acquire()
    assert second.is_held()
    with pytest.raises(InputError, match=r"state: another run of this job is at work \(process \d+\); it continues"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_those_who_ask_for_the_lock_at_once_see_the_job_and_not_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "sleep", lambda _: pytest.fail("asking waits"))
    lock, asking = RunLock(tmp_path / "at-work"), RunLock(tmp_path / "at-work")
    lock.acquire()
    assert asking.process() == os.getpid()
    lock.release()
    with (tmp_path / "at-work").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not asking.is_held()


def test_a_lock_of_a_job_that_ended_unnoticed_can_be_taken(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path / "at-work"), RunLock(tmp_path / "at-work")
    first.acquire()
    first.hold_while(lambda: False)
    second.acquire()
    second.release()


def test_a_second_run_starts_nothing_and_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = project(tmp_path)
    lock = RunLock(tmp_path / "state" / "ensue" / "at-work")
    lock.acquire()
    before = sorted(tmp_path.rglob("*"))
    for start in (lambda: job.run(path, once=True), lambda: job.deploy(path)):
        with pytest.raises(InputError, match="another run of this job is at work"):
            start()
    command = [sys.executable, "-m", "ensue.cli", "run", str(path), "--once"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (4, "")
    assert found.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    lock.release()


def test_a_run_that_ended_before_its_record_was_written_can_be_repeated(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "ensue" / "at-work")
    lock.acquire()
    lock.release()
    assert read_record(tmp_path) is None
    (tmp_path / "ensue" / "notes").write_text("")
    with pytest.raises(InputError, match="holds files that are not a checkpoint"):
        read_record(tmp_path)


def test_a_file_system_without_locks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with pytest.raises(InputError, match=r"at-work: cannot be locked: No locks available; choose a checkpoint on"):
        RunLock(tmp_path / "at-work").acquire()
    assert fcntl is locks.fcntl
