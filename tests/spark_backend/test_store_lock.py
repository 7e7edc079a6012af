"""One run at a time has a checkpoint in a store: by an object that changes, or does not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from job_engine.job.checkpoint import locks
from job_engine.job.checkpoint.locks import StoreLock
from job_engine.place import RemotePath, place_of
from querylang.errors import InputError
from tests.support.stores import StoreServer


@pytest.fixture
def file(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> RemotePath:
    for name, seconds in (("BEAT", 0.05), ("STALE", 0.4), ("SETTLED", 0.1)):
        monkeypatch.setattr(locks, name, seconds)
    found = place_of("s3://bucket/state/ensue/at-work")
    assert isinstance(found, RemotePath)
    assert store.keys() == []
    return found


def test_a_second_run_is_refused_while_the_first_one_is_at_work(file: RemotePath) -> None:
    first = StoreLock(file)
    first.acquire()
    with pytest.raises(InputError, match=rf"s3://bucket/state: another run .*process {os.getpid()} on"):
        StoreLock(file).refuse_if_held()
    assert StoreLock(file).is_held()
    assert StoreLock(file).process() == os.getpid()
    first.confirm()
    first.release()


def test_a_released_checkpoint_is_free_at_once(file: RemotePath, store: StoreServer) -> None:
    first = StoreLock(file)
    first.acquire()
    first.release()
    assert store.keys() == []
    second = StoreLock(file)
    second.acquire()
    second.release()


def holder(host: str, process: int) -> str:
    return json.dumps({"run": "another", "host": host, "process": process, "beat": 1, "time": 0.0})


def test_a_run_of_another_machine_that_was_killed_is_waited_for(file: RemotePath) -> None:
    file.write_text(holder("elsewhere", 1))
    lock = StoreLock(file)
    lock.acquire()
    lock.release()


def test_a_process_of_this_machine_that_has_ended_is_not_waited_for(
    file: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    file.write_text(holder(socket.gethostname(), ended.pid))
    monkeypatch.setattr(locks, "STALE", 1e9)
    lock = StoreLock(file)
    lock.acquire()
    lock.release()


def test_a_run_whose_checkpoint_was_taken_ends(file: RemotePath) -> None:
    lock = StoreLock(file)
    lock.acquire()
    file.write_text(holder("elsewhere", 7))
    with pytest.raises(InputError, match=r"another run .*process 7 on elsewhere"):
        lock.confirm()
    lock.release()
    assert json.loads(file.read_text())["run"] == "another"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 1}'])
def test_a_damaged_object_is_taken_over(file: RemotePath, text: str) -> None:
    file.write_text(text)
    lock = StoreLock(file)
    lock.acquire()
    lock.release()


def test_an_object_that_is_being_written_is_not_damaged(file: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(holder(socket.gethostname(), os.getpid()))
    halves = [b"", b'{"run": "an']
    whole = RemotePath.read_bytes
    monkeypatch.setattr(RemotePath, "read_bytes", lambda path, most: halves.pop() if halves else whole(path, most))
    lock = StoreLock(file)
    with pytest.raises(InputError, match=rf"another run .*process {os.getpid()} on"):
        lock.confirm()
    assert halves == []
