"""Results that tasks write: one file for all buckets of a task, and nothing that is half there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import querylang
from job_engine.sinks.bucket_results import SENT, Attempt, BucketResults, write_results
from job_engine.sinks.kinds import MicroBatch
from job_engine.sinks.run_sinks import publish_batch
from job_engine.wire.program import Program, task_of
from job_engine.wire.tagged_rows import Tag, TaggedRow
from runtime.results.for_users import parquet_settings
from tests.support.sinks import sink_of

PLAN = querylang.compile_text("event A { float v; }\nquery Q { inputs { A() retain 1; } find A as a }").plan
BATCH = "0123456789ab-00000003-"


class Job:
    """Buckets of one micro-batch, of which each finds its own number."""

    def __init__(self, folder: Path, tasks: int | None = 2) -> None:
        self.program = Program(Program.of(PLAN, buckets=4).plans, 4, tasks=tasks)
        self.sinks = {"ledger": sink_of("parquet", folder / "ledger"), "discarded": sink_of("parquet", folder / "lost")}

    def step(self, bucket: int, *, attempt: int = 7, rows: int = 1, is_alone: bool = False) -> BucketResults:
        table = pa.table({"bucket": [bucket] * rows, "text": ["x" * 100] * rows})
        tagged = [TaggedRow(tag, "", table) for tag in (Tag.LEDGER, Tag.DISCARDED)]
        task = task_of(self.program.labels[bucket], self.program.tasks or 2)
        given = Attempt(MicroBatch(BATCH[:12], 3), task, attempt, attempt > 7)
        return write_results(self.program, bucket, tagged, self.sinks, given, is_alone=is_alone)

    def publish(self, results: list[BucketResults]) -> list[str]:
        written = publish_batch(
            [item.to_bytes() for item in results],
            self.program,
            self.sinks,
            MicroBatch(BATCH[:12], 3),
            is_first=False,
        )
        assert all((row.data is None) == (row.tag is Tag.DISCARDED) for row in written)
        return [Path(row.file).name for row in written if row.tag is Tag.DISCARDED and row.file is not None]


def lost(folder: Path) -> dict[str, list[int]]:
    files = sorted((folder / "lost").glob("[!.]*.parquet"))
    return {file.name: sorted(set(pq.read_table(file)["bucket"].to_pylist())) for file in files}


def by_task(job: Job, task: int) -> list[int]:
    labels = {label: bucket for bucket, label in enumerate(job.program.labels) if task_of(label, 2) == task}
    return [labels[label] for label in sorted(labels)]


def test_buckets_of_a_task_share_a_file_that_is_seen_once_it_is_published(tmp_path: Path) -> None:
    job = Job(tmp_path)
    results = [job.step(bucket) for task in (0, 1) for bucket in by_task(job, task)]
    assert lost(tmp_path) == {}
    job.publish(results)
    assert lost(tmp_path) == {f"{BATCH}00000.parquet": [0, 2], f"{BATCH}00001.parquet": [1, 3]}
    assert not list(tmp_path.rglob("*.draft"))


def test_a_failed_attempt_leaves_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.step(by_task(job, 0)[0])  # its task fails and is repeated
    for folder in ("lost", "ledger"):
        (tmp_path / folder / f".{BATCH}00001.6.draft").write_text("of a process that was killed")
    results = [job.step(bucket, attempt=8) for task in (0, 1) for bucket in by_task(job, task)]
    job.publish(results)
    assert list(lost(tmp_path)) == [f"{BATCH}00000.parquet", f"{BATCH}00001.parquet"]
    assert not list(tmp_path.rglob("*.draft"))


def test_results_whose_file_was_never_finished_are_not_lost_in_silence(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with pytest.raises(RuntimeError, match=r"a task has not finished its files: .*00000\.parquet"):
        job.publish([job.step(by_task(job, 0)[0], attempt=20)])
    assert lost(tmp_path) == {}


def test_files_of_another_micro_batch_are_not_published(tmp_path: Path) -> None:
    job = Job(tmp_path)
    results = [job.step(bucket) for task in (0, 1) for bucket in by_task(job, task)]
    with pytest.raises(RuntimeError, match="has written files of another one"):
        publish_batch(
            [item.to_bytes() for item in results],
            job.program,
            job.sinks,
            MicroBatch(BATCH[:12], 4),
            is_first=False,
        )
    assert lost(tmp_path) == {}


@pytest.mark.parametrize("tasks", [None, 2])
def test_buckets_that_are_called_alone_send_little_and_write_much(tmp_path: Path, tasks: int | None) -> None:
    job = Job(tmp_path, tasks)
    results = [job.step(bucket, is_alone=True) for bucket in (1, 2)]
    results.append(job.step(3, is_alone=True, rows=SENT // 100))
    names = job.publish(results)
    assert names == [f"{BATCH}100003.parquet", f"{BATCH}99999.parquet"]  # the driver joins what it writes
    assert lost(tmp_path) == {f"{BATCH}99999.parquet": [1, 2], f"{BATCH}100003.parquet": [3]}


def test_parquet_keeps_values_of_every_type(tmp_path: Path) -> None:
    inner = pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
    columns = {
        "match_id": pa.array(["a", "b"]),
        "event": pa.array([None, {"n": -(2**63), "at": 1, "text": "x"}], inner),
        "list": pa.array([[{"n": 1, "at": None, "text": None}], None], pa.list_(inner)),
        "map": pa.array([[("k", 2**63 - 1)], []], pa.map_(pa.string(), pa.int64())),
        "decimal": pa.array([None, 1], pa.decimal128(38, 18)),
        "small": pa.array([1, None], pa.int8()),
        "float": pa.array([float("nan"), -0.0]),
    }
    table = pa.table(columns)
    with pq.ParquetWriter(tmp_path / "x.parquet", table.schema, **parquet_settings(table.schema)) as writer:
        writer.write_table(table)
    assert str(pq.read_table(tmp_path / "x.parquet").to_pydict()) == str(table.to_pydict())
