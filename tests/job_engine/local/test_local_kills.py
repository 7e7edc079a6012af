"""Processes of a local job that end: workers are replaced, and nothing outlives the driver."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from job_engine.errors import WorkerDied
from job_engine.local.pool import Pool
from job_engine.local_path import LocalPath
from job_engine.sources.crash_marks import marks_of
from querylang.errors import InputError
from tests.support.killed_runs import kill_when, restarted, start, wait_until
from tests.support.local_jobs import local
from tests.support.sensors import add_files, expected, project, streamed, table
from tests.support.waiting import LONGEST, wait_for


def children(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            own = int(stat.parent.name)
            found += [own, *children(own)]
    return found


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_for_end(pids: list[int]) -> None:
    wait_for(lambda: not any(map(is_there, pids)))


def test_nothing_outlives_a_driver_that_is_killed(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table(), 6)
    process = start(path, "-m", "ensue.cli", "run")
    wait_until(process, (tmp_path / "state" / "offsets" / "2").exists)
    others = children(process.pid)
    folders = [found for found in Path("/tmp").glob("ensue-*") if is_of(found, others)]
    assert len(others) >= 3
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for_end(others)
    wait_for(lambda: not any(folder.exists() for folder in folders))


def is_of(folder: Path, pids: list[int]) -> bool:
    """Whether it is the folder of a pool with these processes."""
    return any(str(folder).encode() in command_line(pid) for pid in pids)


def command_line(pid: int) -> bytes:
    """That of a process; empty if it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_driver_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table(), 12)
    for number in (2, 9):
        process = start(path)
        wait_until(process, lambda number=number: any((tmp_path / "out").rglob(f"*-{number:08}-*")))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    _, account = restarted(path)
    assert streamed(tmp_path) == expected(tmp_path)
    assert sum(count for (query, _, what), count in account.items() if (query, what) == ("Rise", "received")) == 3000


def test_the_mark_of_a_reader_goes_that_was_killed_before_its_micro_batch_was_on_record(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table(), 2)
    restarted(path)
    marks = marks_of(LocalPath(tmp_path / "state"))
    assert isinstance(marks.folder, Path)
    (marks.folder / "reading-0.json").write_text('{"range": "a file", "deaths": 0}')
    assert [mark.range for mark in marks.marked()] == ["a file"]
    restarted(path)
    assert marks.marked() == []
    assert streamed(tmp_path) == expected(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path, number: int) -> None:
    path = local(project(tmp_path, files=1))
    path.write_text(path.read_text() + "trigger: 0s\n")
    add_files(tmp_path, table(), 12)
    process = start(path, "-m", "ensue.cli", "run", "--once", "--flush")
    for batch in (1, 6):
        wait_until(process, lambda batch=batch: any((tmp_path / "out").rglob(f"*-{batch:08}-*")))
        _server, *workers = children(process.pid)
        os.kill(workers[-1], number)
    _, errors = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, errors
    told = [line for line in errors.splitlines() if "It is tried again" in line]
    assert len(told) == 2
    assert all(f"a worker process ended with signal {number}" in line for line in told)
    assert streamed(tmp_path) == expected(tmp_path)


def test_what_starts_workers_is_started_again(tmp_path: Path) -> None:
    path = local(project(tmp_path, files=1))
    path.write_text(path.read_text() + "trigger: 0s\n")
    add_files(tmp_path, table(), 12)
    process = start(path, "-m", "ensue.cli", "run", "--once", "--flush")
    wait_until(process, lambda: any((tmp_path / "out").rglob("*-00000001-*")))
    server, *_ = children(process.pid)
    os.kill(server, signal.SIGKILL)
    _, errors = process.communicate(timeout=LONGEST)
    assert process.returncode == 0, errors
    (told,) = [line for line in errors.splitlines() if "It is tried again" in line]
    assert told.startswith(("the process that starts workers ended", "a worker process ended"))
    assert streamed(tmp_path) == expected(tmp_path)


def test_what_starts_workers_may_end_before_it_has_started_one(tmp_path: Path) -> None:
    pool = Pool(1)
    try:
        for _ in range(2):
            for pid in children(os.getpid()):  # jobs before may have left one, for the next job
                if "fork_server" in command_of(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerDied, match="the process that starts workers ended"):
                pool.begin({})
            with pytest.raises(InputError):  # a worker was there, and asked for what a run needs
                pool.begin({})
    finally:
        pool.close()
    assert not pool.folder.exists()


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""


def test_the_folder_of_a_pool_that_was_killed_as_a_whole_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    path = local(project(tmp_path, files=1))
    add_files(tmp_path, table(), 6)
    kill_when(start(path, "-m", "ensue.cli", "run"), (tmp_path / "state" / "offsets" / "2").exists)
    left = set(temporary.glob("ensue-*"))
    assert left
    process = start(path)
    wait_until(process, lambda: not left & set(temporary.glob("ensue-*")))
    process.communicate(timeout=LONGEST)
    assert list(temporary.glob("ensue-*")) == []
    assert streamed(tmp_path) == expected(tmp_path)
