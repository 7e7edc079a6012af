"""The kernels are compiled in the background: once, quietly, with the lowest priority, where that is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ensue import embedded
from ensue.background import processes
from ensue.background.processes import compile_for_next_time, is_wanted, start
from ensue.data_options import DataOptions
from runtime.columns.keys import group_rows
from runtime.compiling import compiled
from runtime.compiling.compiled import VARIABLE, Kernel, wants_compiling

COMMAND = (
    "import os, sys, time; from ensue.background.priority import give_way; give_way(); "
    "open(sys.argv[1] + '.part', 'w').write(f'{os.nice(0)} {os.getsid(0)} {os.getppid()}'); "
    "os.rename(sys.argv[1] + '.part', sys.argv[1]); time.sleep(float(sys.argv[2]))"
)


def wait_for(path: Path) -> list[int]:
    for _ in range(600):
        if path.exists():
            return [int(word) for word in path.read_text().split()]
        time.sleep(0.1)
    raise AssertionError(path)


def test_the_process_is_nobodys_child_and_alone(tmp_path: Path) -> None:
    lock, told = tmp_path / "lock", tmp_path / "told"
    command = [sys.executable, "-c", COMMAND, str(told)]
    assert start([*command, "3"], lock, "1")
    niceness, session, parent = wait_for(told)
    assert niceness == 19
    assert session != os.getsid(0)
    assert parent != os.getpid()
    assert not start([*command, "0"], lock, "2"), "it runs"
    told.unlink()
    for _ in range(600):
        if start([*command, "0"], lock, "2"):
            break
        time.sleep(0.1)
    wait_for(told)
    assert not start([*command, "0"], lock, "2"), "it runs, or was begun lately"


def test_a_version_is_tried_again_after_some_time(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert start(["true"], lock, "1")
    time.sleep(0.5)
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
    monkeypatch.setattr(processes, "start", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(processes, "wants_compiling", lambda: True)
    monkeypatch.setattr(processes, "is_wanted", lambda _: True)
    embedded.replay("inputs { A() within 1.0; } find A as a -> A as b", [{"at": 0.0}], DataOptions())
    assert len(started) == 1
    monkeypatch.setattr(processes, "start", lambda *_: (_ for _ in ()).throw(OSError("no more processes")))
    compile_for_next_time()


@pytest.mark.parametrize(("on_disk", "count"), [(False, 1), (True, 0)])
def test_a_job_starts_it_where_machine_code_is_missing(
    monkeypatch: pytest.MonkeyPatch, on_disk: bool, count: int
) -> None:
    started: list[object] = []
    monkeypatch.setattr(processes, "start", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(processes, "is_wanted", lambda _: True)
    monkeypatch.setattr(processes, "is_on_disk", lambda _: on_disk)
    monkeypatch.setattr(processes, "can_be_stored", lambda _: True)
    processes.compile_for_job()
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
