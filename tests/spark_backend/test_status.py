"""Two folders read at different pace, through Spark: the embedded matches, and a status that names who holds time back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ensue.cli import main
from ensue.rendering.status_text import status_text
from querylang.errors import InputError
from spark_backend.job.atomic_files import BatchFiles
from spark_backend.job.job import deploy, run
from spark_backend.job.job_folder import JobFolder
from spark_backend.job.progress import JobProgress, Recent
from spark_backend.job.reports import RunReport, source_of
from spark_backend.job.status import Status, status_of
from spark_backend.wire.tagged_rows import Tag
from tests.support.sensors import add_files, expected, project_of_two, streamed, table


def slow_ones(status: Status) -> list[str]:
    return [item.source for item in status.sources if item.holds_back]


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job at two moments: what its status was while it ran, and what is there after it was stopped.

    `progress`: the last two records of it, each with the number of its micro-batch.
    """

    deployment: Path
    running: Status
    running_text: str
    status: Status
    progress: tuple[tuple[int, Any], tuple[int, Any]]


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """The north comes in two files, the south, over the same time, in four, of which one is missing; then stopped."""
    folder = tmp_path_factory.mktemp("uneven")
    path, rows = project_of_two(folder), table(2000)
    north, south = rows.iloc[::2], rows.iloc[1::2]
    add_files(folder, north, 2, source="north")
    add_files(folder, south[:750], 3, source="south")
    handle = deploy(path)
    try:
        for _ in range(600):
            handle.await_termination(0.5)
            if (handle.status().batch or 0) >= 2:
                break
        running, running_text = handle.status(), status_text(status_of(path))
    finally:
        handle.stop()
    files = BatchFiles(folder / "state" / "ensue" / "progress")
    before, last = files.latest(before=2), files.latest()
    assert before is not None
    assert last is not None
    return Stopped(path, running, running_text, status_of(path), (before, last))


@dataclass(frozen=True, slots=True)
class Finished:
    """The same job after a second run, to the end."""

    deployment: Path
    report: RunReport


@pytest.fixture(scope="module")
def finished(stopped: Stopped) -> Finished:
    """The south's last file comes when the north has long been read."""
    path = stopped.deployment
    add_files(path.parent, table(2000).iloc[1::2][750:], 1, first=3, source="south")
    return Finished(path, run(path, once=True, flush=True))


def test_a_source_that_is_behind_is_named_while_the_job_runs(stopped: Stopped) -> None:
    assert stopped.running.is_active
    assert "sensors: running; micro-batch 2 " in stopped.running_text
    assert slow_ones(stopped.running) == ["south"]


def test_a_source_that_is_behind_is_named_after_the_job_has_stopped(stopped: Stopped) -> None:
    status = stopped.status
    assert not status.is_active
    assert slow_ones(status) == ["south"]
    assert status.clock == min(item.arrival or 0 for item in status.sources)
    assert status.held > 200
    assert [query.delay for query in status.queries] == [5_000_000, 5_000_000]
    assert status.rates is not None


def test_the_status_in_words(stopped: Stopped) -> None:
    lines = status_text(stopped.status).split("\n")
    assert lines[0].startswith("sensors: not running; micro-batch 2 of ")
    assert lines[1:9] == [
        "clock: 2023-11-14 22:15:49.900, held back by south",
        "Rise, Jump: time advances with the next record of south; `idle` lets it advance without",
        "",
        "source  last arrival             behind",
        "------  -----------------------  ------  ---------------",
        "north   2023-11-14 22:16:39.800   0.0 s",
        "south   2023-11-14 22:15:49.900  49.9 s  holds time back",
        "",
    ]


def test_a_micro_batch_that_is_repeated_leaves_the_same(stopped: Stopped) -> None:
    before, last = stopped.progress
    assert (before[0], last[0]) == (1, 2)
    progress = JobProgress.from_plain(last[1]["progress"])
    assert JobProgress.from_plain(before[1]["progress"]).recent == progress.recent[:-1]
    assert JobProgress.from_plain(json.loads(json.dumps(progress.to_plain()))) == progress


def test_the_matches_are_those_of_all_records_merged_by_arrival(finished: Finished) -> None:
    assert finished.report.records == 250
    folder = finished.deployment.parent
    assert streamed(folder) == expected(folder)


def test_at_the_end_no_source_holds_time_back_and_nothing_is_pending(finished: Finished) -> None:
    status = status_of(finished.deployment)
    assert (status.held, slow_ones(status)) == (0, [])
    assert {query.query: (query.received, query.pending) for query in status.queries} == {
        "Rise": (2000, 0),
        "Jump": (2000, 0),
    }


