"""The kernels are compiled in the background: once, quietly, with the lowest priority, where that is wanted."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ensue import background, embedded
from ensue.background import compile_for_next_time, is_wanted, start
from ensue.data_options import DataOptions
from runtime.columns.keys import group_rows
from runtime.compiling import compiled
from runtime.compiling.compiled import VARIABLE, Kernel, wants_compiling
from tests.support.waiting import wait_for

COMMAND = (
    "import os, sys, time; from ensue.background import give_way; give_way(); "
    "open(sys.argv[1] + '.part', 'w').write(f'{os.nice(0)} {os.getsid(0)} {os.getppid()}'); "
    "os.rename(sys.argv[1] + '.part', sys.argv[1])\nwhile os.path.exists(sys.argv[2]): time.sleep(0.01)"
)
"""Tells in a file what it is, and lives for as long as another file exists."""


def numbers_in(path: Path) -> list[int]:
    wait_for(path.exists)
    return [int(word) for word in path.read_text().split()]


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_the_process_is_nobodys_child_and_alone(tmp_path: Path) -> None:
    lock, told, life = tmp_path / "lock", tmp_path / "told", tmp_path / "life"
    command = [sys.executable, "-c", COMMAND, str(told), str(life)]
    life.touch()
    assert start(command, lock, "1")
    niceness, session, parent = numbers_in(told)
    assert niceness == 19
    assert session != os.getsid(0)
    assert parent != os.getpid()
    assert not start(command, lock, "2"), "it runs"
    told.unlink()
    life.unlink()
    wait_for(lambda: is_free(lock))
    assert start(command, lock, "2")
    numbers_in(told)
    assert not start(command, lock, "2"), "it runs, or was begun lately"


def test_a_version_is_tried_again_after_some_time(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert start(["true"], lock, "1")
    wait_for(lambda: is_free(lock))
    assert not start(["true"], lock, "1")
    os.utime(lock, (0, 0))
    assert start(["true"], lock, "1")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"CI": "1"}, False), ({VARIABLE: "off"}, False), ({VARIABLE: "always"}, False)],
)
def test_users_can_refuse_it(environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, environment.get(VARIABLE, ""))
    assert is_wanted(environment) == wanted


def test_it_is_of_use_where_machine_code_is_missing_and_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(group_rows, Kernel)
    monkeypatch.setattr(compiled, "_RAN_PLAIN", {group_rows})
    for on_disk, storable in [(False, True), (False, False), (True, True)]:
        monkeypatch.setattr(compiled, "is_on_disk", lambda _, on_disk=on_disk: on_disk)
        monkeypatch.setattr(compiled, "can_be_stored", lambda _, storable=storable: storable)
        assert wants_compiling() == (storable and not on_disk)
    monkeypatch.setattr(compiled, "_RAN_PLAIN", set())
    assert not wants_compiling()


def test_a_replay_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(background, "start", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(background, "wants_compiling", lambda: True)
    monkeypatch.setattr(background, "is_wanted", lambda _: True)
    embedded.replay("inputs { A() within 1.0; } find A as a -> A as b", [{"at": 0.0}], DataOptions())
    assert len(started) == 1
    monkeypatch.setattr(background, "start", lambda *_: (_ for _ in ()).throw(OSError("no more processes")))
    compile_for_next_time()


@pytest.mark.parametrize(("on_disk", "count"), [(False, 1), (True, 0)])
def test_a_job_starts_it_where_machine_code_is_missing(
    monkeypatch: pytest.MonkeyPatch, on_disk: bool, count: int
) -> None:
    started: list[object] = []
    monkeypatch.setattr(background, "start", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(background, "is_wanted", lambda _: True)
    monkeypatch.setattr(background, "is_on_disk", lambda _: on_disk)
    monkeypatch.setattr(background, "can_be_stored", lambda _: True)
    background.compile_for_job()
    assert len(started) == count


def test_what_it_compiles_are_most_kernels() -> None:
    code = (
        "from ensue import embedded\nfrom ensue import compile_kernels\nfrom runtime.compiling import compiled\n"
        "compile_kernels.main()\nprint(len(compiled._RAN_PLAIN))"
    )
    environment = os.environ | {VARIABLE: "never"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) >= 15
    assert done.stderr == ""
