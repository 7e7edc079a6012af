"""The workers of a local job: what they answer, what they raise, and how their deaths read."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.errors import WorkerDied
from job_engine.job.job import run
from job_engine.job.preflight import checked
from job_engine.local.frames import Ended, Frame, Word, receive, send
from job_engine.local.pool import Pool, Server, WorkerFailed
from querylang.errors import InputError
from tests.support.killed_runs import ROOT
from tests.support.local_jobs import local
from tests.support.sensors import add_files, project, table
from tests.support.waiting import wait_for


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


def server_of(pool: Pool) -> int:
    (parent,) = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pool.pids}
    return parent


def test_the_next_pool_has_the_server_of_the_one_before(tmp_path: Path) -> None:
    servers = []
    for _ in range(2):
        found = Pool(1)
        begin(found, tmp_path)
        servers.append(server_of(found))
        found.close()
    assert servers[0] == servers[1]


def test_a_pool_that_is_closed_again_leaves_its_server_to_the_next_one(tmp_path: Path) -> None:
    before = Pool(1)
    begin(before, tmp_path)
    server = server_of(before)
    before.close()
    before.close()
    after = Pool(1)
    begin(after, tmp_path)
    before.close()
    begin(after, tmp_path)
    assert server_of(after) == server
    after.close()


def test_the_next_run_of_a_process_has_the_server_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[Server] = []
    made = Server.__init__

    def noted(self: Server, variables: dict[str, str]) -> None:
        servers.append(self)
        made(self, variables)

    monkeypatch.setattr(Server, "__init__", noted)
    path = local(project(tmp_path))
    for number in range(3):
        add_files(tmp_path, table(10), 1, first=number)
        run(path, once=True)
    assert len(servers) <= 1  # an earlier test may have left one


def test_pools_at_once_have_servers_of_their_own_and_one_is_kept(tmp_path: Path) -> None:
    pools = [Pool(1), Pool(1)]
    for found in pools:
        begin(found, tmp_path)
    servers = [server_of(found) for found in pools]
    for found in pools:
        found.close()
    assert servers[0] != servers[1]
    assert Path(f"/proc/{servers[0]}").exists()
    assert not Path(f"/proc/{servers[1]}").exists()


def test_a_pool_with_other_variables_has_a_new_server(tmp_path: Path) -> None:
    before = Pool(1)
    begin(before, tmp_path)
    server = server_of(before)
    before.close()
    after = Pool(1, {"ENSUE_COLOUR": "red"})
    begin(after, tmp_path)
    assert server_of(after) != server
    assert b"ENSUE_COLOUR=red" in Path(f"/proc/{server_of(after)}/environ").read_bytes()
    after.close()


def test_a_server_that_was_killed_while_it_waited_is_replaced(tmp_path: Path) -> None:
    before = Pool(1)
    begin(before, tmp_path)
    server = server_of(before)
    before.close()
    os.kill(server, signal.SIGKILL)
    after = Pool(1)
    begin(after, tmp_path)
    assert server_of(after) != server
    after.close()


def test_a_server_ends_if_no_job_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_engine.local.pool.KEPT_FOR", 0)
    found = Pool(1)
    begin(found, tmp_path)
    server = Path(f"/proc/{server_of(found)}/stat")
    found.close()
    wait_for(lambda: server.read_text().rpartition(")")[2].split()[0] == "Z")


def test_workers_are_where_this_process_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_worker_of_a_pool(tmp_path)]
    monkeypatch.chdir(tmp_path)
    found.append(_worker_of_a_pool(tmp_path))
    assert [folder for folder, _ in found] == [str(ROOT), str(tmp_path)]
    assert [outputs for _, outputs in found] == [_outputs_of("self")] * 2


def _worker_of_a_pool(tmp_path: Path) -> tuple[str, list[str]]:
    pool = Pool(1)
    begin(pool, tmp_path)
    (pid,) = pool.pids
    found = str(Path(f"/proc/{pid}/cwd").readlink()), _outputs_of(str(pid))
    pool.close()
    return found


def _outputs_of(pid: str) -> list[str]:
    return [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in (1, 2)]
