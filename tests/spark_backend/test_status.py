"""Two folders read at different pace, through Spark: the embedded matches, and a status that names who holds time back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import querylang
from ensue.cli import main
from ensue.rendering.status_text import status_text
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.reading.tables import read_arrivals
from spark_backend.job.atomic_files import BatchFiles
from spark_backend.job.job import deploy, run
from spark_backend.job.progress import JobProgress, Recent
from spark_backend.job.status import Status, status_of
from spark_backend.wire.tagged_rows import Tag
from tests.spark_backend.test_deployment import QUERY, streamed, table

DEPLOYMENT = """\
name: sensors
queries: [sensors.query]
sources:
  north: {format: parquet, path: north, event: Reading, options: {maxFilesPerTrigger: 1}}
  south: {format: parquet, path: south, event: Reading, options: {maxFilesPerTrigger: 1}}
sinks:
  matches: {format: parquet, path: out/matches}
trigger: 200ms
idle: none
buckets: 2
checkpoint: state
"""


def project(folder: Path, *, ledger: bool = False) -> Path:
    for name in ("north", "south"):
        (folder / name).mkdir()
    (folder / "sensors.query").write_text(QUERY)
    sink = "  ledger: {format: parquet, path: out/ledger}\ntrigger" if ledger else "trigger"
    (folder / "sensors.yaml").write_text(DEPLOYMENT.replace("trigger", sink))
    return folder / "sensors.yaml"


def add(folder: Path, rows: pd.DataFrame, count: int, first: int = 0) -> None:
    for number, part in enumerate(np.array_split(np.arange(len(rows)), count), first):
        path = folder / f"{number:03}.parquet"
        rows.iloc[part].to_parquet(path)
        os.utime(path, (1e9 + number, 1e9 + number))


def embedded(folder: Path) -> dict[str, list[str]]:
    """Match ids by query, of all records merged by arrival."""
    plan = querylang.compile_paths([folder / "sensors.query"]).plan
    files = [path for name in ("north", "south") for path in sorted((folder / name).iterdir())]
    parts = [read_arrivals(path, plan, source=f"{path.parent.name}/{path.name}") for path in files]
    engine = Engine(plan)
    results = [engine.process(Arrivals.concat(parts)), engine.flush()]
    names = {query.name for query in plan.queries}
    return {
        name: sorted(m for r in results if name in r.matches for m in r.matches[name].column("match_id").to_pylist())
        for name in names
    }


def slow_ones(status: Status) -> list[str]:
    return [item.source for item in status.sources if item.holds_back]


@pytest.fixture(scope="module")
def job(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The north comes in two files, the south, over the same time, in four, of which one is missing; then stopped."""
    folder = tmp_path_factory.mktemp("uneven")
    path, rows = project(folder), table(2000)
    north, south = rows.iloc[::2], rows.iloc[1::2]
    add(folder / "north", north, 2)
    add(folder / "south", south[:750], 3)
    handle = deploy(path)
    try:
        for _ in range(100):
            handle.await_termination(0.5)
            if (handle.status().batch or 0) >= 2:
                break
        (folder / "while-running.json").write_text(
            json.dumps(handle.status().to_plain() | {"text": status_text(status_of(path))})
        )
    finally:
        handle.stop()
    return path


def test_a_source_that_is_behind_is_named_while_the_job_runs_and_after(job: Path) -> None:
    running = json.loads((job.parent / "while-running.json").read_text())
    assert running["is_active"]
    assert "sensors: running; micro-batch 2 " in running["text"]
    assert [item["source"] for item in running["sources"] if item["holds_back"]] == ["south"]
    status = status_of(job)
    assert not status.is_active
    assert slow_ones(status) == ["south"]
    assert status.clock == min(item.arrival or 0 for item in status.sources)
    assert status.held > 200
    assert [query.delay for query in status.queries] == [5_000_000, 5_000_000]
    assert status.rates is not None


def test_the_status_in_words(job: Path) -> None:
    lines = status_text(status_of(job)).split("\n")
    assert lines[0].startswith("sensors: not running; micro-batch 2 of ")
    assert lines[1:8] == [
        "clock: 2023-11-14 22:15:49.900, held back by south",
        "",
        "source  last arrival             behind",
        "------  -----------------------  ------  ---------------",
        "north   2023-11-14 22:16:39.800   0.0 s",
        "south   2023-11-14 22:15:49.900  49.9 s  holds time back",
        "",
    ]


def test_a_micro_batch_that_is_repeated_leaves_the_same(job: Path) -> None:
    files = BatchFiles(job.parent / "state" / "ensue" / "progress")
    before, last = files.latest(before=2), files.latest()
    assert before is not None
    assert last is not None
    assert (before[0], last[0]) == (1, 2)
    progress = JobProgress.from_plain(last[1]["progress"])
    assert JobProgress.from_plain(before[1]["progress"]).recent == progress.recent[:-1]
    assert JobProgress.from_plain(json.loads(json.dumps(progress.to_plain()))) == progress


def test_the_matches_are_those_of_all_records_merged_by_arrival(job: Path) -> None:
    """Once more, to the end: the south's last file comes when the north has long been read."""
    folder = job.parent
    add(folder / "south", table(2000).iloc[1::2][750:], 1, first=3)
    report = run(job, once=True, flush=True)
    assert report.records == 250
    assert streamed(folder) == embedded(folder)
    status = status_of(job)
    assert (status.held, slow_ones(status)) == (0, [])
    assert {query.query: (query.received, query.pending) for query in status.queries} == {
        "Rise": (2000, 0),
        "Jump": (2000, 0),
    }


def test_a_run_to_the_end_takes_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = project(tmp_path), table(400)
    add(tmp_path / "north", rows.iloc[::2], 1)
    add(tmp_path / "south", rows.iloc[1:200:2], 1)
    report = run(path, once=True)
    assert sum(count for (query, _, what), count in report.ledger.items() if (query, what) == ("Rise", "pending")) < 100
    assert status_of(path).clock == max(item.arrival or 0 for item in status_of(path).sources)


def test_a_source_that_has_brought_nothing_yet_is_named(tmp_path: Path) -> None:
    path = project(tmp_path)
    metric = pa.table(
        {"bucket": [0], "timestamp": [2_000], "state_bytes": [5], "kept": [1], "held": [0], "seconds": [0.1]}
    )
    heard = pa.table({"source": ["north"], "partition": [0], "arrival": [5], "watermark": [5], "updated": [1]})
    progress = JobProgress().after([(Tag.METRIC, metric), (Tag.SOURCE, heard)], idle=None, records=1, matches=0)
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
    progress = JobProgress().after([(Tag.METRIC, metric)], idle=0, records=10, matches=1)
    assert progress.recent == (Recent(2_000, 10, 1),)
    assert progress.after([], idle=0, records=0, matches=0) == progress


def test_the_command_tells_people_and_machines(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["ensue", "status", str(job), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    words, _, machines = capsys.readouterr().out.rpartition("\n{")
    assert words == status_text(status_of(job))
    assert json.loads("{" + machines) == json.loads(json.dumps(status_of(job).to_plain()))


def test_a_deployment_that_has_not_run_says_so(tmp_path: Path) -> None:
    status = status_of(project(tmp_path))
    assert status_text(status) == "sensors: not running, no micro-batch has been written out yet"
    assert status.to_plain()["batch"] is None
