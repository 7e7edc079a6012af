"""Ctrl-C and SIGTERM are noticed from the first second of a command, and end it with its documented code."""

from __future__ import annotations

import os
import signal
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from job_engine.deployment_file import ENGINE_VARIABLE
from job_engine.job.checkpoint.locks import RunLock
from job_engine.setting_keys import Engine
from job_engine.stopping import Stopped, StopRequest
from tests.ensue.command import Run
from tests.support.sensors import project

EARLY = "stopped before the job had started; the next run continues where the last one has ended"


def arrive(number: int) -> Callable[..., object]:
    """What a signal does that arrives in the middle of this call."""

    def call(*_: object, **__: object) -> object:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was not noticed at once")

    return call


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_once", [False, True])
@pytest.mark.parametrize(
    "place", ["job_engine.deployment_file.load_deployment", "job_engine.job.stages.prepare.open_watch"]
)
def test_a_signal_before_a_job_has_started_ends_it_clearly(
    ensue: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, place: str, is_once: bool, number: int
) -> None:
    path = project(tmp_path)
    monkeypatch.setenv(ENGINE_VARIABLE, Engine.LOCAL)
    monkeypatch.setattr(place, arrive(number))
    done = ensue("run", str(path), *(["--once"] if is_once else []))
    assert (done.returncode, done.stdout, done.stderr) == (128 + number if is_once else 0, "", f"{EARLY}\n")
    lock = RunLock(tmp_path / "state" / "ensue" / "at-work")
    lock.acquire()  # the checkpoint is free
    lock.release()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_another_command_is_ended_by_a_signal_in_one_line(
    ensue: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr("ensue.commands.findings.check_files", arrive(number))
    done = ensue("check", str(tmp_path))
    assert (done.returncode, done.stderr) == (128 + number, f"ended by {number.name}\n")


def test_a_call_to_java_is_not_broken_off() -> None:
    code = "def call():\n    kill()\n    end()\n"
    java = types.ModuleType("py4j.protocol")
    ended: list[bool] = []
    java.__dict__.update(kill=lambda: os.kill(os.getpid(), signal.SIGTERM), end=lambda: ended.append(True))
    exec(code, java.__dict__)  # as a function of py4j

    def begin(stop: StopRequest) -> None:
        with stop.noticed_at_once():
            java.call()
            assert ended == [True]
            signal.pause()  # until the next look

    with StopRequest() as stop, pytest.raises(Stopped):
        begin(stop)
    assert stop.signal == signal.SIGTERM


def test_a_signal_that_a_library_has_swallowed_is_known_to_the_next_context() -> None:
    with StopRequest() as outer:
        try:
            with outer.noticed_at_once():
                os.kill(os.getpid(), signal.SIGINT)
        except BaseException:  # noqa: BLE001 # as libraries do
            pass
        with StopRequest() as inner:
            assert inner.is_requested
            with pytest.raises(Stopped), inner.noticed_at_once():
                raise AssertionError("it was not known")


def test_handlers_are_as_before_behind_a_command(ensue: Run, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    ensue("check", str(tmp_path))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
