"""Two folders read at different pace, through Spark: the embedded matches, and a status that names who holds time back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ensue.cli import main
from ensue.commands.status_text import status_text
from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.job_folder import BatchFiles, JobFolder
from job_engine.job.checkpoint.progress import JobProgress, Recent
from job_engine.job.job import deploy, run
from job_engine.job.prometheus import memory_of
from job_engine.job.reports import RunReport, source_of
from job_engine.job.status import Rates, Status, rates, read_status, status_of
from job_engine.operator.measures import METRIC_SCHEMA
from job_engine.sources.source import SourceBacklog
from job_engine.wire.tagged_rows import Tag
from querylang.errors import InputError
from tests.support.pace import measured
from tests.support.sensors import add_files, expected, project_of_two, streamed, table

TEN_DAYS_LATER = 1_700_000_149_900_000 + 10 * 86_400_000_000
"""µs, from the last arrival of the south in `stopped`."""

DELTA_SOURCE = "{format: delta, path: north, event: Reading, arrival: at}"
KAFKA_SOURCE = "{format: kafka, "
BROKER = '{kafka.bootstrap.servers: "127.0.0.1:1", subscribe: t}}'


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
    status = read_status(load_deployment(path), now=TEN_DAYS_LATER)
    return Stopped(path, running, running_text, status, (before, last))


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
    silent = stopped.status.sources[1].silent or 0
    nothing = f", and has brought nothing for {silent / 1e6:.1f} s" if silent else ""
    assert lines[1:15] == [
        "clock: 2023-11-14 22:15:49.900, held back by south",
        f"south holds time back: it is 49.9 s behind the furthest{nothing}",
        "Rise, Jump: time advances with the next record of south; `idle` lets it advance without",
        "",
        "source  last arrival             behind     ago",
        "------  -----------------------  ------  ------  ---------------",
        "north   2023-11-14 22:16:39.800   0.0 s  10.0 d",
        "south   2023-11-14 22:15:49.900  49.9 s  10.0 d  holds time back",
        "",
        "not processed yet              size",
        "-----------------  -------  -------",
        "north              0 files  0 bytes",
        "south              0 files  0 bytes",
        "",
    ]


def test_what_is_not_processed_is_counted_while_a_job_runs_and_after(stopped: Stopped) -> None:
    (stopped.deployment.parent / "south" / "900.parquet").write_bytes(b"0123456789")
    (stopped.deployment.parent / "south" / ".901.parquet").write_bytes(b"hidden")
    try:
        backlog = status_of(stopped.deployment).backlog
    finally:
        for name in ("900.parquet", ".901.parquet"):
            (stopped.deployment.parent / "south" / name).unlink()
    assert backlog == (SourceBacklog("north", files=0, bytes=0), SourceBacklog("south", files=1, bytes=10))
    assert "south              1 file   10 bytes" in status_text(replace(stopped.status, backlog=backlog))


def test_a_source_that_does_not_answer_is_told_and_waited_for_no_longer(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    text = path.read_text().replace("{format: parquet, path: north, ", KAFKA_SOURCE, 1)
    path.write_text(text.replace("{maxFilesPerTrigger: 1}}", BROKER, 1))
    began = time.monotonic()
    status = status_of(path)
    assert time.monotonic() - began < 60  # Spark's own reader would wait for minutes
    north, south = status.backlog
    assert (north.messages, bool(north.problem)) == (None, True)
    assert (south.files, south.problem) == (0, "")
    assert status_text(status).split("\n")[-2].startswith("north              unknown")


def test_files_of_a_delta_table_are_counted(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    path.write_text(
        path.read_text().replace(
            "{format: parquet, path: north, event: Reading, options: {maxFilesPerTrigger: 1}}", DELTA_SOURCE, 1
        )
    )
    for _ in range(2):
        deltalake.write_deltalake(tmp_path / "north", table(10), mode="append")
    north, south = status_of(path).backlog
    assert (north.files, north.problem, south.files) == (2, "", 0)
    assert (north.bytes or 0) > 1000


def test_delays_are_those_behind_the_clock_on_the_wall(tmp_path: Path) -> None:
    status = read_status(load_deployment(written_out(tmp_path)), now=3_000_005)
    assert [(item.source, item.lag, item.silent) for item in status.sources] == [
        ("north", 3_000_000, 1_999_000),
        ("south", None, None),
    ]
    assert status.to_plain()["sources"][0]["lag"] == 3.0


def test_the_memory_of_a_job_is_that_of_its_processes() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(b'1') * 50_000_000; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        own = memory_of(child.pid)
        assert own is not None
        assert own.processes == 1
        assert 50_000_000 < own.bytes < 100_000_000
        whole = memory_of(os.getpid())
        assert whole is not None
        assert whole.processes > 1
        assert whole.bytes > own.bytes
    finally:
        child.communicate()
    assert memory_of(child.pid) is None


def test_rates_are_those_of_the_last_minute() -> None:
    recent = tuple(Recent(1000 * second, 10, 1) for second in range(0, 200, 10))
    assert rates(recent, None) == Rates(60, 1.0, 0.1)
    assert rates(recent, 200_000) == Rates(60, 1.0, 0.1)
    assert rates(recent, 280_000) == Rates(60, 0.0, 0.0)
    assert rates(recent[:2], 20_000) == Rates(20, 1.0, 0.1)
    assert rates(recent[:1], None) is None
    assert rates((), None) is None


def test_micro_batches_of_one_second_are_one_entry_and_older_ones_than_a_minute_none() -> None:
    progress = JobProgress()
    for timestamp in (1_000, 1_200, 1_900, 2_100, 61_500):
        metric = one_metric(timestamp=timestamp)
        progress = progress.after([(Tag.METRIC, metric)], records=10, matches=1)
    assert progress.recent == (Recent(2_100, 10, 1), Recent(61_500, 10, 1))


def test_a_micro_batch_that_is_repeated_leaves_the_same(stopped: Stopped) -> None:
    before, last = stopped.progress
    assert (before[0], last[0]) == (1, 2)
    progress = JobProgress.from_plain(last[1]["progress"])
    earlier = JobProgress.from_plain(before[1]["progress"]).recent
    assert sum(item.records for item in progress.recent) == sum(item.records for item in earlier) + 250
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


def one_metric(**given: int) -> pa.Table:
    """What bucket 0 reports after a step at second 2."""
    values = {
        "bucket": 0,
        "timestamp": 2_000,
        "state_bytes": 5,
        "kept": 1,
        "held": 0,
        "seconds": 0.1,
        "keys": 1,
        "epoch": 0,
    }
    return pa.Table.from_pylist([values | {"waiting": 0, "next_due": None} | given], METRIC_SCHEMA)


def written_out(folder: Path) -> Path:
    """A project of two of which the north has brought a record."""
    path = project_of_two(folder)
    heard = pa.table({"source": ["north"], "partition": [0], "arrival": [5], "updated": [1]})
    progress = JobProgress().after([(Tag.METRIC, one_metric()), (Tag.SOURCE, heard)], records=1, matches=0)
    files = BatchFiles(folder / "state" / "ensue" / "progress")
    files.write(0, {"queries": {"Rise": None}, "progress": progress.to_plain()})
    return path


def test_a_source_that_has_brought_nothing_yet_is_named(tmp_path: Path) -> None:
    path = written_out(tmp_path)
    assert [(item.source, item.arrival, item.holds_back) for item in status_of(path).sources] == [
        ("north", 5, False),
        ("south", None, False),
    ]
    (south,) = [
        line for line in status_text(status_of(path)).split("\n") if line.startswith("south   ") and "yet" in line
    ]
    assert south.split() == ["south", "nothing", "yet"]


def test_matches_that_wait_and_events_that_are_held_are_told(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    metrics = [
        (Tag.METRIC, one_metric(waiting=3, next_due=7_000_000)),
        (Tag.METRIC, one_metric(bucket=1, waiting=2, next_due=5_500_000)),
    ]
    folder = JobFolder(tmp_path / "state")
    progress = JobProgress().after(metrics, records=9, matches=0)
    folder.progress.write(0, {"queries": {"Rise": None}, "progress": progress.to_plain()})
    folder.ledger.add(0, {("Rise", "north", "received"): 9, ("Rise", "north", "pending"): 9})
    assert folder.last_progress() == progress
    status = status_of(path)
    assert status.to_plain()["next_due"] == "1970-01-01T00:00:05.500000Z"
    assert status_text(status).split("\n\n")[-2].split("\n") == [
        "9 received = 9 pending",
        "5 matches wait; the next is due at 1970-01-01T00:00:05.500000Z",
        "9 events are held until time is definitive",
    ]


def test_a_pattern_leaves_what_is_about_the_whole_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project_of_two(tmp_path)
    folder = JobFolder(tmp_path / "state")
    progress = JobProgress().after([(Tag.METRIC, one_metric())], records=9, matches=0)
    queries = {"Rise": None, "Fall": None, "Flat/a": None}
    folder.progress.write(0, {"queries": queries, "progress": progress.to_plain()})
    folder.ledger.add(0, {(query, "north", "received"): 9 for query in queries})
    for pattern, wanted in (("F*", ["Fall", "Flat/a"]), ("Flat", ["Flat/a"])):
        monkeypatch.setattr("sys.argv", ["ensue", "status", str(path), "--json", "--query", pattern])
        with pytest.raises(SystemExit):
            main()
        shown = json.loads(capsys.readouterr().out)
        assert [item["query"] for item in shown["queries"]] == [item["query"] for item in shown["ledger"]] == wanted
        assert (shown["batch"], len(shown["sources"])) == (0, len(status_of(path).sources))


def test_micro_batches_in_which_no_bucket_is_called_leave_the_rates_as_they_are() -> None:
    metric = one_metric()
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
    told, own = (without_lags(item) for item in (json.loads("{" + machines), json.loads(json.dumps(status.to_plain()))))
    assert told == own


def without_lags(plain: Any) -> Any:
    """A status without what depends on when it was asked for."""
    if isinstance(plain, dict):
        return {key: without_lags(value) for key, value in plain.items() if key not in ("at", "lag")}
    return list(map(without_lags, plain)) if isinstance(plain, list) else plain


def test_a_deployment_that_has_not_run_says_so_and_what_it_would_read(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    (tmp_path / "north" / "a.parquet").write_bytes(b"12345")
    status = status_of(path)
    assert status_text(status).split("\n") == [
        "sensors: not running, no micro-batch has been written out yet",
        "",
        "not processed yet              size",
        "-----------------  -------  -------",
        "north              1 file   5 bytes",
        "south              0 files  0 bytes",
    ]
    assert status.to_plain()["batch"] is None


def test_totals_are_by_source_not_by_file() -> None:
    assert source_of("a.csv", "received", ["north"]) == "north"
    assert source_of("north/a.csv", "received", ["north"]) == "north"
    assert source_of("north/a.csv", "received", ["north", "south"]) == "north"
    assert source_of("a/b/c.csv", "received", ["a", "a/b", "south"]) == "a/b"
    assert source_of("one.json", "control", ["north"]) == "control"
    assert source_of("route:Rise", "received", ["north"]) == "route:Rise"


def test_who_feeds_a_query_is_told(tmp_path: Path) -> None:
    path, folder = project_of_two(tmp_path), JobFolder(tmp_path / "state")
    folder.progress.write(0, {"queries": {"Both": None, "Rise": None}, "progress": JobProgress().to_plain()})
    folder.ledger.add(0, {("Rise", "north", "received"): 9, ("Both", "route:Rise", "received"): 2})
    assert "\nBoth: fed by Rise (2 events); none in flight\n" in status_text(status_of(path))


def test_the_status_of_a_book_costs_what_its_queries_cost_and_names_few_feeders(tmp_path: Path) -> None:
    path, folder = project_of_two(tmp_path), JobFolder(tmp_path / "state")
    rules = [f"Rule{number:04}" for number in range(3_000)]
    folder.progress.write(0, {"queries": dict.fromkeys([*rules, "All"]), "progress": JobProgress().to_plain()})
    fed = {("All", f"route:{rule}", "received"): 2 for rule in rules}
    folder.ledger.add(0, fed | {(rule, "north", what): 9 for rule in rules for what in ("received", "unrelated")})
    with measured() as used:
        text = status_text(status_of(path))
    assert "\nAll: fed by Rule0000 (2 events), Rule0001" in text
    assert "Rule0018 (2 events) and 2981 others; none in flight\n" in text
    assert used.seconds < 0.45  # 0.16; 0.66 where each query looks through all counts


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
