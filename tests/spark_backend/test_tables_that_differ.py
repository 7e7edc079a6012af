"""Files of a job that differ by a column: what a replay of the folder makes of them, and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import ensue
from job_engine.job.job import run
from job_engine.operator.step import run_step
from job_engine.setting_keys import Engine
from job_engine.sources.listing.manifests import tasks_of
from job_engine.sources.task_reading import read_task
from job_engine.wire.packed_rows import HOME
from job_engine.wire.tagged_rows import Tag
from querylang.errors import InputError
from tests.support.buckets import rows_of
from tests.support.folder_job import FolderJob
from tests.support.readings_job import write_job

TEXT = """event A { string k; integer n; string note; }
query Q { inputs { A() key k retain 2; } find A as a -> A as b where b.n > a.n and b.note.length() >= 0 }
query R { inputs { A() key k retain 2; } find A as a -> A as b where b.n > a.n }"""
WHOLE = [{"at": 1, "k": "x", "n": 1, "note": "a"}, {"at": 2, "k": "x", "n": 2, "note": "b"}]
SHORT = [{"at": 3, "k": "x", "n": 3}, {"at": 4, "k": "x", "n": 4}]
LONG = [{"at": 5, "k": "x", "n": 5, "note": "c", "more": 1}, {"at": 6, "k": "x", "n": 6, "note": "d", "more": 2}]
TABLES = {"first": WHOLE, "second": SHORT, "third": LONG}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a file, by its suffix."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FORMATS = {"csv": ".csv", "json": ".jsonl", "parquet": ".parquet"}


@pytest.mark.parametrize("limit", [{}, {"options": {"maxFilesPerTrigger": 1}}], ids=["together", "one-by-one"])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_column_that_a_later_file_lacks_is_null_as_in_a_replay(
    tmp_path: Path, format_: str, limit: dict[str, Any]
) -> None:
    for name, rows in TABLES.items():
        written(tmp_path / "in" / f"{name}{FORMATS[format_]}", rows)
    job = FolderJob(tmp_path, TEXT, {"in": {"format": format_, "event": "A", "arrival": "at", **limit}})
    job.run()
    ids, discarded, account = job.answer()
    assert discarded == []
    assert ids == sorted(match["match_id"] for match in ensue.replay(TEXT, tmp_path / "in").match_objects())
    assert account["R", f"second{FORMATS[format_]}", "received"] == 2
    assert [(row["cause"], row["source"], row["count"], row["field"]) for row in rows_of(job.tagged, Tag.REPORT)] == [
        ("missing_column", "in", 1, "note")
    ]


@pytest.mark.parametrize(("rows", "missing"), [
    ([{"at": 3, "n": 3, "note": "c"}], "has no column 'k', which 'A' has as its key or time"),
    ([{"k": "x", "n": 3, "note": "c"}], "has neither a column 'at', the arrival time"),
    ([{"at": 3, "other": 3}], "has no column 'k', a field of 'A'"),
], ids=["key", "time", "nothing"])  # fmt: skip
def test_a_file_without_keys_or_times_is_not_a_table_of_the_source(
    tmp_path: Path, rows: list[dict[str, Any]], missing: str
) -> None:
    written(tmp_path / "in" / "1.jsonl", WHOLE)
    written(tmp_path / "in" / "2.jsonl", rows)
    job = FolderJob(tmp_path, TEXT, {"in": {"format": "json", "event": "A"}})
    job.run()
    ids, discarded, _ = job.answer()
    assert (len(ids), discarded) == (2, [("2.jsonl", "malformed_file")])
    assert missing in str(rows_of(job.tagged, Tag.ERROR)[0]["text"])
    with pytest.raises(ensue.InputError, match=f"2.jsonl: {missing}"):
        ensue.replay(TEXT, tmp_path / "in")


def test_a_commit_of_a_delta_table_lacks_columns_that_it_got_later(tmp_path: Path) -> None:
    table = tmp_path / "in"
    write_deltalake(table, pa.Table.from_pylist(SHORT))
    source = {"format": "delta", "event": "A", "arrival": "at", "schema_changes": "add_columns"}
    job = FolderJob(tmp_path, TEXT, {"in": source})
    manifest = job.plan()
    assert manifest is not None
    (task,) = tasks_of(manifest, 1, job.told)
    with pytest.raises(InputError, match="has no column 'note', a field of 'A'"):
        list(read_task(job.options, task.to_text()))
    write_deltalake(table, pa.Table.from_pylist(LONG), mode="append", schema_mode="merge")
    packed = [batch.column(1)[HOME].as_py() for batch in read_task(job.options, task.to_text())]
    step = run_step(job.program, HOME, None, packed, 1000)
    assert [row["cause"] for row in rows_of(list(step.rows), Tag.REPORT)] == ["missing_column"]


def test_a_job_reports_what_a_file_lacks(tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    for name, rows in TABLES.items():
        written(tmp_path / "in" / f"{name}.jsonl", rows)
    source = {"format": "json", "event": "A", "arrival": "at", "options": {"maxFilesPerTrigger": 1}}
    path = write_job(tmp_path, TEXT, sources={"in": source | {"path": "in"}})
    report = run(path, once=True, flush=True)
    assert report.matches == {"Q": 3, "R": 5}
    (told,) = [message for message in caplog.messages if "missing_column" in message]
    assert told == (
        "missing_column: tables lack columns that others have; these are null there: 1 of 'in' in 'note',"
        " first 'second.jsonl: has no column 'note', which other tables have: it is null there'"
    )
