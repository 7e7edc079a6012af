"""A job on a standalone cluster: executors without Ensue, one killed in mid-batch, another number of them later."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster_driver import Driver, on_cluster
from tests.support.sensors import add_files, expected, project, streamed, table
from tests.support.standalone import cluster
from tests.support.waiting import wait_for


def test_a_cluster_gives_what_one_engine_gives_through_kills_and_rescaling(tmp_path: Path) -> None:
    rows, path = table(), project(tmp_path, buckets=4)
    with cluster(tmp_path, 1) as found:
        driver = Driver(on_cluster(path, found))
        try:
            add_files(tmp_path, rows[:500], 1)
            assert driver.run() == 500
            found.add_worker()
            add_files(tmp_path, rows[500:2500], 3, first=1)
            driver.ask("")
            assert driver.answer() == "batch"
            wait_for((tmp_path / "state" / "offsets" / "2").exists)  # a micro-batch has begun
            found.kill_executor(0)
            while driver.answer() == "batch":
                pass
            found.workers[0].kill()  # and its executor with it
            found.kill_executor(0)
            add_files(tmp_path, rows[2500:], 1, first=4)
            assert driver.run("flush") == 500
        finally:
            driver.end()
    assert streamed(tmp_path) == expected(tmp_path)
    assert not list((tmp_path / "out").rglob("*draft*"))
