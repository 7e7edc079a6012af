"""What a reader remarks of values is a report of a job: once per field, with a count and the first place."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import ensue
from job_engine.job.batch_writer import warning_text
from job_engine.wire.reports import CAUSES, Report, added_up, report_table, reports_to_plain
from job_engine.wire.tagged_rows import Tag, TaggedRow
from spark_backend.worker_functions import warn_of_first_ones
from tests.support.buckets import rows_of
from tests.support.folder_job import FolderJob

DEFINED = "event A { string k; float v; }\nquery Q { inputs { A() key k retain 2 wait 1.0; } find A as a }"
OPEN = "query Q { inputs { A() key k retain 2; } find A as a }"
ODD = [{"at": at, "k": "x", "v": 1.5 if at % 3 else {"a": 1}} for at in range(1, 10)]


def reports(job: FolderJob) -> list[tuple[object, ...]]:
    job.run()
    return [
        tuple(row[name] for name in ("cause", "count", "field", "example")) for row in rows_of(job.tagged, Tag.REPORT)
    ]


def test_values_that_no_query_reads_are_counted_and_the_first_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        rows = [{**row, "at": row["at"] + 10 * number} for row in ODD]
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = FolderJob(tmp_path, OPEN, {"in": {"format": "json", "event": "A", "arrival": "at", "infer": True}})
    ((cause, count, field, example),) = reports(job)
    assert (cause, count, field) == ("unread_values", 6, "v")
    assert str(example).startswith("1.jsonl: line 3: ")
    warnings = ensue.replay(OPEN, tmp_path / "in").warnings
    assert str(example) in warnings


@pytest.mark.parametrize("format_", ["csv", "parquet", "delta"])
def test_cut_nanoseconds_and_numbers_like_dates_are_told_once_a_file(tmp_path: Path, format_: str) -> None:
    (tmp_path / "in").mkdir()
    times = pd.to_datetime([1, 2], unit="s") + pd.to_timedelta([1, 2], unit="ns")
    table = pd.DataFrame({"at": times, "ts": [20240101, 20240102], "k": "x", "v": 1.0})
    told = ["odd_times"] if format_ == "delta" else ["cut_times", "odd_times"]
    if format_ == "csv":
        table["at"] = times.strftime("%Y-%m-%dT%H:%M:%S.%f") + "001"
        table.to_csv(tmp_path / "in" / "1.csv", index=False)
    elif format_ == "parquet":
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), tmp_path / "in" / "1.parquet")
    else:
        table["at"] = times.floor("us")
        write_deltalake(tmp_path / "in", pa.Table.from_pandas(table, preserve_index=False))
    job = FolderJob(tmp_path, DEFINED, {"in": {"format": format_, "event": "A", "arrival": "at", "source_time": "ts"}})
    found = reports(job)
    assert [(cause, count) for cause, count, _, _ in found] == [(cause, 1) for cause in told]
    assert "look like" in str(found[-1][3])


def test_the_report_of_a_micro_batch_does_not_grow_with_its_rows() -> None:
    many = [Report("unread_values", "a", 1, f"row {row}", f"field {row % 3}") for row in range(1_000)]
    assert [(item.field, item.count, item.example) for item in added_up(many)] == [
        ("field 0", 334, "row 0"),
        ("field 1", 333, "row 1"),
        ("field 2", 333, "row 2"),
    ]


def test_reports_of_fields_are_written_behind_those_of_older_releases() -> None:
    assert reports_to_plain([Report("lost", "a", 1, "x"), Report("cut_times", "a", 1, "x", "ts")]) == [
        ["lost", "a", 1, "x"],
        ["cut_times", "a", 1, "x", "ts"],
    ]


def test_a_warning_names_each_field_with_its_first_place() -> None:
    found = (
        Report("unread_values", "a", 3, "1.csv: line 2", "v"),
        Report("unread_values", "a", 1, "1.csv: line 9", "w"),
    )
    assert warning_text("unread_values", found) == (
        f"unread_values: {CAUSES['unread_values']}: 3 of 'a' in 'v', first '1.csv: line 2',"
        " 1 of 'a' in 'w', first '1.csv: line 9'"
    )


def test_a_worker_logs_a_remark_once_per_program_and_field(caplog: pytest.LogCaptureFixture) -> None:
    table = report_table([Report("cut_times", "s", 1, "first", "ts"), Report("lost", "s", 1, "gone")])
    rows = [TaggedRow(Tag.REPORT, "", table)] * 2
    warn_of_first_ones("one", rows)
    warn_of_first_ones("two", rows)
    assert caplog.messages == ["first", "first"]
