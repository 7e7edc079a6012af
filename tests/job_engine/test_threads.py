"""Calls beside a job: which threads they have."""

from __future__ import annotations

import os
from threading import Event, current_thread

import pytest

from job_engine import threads
from job_engine.threads import begun
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _no_thread_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", [])


def test_a_call_has_the_thread_of_one_that_has_ended() -> None:
    first = begun(current_thread, "first").result()
    wait_for(lambda: bool(threads._idle))
    assert begun(current_thread, "second").result() is first


def test_a_call_that_is_stuck_keeps_its_thread_and_no_other_call_waits_for_it() -> None:
    may_end = Event()
    stuck = begun(may_end.wait, "stuck")
    assert begun(lambda: 5, "other").result(60) == 5
    may_end.set()
    assert stuck.result(60)


def test_a_thread_is_there_for_more_after_a_call_has_failed() -> None:
    failed = begun(lambda: 1 // 0, "failed")
    assert isinstance(failed.exception(60), ZeroDivisionError)
    wait_for(lambda: bool(threads._idle))
    assert begun(lambda: 5, "next").result(60) == 5


def test_a_fork_has_none_of_the_threads_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the list that a fork clears
    begun(lambda: 5, "first").result(60)
    wait_for(lambda: bool(threads._idle))
    child = os.fork()
    if child == 0:
        with_own = begun(lambda: 5, "in the child").exception(20)
        os._exit(0 if with_own is None else 1)
    assert os.waitpid(child, 0)[1] == 0