def test_a_run_to_the_end_takes_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = project_of_two(tmp_path), table(400)
    add_files(tmp_path, rows.iloc[::2], 1, source="north")
    add_files(tmp_path, rows.iloc[1:200:2], 1, source="south")
    report = run(path, once=True)
    assert sum(count for (query, _, what), count in report.ledger.items() if (query, what) == ("Rise", "pending")) < 100
    assert status_of(path).clock == max(item.arrival or 0 for item in status_of(path).sources)


def test_a_source_that_has_brought_nothing_yet_is_named(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    metric = pa.table(
        {"bucket": [0], "timestamp": [2_000], "state_bytes": [5], "kept": [1], "held": [0], "seconds": [0.1]}
    )
    heard = pa.table({"source": ["north"], "partition": [0], "arrival": [5], "updated": [1]})
    progress = JobProgress().after([(Tag.METRIC, metric), (Tag.SOURCE, heard)], records=1, matches=0)
    files = BatchFiles(tmp_path / "state" / "ensue" / "progress")
    files.write(0, {"queries": {"Rise": None}, "progress": progress.to_plain()})
    assert [(item.source, item.arrival, item.holds_back) for item in status_of(path).sources] == [
        ("north", 5, False),
        ("south", None, False),
    ]
    assert "south                                       nothing yet" in status_text(status_of(path))


def test_micro_batches_in_which_no_bucket_is_called_leave_the_rates_as_they_are() -> None:
    metric = pa.table(
        {"bucket": [0], "timestamp": [2_000], "state_bytes": [5], "kept": [1], "held": [0], "seconds": [0.1]}
    )
    progress = JobProgress().after([(Tag.METRIC, metric)], records=10, matches=1)
    assert progress.recent == (Recent(2_000, 10, 1),)
    assert progress.after([], records=0, matches=0) == progress


def test_the_command_tells_people_and_machines(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["ensue", "status", str(finished.deployment), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    words, _, machines = capsys.readouterr().out.rpartition("\n{")
    status = status_of(finished.deployment)
    assert words == status_text(status)
    assert json.loads("{" + machines) == json.loads(json.dumps(status.to_plain()))


def test_a_deployment_that_has_not_run_says_so(tmp_path: Path) -> None:
    status = status_of(project_of_two(tmp_path))
    assert status_text(status) == "sensors: not running, no micro-batch has been written out yet"
    assert status.to_plain()["batch"] is None


def test_totals_are_by_source_not_by_file() -> None:
    assert source_of("a.csv", "received", ["north"]) == "north"
    assert source_of("north/a.csv", "received", ["north"]) == "north"
    assert source_of("north/a.csv", "received", ["north", "south"]) == "north"
    assert source_of("a/b/c.csv", "received", ["a", "a/b", "south"]) == "a/b"
    assert source_of("one.json", "control", ["north"]) == "control"


DAMAGED = [b"", b"{", b"[1, 2]", b'{"progress": {"version": 2}, "queries": {}}', b'{"progress": 7, "queries": []}']


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_files_are_named_and_the_rest_is_told(tmp_path: Path, content: bytes) -> None:
    path = project_of_two(tmp_path)
    folder = JobFolder(tmp_path / "state")
    folder.ledger.add(6, {("Rise", "north", "received"): 5})
    folder.progress.write(6, {"queries": {"Rise": None}, "progress": JobProgress(timestamp=1000).to_plain()})
    for name in ("ledger", "progress"):
        (tmp_path / "state" / "ensue" / name / "0000000007.json").write_bytes(content)
    status = status_of(path)
    assert (status.batch, status.queries[0].received) == (6, 5)
    assert [text.partition(": is damaged: ")[0] for text in status.damaged] == [
        str(tmp_path / "state" / "ensue" / name / "0000000007.json") for name in ("ledger", "progress")
    ]
    assert all(text in status_text(status) for text in status.damaged)
    with pytest.raises(InputError, match="is damaged"):
        folder.progress.latest()


def test_damaged_files_alone_are_named(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    for name in ("ledger", "progress"):
        (tmp_path / "state" / "ensue" / name).mkdir(parents=True)
        (tmp_path / "state" / "ensue" / name / "0000000007.json").write_bytes(b"\x00")
    status = status_of(path)
    assert (status.batch, len(status.damaged)) == (None, 2)
