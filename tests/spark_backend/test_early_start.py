"""What a job starts early runs beside it, and its mistakes are not reported twice."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Event, current_thread, main_thread

from job_engine.threads import EarlyStart
from tests.support.waiting import LONGEST


def test_the_caller_goes_on_and_may_wait() -> None:
    go, done = Event(), Event()

    def start() -> None:
        assert current_thread() is not main_thread()
        go.wait(LONGEST)
        done.set()

    early = EarlyStart(start)
    assert not done.is_set()
    go.set()
    early.wait()
    assert done.is_set()


def test_a_mistake_is_left_to_the_caller() -> None:
    def start() -> None:
        raise RuntimeError("no Java")

    EarlyStart(start).wait()


def test_a_command_ends_although_something_is_still_starting() -> None:
    code = (
        "from threading import Event; from job_engine import threads; threads.LONGEST_EXIT = 0.1; "
        "threads.EarlyStart(Event().wait)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=LONGEST)
