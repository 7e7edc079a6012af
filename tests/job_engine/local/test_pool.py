"""The workers of a local job: what they answer, what they raise, and how their deaths read."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_engine.errors import WorkerDied
from job_engine.job.preflight import checked
from job_engine.local.frames import Ended, Frame, Word, receive, send
from job_engine.local.pool import Pool, WorkerFailed
from job_engine.settings.deployment_file import load_deployment
from querylang.errors import InputError
from tests.support.local_jobs import local
from tests.support.sensors import project


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """Two workers that have begun a run."""
    found = Pool(2)
    begin(found, tmp_path)
    yield found
    found.close()


def begin(pool: Pool, folder: Path) -> None:
    ready = checked(load_deployment(local(project(folder))))
    own = {"program": ready.program.to_text(), "options": {}, "sinks": {}, "identity": "0" * 12}
    pool.begin({**own, "rows": str(pool.folder)})


def test_a_frame_arrives_as_it_was_sent() -> None:
    ours, theirs = socket.socketpair()
    frame = Frame(Word.READ, {"tasks": ["a"], "n": 1}, [b"", b"x" * 1_000_000])
    sender = threading.Thread(target=send, args=(ours, frame))
    sender.start()
    found = receive(theirs)
    sender.join()
    assert (found.word, found.header) == (frame.word, frame.header)
    assert [bytes(part) for part in found.parts] == frame.parts


def test_a_connection_that_closes_in_the_middle_of_a_frame_has_ended() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"\x10" + b"\0" * 7 + b"half")
    ours.close()
    with pytest.raises(Ended):
        receive(theirs)
    with pytest.raises(Ended):
        send(theirs, Frame(Word.DONE, {}, [b"x" * 10_000_000]))


def test_workers_begin_again_and_again(pool: Pool, tmp_path: Path) -> None:
    pids = pool.pids
    begin(pool, tmp_path)
    assert pool.pids == pids


def test_what_a_worker_refuses_is_raised_here(pool: Pool) -> None:
    with pytest.raises(InputError):
        pool.ask(
            {0: Frame(Word.STEP, {"batch": 0, "timestamp": 1, "due": [], "buckets": [0], "is_measured": False}, [b"?"])}
        )


def test_an_unknown_error_of_a_worker_begins_with_its_last_line(pool: Pool) -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)^KeyError: 'due'\nTraceback"):
        pool.ask({1: Frame(Word.STEP, {})})


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (
            signal.SIGKILL,
            r"a worker process ended with signal 9 \(Killed\): the system killed it, as it does for memory",
        ),
        (signal.SIGSEGV, r"a worker process ended with signal 11 \(Segmentation fault\)$"),
    ],
)
def test_a_death_says_how_it_came_and_new_workers_follow(pool: Pool, tmp_path: Path, number: int, text: str) -> None:
    before = pool.pids
    os.kill(before[1], number)
    with pytest.raises(WorkerDied, match=text):
        pool.ask(dict.fromkeys((0, 1), Frame(Word.READ, {"tasks": []})))
    begin(pool, tmp_path)
    assert len(pool.pids) == 2
    assert not set(pool.pids) & set(before)


def test_a_closed_pool_leaves_nothing(tmp_path: Path) -> None:
    found = Pool(2)
    begin(found, tmp_path)
    pids = found.pids
    found.close()
    assert not found.folder.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
