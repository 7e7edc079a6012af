"""A micro-batch that was too large, and never published, is planned anew with smaller limits; each record counts once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from job_engine.errors import WorkerDied
from job_engine.job.checkpoint.job_folder import JobFolder, failed_tries, told_deaths
from job_engine.job.stages.start import RunKind
from job_engine.job.upkeep.backup import back_up, restore
from job_engine.job.upkeep.results import compact_job
from job_engine.place import place_of
from job_engine.sinks.folder.publishing import Publishing
from job_engine.sinks.kinds import MicroBatch, Sink
from querylang.errors import InputError
from tests.support.delta_tables import FROM_TABLE
from tests.support.kafka.broker import Broker
from tests.support.kafka.topic_job import TopicJob
from tests.support.local_jobs import LONGEST, NEVER, CrashAt, assert_exactly_once, begun, crashed, local, run
from tests.support.sensors import QUERY, add_files, expected, project, streamed, table, totals

SENSOR = b'{"sensor": "a", "value": 1.0, "ts": 1700000000000}'
LARGE, SMALL = "maxFilesPerTrigger: 4", "maxFilesPerTrigger: 1"


def sensors(folder: Path, files: int = 12) -> Path:
    path = local(project(folder, files=4))
    add_files(folder, table(), files)
    return path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def files_of(folder: Path, number: int) -> int:
    """The number of files in what a micro-batch reads."""
    manifest = json.loads((folder / "state" / "ensue" / "inputs" / "manifests" / f"{number:010}.json").read_text())
    return len(manifest["sources"]["readings"]["piece"].get("files", ()))


@pytest.mark.parametrize("point", ["begun", "stepped"])
def test_what_was_never_published_is_read_in_smaller_parts(
    tmp_path: Path, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = sensors(tmp_path)
    assert crashed(path, CrashAt(point)) == []
    assert files_of(tmp_path, 1) == 4
    change(path, LARGE, SMALL)
    assert run(path) == list(range(14))
    assert [files_of(tmp_path, number) for number in (1, 2)] == [0, 1]  # what was listed waits
    assert "micro-batch 0, which was interrupted, is planned anew, with a smaller" in caplog.text
    assert "`maxFilesPerTrigger: 1` of 'readings': nothing was published" in caplog.text
    assert_exactly_once(tmp_path)


def test_a_backup_of_what_was_begun_is_written_again_where_it_was_planned_anew_since(tmp_path: Path) -> None:
    path, copy = sensors(tmp_path), place_of(str(tmp_path / "copy"))
    crashed(path, CrashAt("begun"))
    assert back_up(path, copy).batch == 0
    change(path, LARGE, SMALL)
    crashed(path, CrashAt("published", 1))
    change(path, SMALL, LARGE)
    with pytest.raises(InputError, match=r"of micro-batches behind -1, which the backup does not know, .*results"):
        restore(path, copy, replace=True)
    restore(path, copy, replace=True, remove_results=True)
    run(path)
    assert files_of(tmp_path, 1) == 4
    assert_exactly_once(tmp_path)


def test_what_removes_old_drafts_leaves_those_of_the_next_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = local(project(tmp_path, files=4))
    add_files(tmp_path, table(24_000), 12)  # workers write files of so many results
    crashed(path, CrashAt("published", 1))
    removes = Publishing.remove_leftovers

    def later(*given: Any) -> None:
        time.sleep(0.5)
        removes(*given)

    monkeypatch.setattr(Publishing, "remove_leftovers", later)
    run(path)
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_backup_of_what_was_begun_leaves_its_results(tmp_path: Path) -> None:
    path, copy = sensors(tmp_path), place_of(str(tmp_path / "copy"))
    crashed(path, CrashAt("published", 1))
    back_up(path, copy)
    assert restore(path, copy, replace=True).removed == 0
    run(path)
    assert_exactly_once(tmp_path)


@pytest.mark.parametrize("files", [3, 4, 12])  # up to what was begun, and behind it
def test_a_backup_of_what_was_begun_is_refused_where_its_results_have_been_compacted(
    tmp_path: Path, files: int
) -> None:
    path, copy = sensors(tmp_path, files), place_of(str(tmp_path / "copy"))
    change(path, LARGE, SMALL)
    crashed(path, CrashAt("published", 2))
    back_up(path, copy)
    run(path)
    compact_job(path)
    before = streamed(tmp_path)
    assert before == expected(tmp_path)
    with pytest.raises(InputError, match=r"has joined results of micro-batches before and behind [-\d]+ in it"):
        restore(path, copy, replace=True, remove_results=True)
    run(path)
    assert streamed(tmp_path) == before


def test_results_that_were_compacted_are_not_removed_when_a_micro_batch_is_repeated(tmp_path: Path) -> None:
    sink, batch = Sink("parquet", None, place_of(str(tmp_path))), MicroBatch("0123456789ab", 3)
    file = tmp_path / f"{batch.name}200000.parquet"
    file.touch()
    with pytest.raises(InputError, match="has joined results of micro-batches before and behind 2 in it"):
        Publishing().remove_leftovers(sink, batch, ())
    assert file.exists()


def test_what_was_published_is_repeated_as_it_was_and_what_follows_it_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = sensors(tmp_path)
    assert crashed(path, CrashAt("stepped", 2))[:1] == [0]  # micro-batch 2 is begun, and none is committed
    change(path, LARGE, SMALL)
    run(path)
    assert [files_of(tmp_path, number) for number in (1, 3, 4)] == [4, 0, 1]
    assert "repeated with the same records, whatever limits say: something is published" in caplog.text
    assert "micro-batch 2, which was interrupted, is planned anew" in caplog.text
    assert_exactly_once(tmp_path)


@pytest.mark.parametrize(("old", "new"), [(LARGE, LARGE), (LARGE, "maxFilesPerTrigger: 6")])
def test_with_the_same_or_a_larger_limit_it_is_repeated(tmp_path: Path, old: str, new: str) -> None:
    path = sensors(tmp_path)
    crashed(path, CrashAt("stepped"))
    change(path, old, new)
    run(path)
    assert files_of(tmp_path, 1) == 4
    assert_exactly_once(tmp_path)


def test_a_limit_where_there_was_none_is_smaller(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    change(path, f", options: {{{LARGE}}}", "")
    crashed(path, CrashAt("stepped"))
    assert files_of(tmp_path, 1) == 12
    change(path, "path: data", f"path: data, options: {{{SMALL}}}")
    run(path)
    assert files_of(tmp_path, 2) == 1
    assert_exactly_once(tmp_path)


def test_a_file_that_is_removed_before_it_is_planned_anew_is_missed(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    crashed(path, CrashAt("begun"))
    removed = sorted((tmp_path / "data").iterdir())[1]
    removed.unlink()
    change(path, LARGE, SMALL)
    run(path)
    (report,) = JobFolder(tmp_path / "state").last_progress().reports
    assert (report.cause, report.source, report.count) == ("lost", "readings", 1)
    assert report.example.startswith(f"{removed.name}: was removed before it was read")
    assert streamed(tmp_path) == expected(tmp_path)


def test_a_crash_behind_the_change_repeats_the_smaller_one(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    crashed(path, CrashAt("stepped"))
    change(path, LARGE, SMALL)
    crashed(path, CrashAt("stepped", 1))
    run(path)
    assert files_of(tmp_path, 2) == 1
    assert_exactly_once(tmp_path)


@pytest.mark.parametrize(("point", "count"), [("begun", 2), ("stepped", 0), ("stepped", 3), ("published", 1)])
def test_messages_of_a_topic_come_once(tmp_path: Path, broker: Broker, point: str, count: int) -> None:
    job = TopicJob(tmp_path, broker)
    crashed(job.path, CrashAt(point, count), interval=NEVER)
    change(job.path, "maxOffsetsPerTrigger: 500", "maxOffsetsPerTrigger: 200")
    assert len(run(job.path)) > 10
    assert streamed(tmp_path) == job.expected()
    job.assert_exactly_once()


def test_a_topic_alone_says_what_was_published(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    job = TopicJob(tmp_path, broker)
    change(job.path, "  matches: {format: parquet, path: out/matches}\n", "")
    crashed(job.path, CrashAt("published", 2), interval=NEVER)
    change(job.path, "maxOffsetsPerTrigger: 500", "maxOffsetsPerTrigger: 200")
    run(job.path)
    assert "repeated with the same records" in caplog.text
    job.assert_exactly_once()


def test_messages_that_are_gone_since_are_not_passed_over(
    tmp_path: Path, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    job = TopicJob(tmp_path, broker)
    crashed(job.path, CrashAt("stepped"))
    broker.delete_before(job.topic, {0: 5})
    change(job.path, "maxOffsetsPerTrigger: 500", "maxOffsetsPerTrigger: 200")
    handle, _ = begun(job.path)
    with pytest.raises(InputError, match="the offsets 0 to 4 no longer exist"):
        handle.await_termination(LONGEST)
    assert "micro-batch 0, which was interrupted, is planned anew" in caplog.text
    handle, _ = begun(job.path, kind=RunKind(is_bounded=True, flush=True, accepts_loss=True))
    assert handle.await_termination(LONGEST)
    assert totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")["lost"] == 5


@pytest.mark.parametrize("point", ["begun", "stepped"])
def test_a_job_that_begins_at_the_end_begins_there_once(tmp_path: Path, broker: Broker, point: str) -> None:
    job = TopicJob(tmp_path, broker)
    change(job.path, "    event: Reading\n", "    event: Reading\n    start: latest\n")
    crashed(job.path, CrashAt(point))  # nothing is there to be read, but partitions are
    rows = [(number % 3, 1_700_000_000_000 + number, SENSOR) for number in range(100)]
    broker.produce(job.topic, rows)
    change(job.path, "maxOffsetsPerTrigger: 500", "maxOffsetsPerTrigger: 200")
    run(job.path)
    assert totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")["received"] == len(rows)


@pytest.mark.parametrize("point", ["begun", "stepped"])
def test_a_job_that_begins_at_the_end_of_a_table_begins_there_once(tmp_path: Path, point: str) -> None:
    readings = str(tmp_path / "readings")
    write_deltalake(readings, table().head(50))
    path = tmp_path / "sensors.yaml"
    path.write_text(
        FROM_TABLE.replace("arrival: at,", "arrival: at, start: latest,").replace(
            "delta, path: out", "parquet, path: out"
        )
    )
    (tmp_path / "sensors.query").write_text(QUERY)
    path = local(path)
    crashed(path, CrashAt(point))
    write_deltalake(readings, table().tail(30), mode="append")
    change(path, "maxFilesPerTrigger: 5", "maxFilesPerTrigger: 1")
    run(path)
    assert totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")["received"] == 30


def test_a_table_that_got_a_column_is_read_anew_from_before_it(tmp_path: Path) -> None:
    readings = str(tmp_path / "readings")
    write_deltalake(readings, table().head(50))
    write_deltalake(readings, table().tail(30).assign(more=1), mode="append", schema_mode="merge")
    settings = "arrival: at, start: 0, schema_changes: add_columns,"
    path = tmp_path / "sensors.yaml"
    path.write_text(FROM_TABLE.replace("arrival: at,", settings).replace("delta, path: out", "parquet, path: out"))
    (tmp_path / "sensors.query").write_text(QUERY)
    path = local(path)
    crashed(path, CrashAt("begun"))
    change(path, "maxFilesPerTrigger: 5", "maxFilesPerTrigger: 1")
    run(path)
    assert totals(JobFolder(tmp_path / "state").ledger.total(), "Rise")["received"] == 80


def test_the_line_of_a_crash_names_the_limit(tmp_path: Path) -> None:
    path = sensors(tmp_path)
    crashed(path, CrashAt("stepped"))
    checkpoint = tmp_path / "state"
    said = "with a smaller `maxFilesPerTrigger`, what the micro-batch reads is planned"
    with pytest.raises(WorkerDied, match=said), told_deaths(checkpoint, "`maxFilesPerTrigger`"):
        raise WorkerDied("a worker process ended with signal 9")
    assert failed_tries(checkpoint) == 1
    change(path, LARGE, SMALL)
    run(path)
    assert not (checkpoint / "ensue" / "crashes" / "tries.json").exists()
    assert_exactly_once(tmp_path)
