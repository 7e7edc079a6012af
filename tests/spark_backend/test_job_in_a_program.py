"""A job as a step of somebody's own program: two at once, started again, and nothing left behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import ensue
from job_engine.errors import JobError, as_job_errors
from tests.support.sensors import QUERY, add_files, expected, streamed, table
from tests.support.waiting import LONGEST, wait_for

CHANNELS = {"one": "parquet", "two": "delta"}
"""By the name of a folder, the format of what its query sends."""


class Progress(StreamingQueryListener):
    """What Spark tells of each micro-batch, by the name of its job."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, int]]] = []

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.events.append((event.progress.name, event.progress.observedMetrics["ensue"].asDict()))

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

    def total(self, job: str, name: str) -> int:
        return sum(counts[name] for own, counts in self.events if own == job)


def sent(folder: Path) -> list[str]:
    """The texts of the events that were sent."""
    path = folder / "out" / "rises"
    table = DeltaTable(str(path)).to_pyarrow_table() if CHANNELS[folder.name] == "delta" else pq.read_table(path)
    return sorted(table["text"].to_pylist())


def deployment(folder: Path) -> dict[str, Any]:
    for name in ("data", "control"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "sensors.query").write_text(QUERY)
    return {
        "name": folder.name,
        "queries": QUERY,
        "sources": {"readings": {"format": "parquet", "path": folder / "data"}},
        "sinks": {"matches": {"format": "parquet", "path": folder / "out" / "matches"}},
        "channels": {"rises": {"format": CHANNELS.get(folder.name, "json"), "path": folder / "out" / "rises"}},
        "buckets": 2,
        "trigger": "100ms",
        "checkpoint": folder / "state",
    }


def await_records(handle: Any, count: int) -> None:
    def received() -> int:
        return sum(n for (query, _, what), n in handle.status().ledger.items() if (query, what) == ("Rise", "received"))

    while received() < count:
        assert handle.await_termination(0.05) is False


def test_two_jobs_of_one_session_run_at_once_stop_and_start_again(spark: SparkSession, tmp_path: Path) -> None:
    rows, folders = table(1000), [tmp_path / "one", tmp_path / "two"]
    conf, threads = dict(spark.conf.getAll), set(threading.enumerate())
    for folder in folders:
        given = deployment(folder)
        add_files(folder, rows[:500], 1)
    progress = Progress()
    spark.streams.addListener(progress)
    handles = [ensue.deploy(deployment(folder), spark) for folder in folders]
    for folder, handle in zip(folders, handles, strict=True):
        await_records(handle, 500)
        wait_for(lambda name=folder.name: progress.total(name, "records") == 500)  # a run that is stopped sends no more
    handles[0].stop()
    assert (handles[0].is_active, handles[1].is_active) == (False, True)
    with pytest.raises(ensue.EnsueError, match="another run of this job is at work"):
        ensue.deploy(deployment(folders[1]), spark)
    for folder in folders:
        add_files(folder, rows[500:], 1, first=1)
    handles[0] = ensue.deploy(given | deployment(folders[0]), spark)
    for folder, handle in zip(folders, handles, strict=True):
        await_records(handle, 1000)
        wait_for(lambda name=folder.name: progress.total(name, "records") == 1000)
        handle.stop()
        handle.stop()
    one, two = (streamed(folder) for folder in folders)
    assert one == two
    assert len(one["Rise"]) > 50
    assert set(one["Rise"]) < set(expected(folders[0])["Rise"])  # the last ones wait for later records
    assert dict(spark.conf.getAll) == conf
    assert SparkSession.getActiveSession() is spark or dict(SparkSession.getActiveSession().conf.getAll) == conf
    assert not spark.streams.active
    assert sent(folders[0]) == sent(folders[1])
    assert len(sent(folders[0])) == len(one["Rise"])
    for name in ("one", "two"):  # what listeners of Spark see
        assert progress.total(name, "records") == 1000
        assert progress.total(name, "matches") == sum(map(len, one.values()))
        assert progress.total(name, "outputs") == progress.total(name, "matches")
        assert progress.total(name, "errors") == 0
    spark.streams.removeListener(progress)
    left = {thread for thread in set(threading.enumerate()) - threads if not thread.daemon}
    assert left == set()


def test_what_spark_raises_is_the_cause_of_an_error_of_ensue() -> None:
    with (
        pytest.raises(JobError, match=r"the job ended with an error: no such thing$") as caught,
        as_job_errors(),
    ):
        raise RuntimeError("no such thing\n\tat java.lang")
    assert isinstance(caught.value, ensue.EnsueError)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_job_that_fails_raises_what_ended_it(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    given = deployment(folder)
    add_files(folder, table(200), 1)
    handle = ensue.deploy(given, spark)
    await_records(handle, 200)
    (folder / "state" / "offsets").rename(folder / "state" / "gone")
    add_files(folder, table(200), 1, first=1)
    with pytest.raises(ensue.EnsueError) as caught:
        handle.await_termination(LONGEST)
    assert caught.value.__cause__ is not None
    assert not handle.is_active
