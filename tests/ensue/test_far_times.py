"""Times of any year, and fractions before 1970: every reader and every form of output has them exactly."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from ensue import replay
from job_engine.sources.table.pieces import TableFile
from job_engine.sources.table.reading import table_of_file
from tests.ensue.command import Run

TIMES = [
    "0001-01-01T00:00:00.000000Z",
    "1000-01-01T00:00:00.000001Z",
    "1600-06-15T12:00:00.500000Z",
    "1969-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.999999Z",
]
MOMENTS = [datetime.datetime.fromisoformat(text) for text in TIMES]
QUERY = "event A { string id; } query Q { inputs { A() key id retain 1; } find A as a; }"
FIELD = '@TimeFrom("t") event A { float t; } query Q { inputs { A() retain 1; } find A as a; }'


def table() -> pa.Table:
    """Rows that arrive when they happened."""
    times = pa.array(MOMENTS, pa.timestamp("us"))
    return pa.table({"at": times, "ts": times, "id": list("abcde")})


def int96(path: Path) -> Path:
    pyarrow.parquet.write_table(table(), path, use_deprecated_int96_timestamps=True)
    return path


def feather(path: Path) -> Path:
    pyarrow.feather.write_feather(table(), path)
    return path


def csv_file(path: Path) -> Path:
    path.write_text(
        "at,ts,id\n" + "".join(f"{text},{text},{name}\n" for text, name in zip(TIMES, "abcde", strict=True))
    )
    return path


def rows(moments: list[Any]) -> list[dict[str, Any]]:
    return [{"at": moment, "ts": moment, "id": name} for moment, name in zip(moments, "abcde", strict=True)]


def json_file(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(TIMES)))
    return path


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: int96(folder / "a.parquet"),
        lambda folder: feather(folder / "a.feather"),
        lambda folder: csv_file(folder / "a.csv"),
        lambda folder: json_file(folder / "a.jsonl"),
        lambda _: table(),
        lambda _: table().to_pandas(),
        lambda _: rows(MOMENTS),
        lambda _: rows(TIMES),
    ],
    ids=["int96", "feather", "csv", "json", "arrow", "pandas", "rows", "rows of text"],
)
def test_every_reader_has_the_times_exactly(given: Callable[[Path], Any], tmp_path: Path) -> None:
    result = replay(QUERY, given(tmp_path))
    found = result.match_objects()
    assert [match["members"]["a"]["source_time"] for match in found] == TIMES
    assert [match["members"]["a"]["arrival"] for match in found] == TIMES
    assert not len(result.discarded)


def test_times_of_96_bits_are_read_inside_of_lists_and_in_parts(tmp_path: Path) -> None:
    moments = pa.array([MOMENTS[1:2]] * 3, pa.list_(pa.timestamp("us")))
    columns = pa.table({"at": [1, 2, 3], "id": list("abc"), "all": moments})
    pyarrow.parquet.write_table(columns, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=1)
    query = QUERY.replace("string id;", "string id; sequence<float> all;")
    result = replay(query, tmp_path / "a.parquet")
    assert list(result.matches["a.all"]) == [[-30_610_223_999.999999]] * 3


def test_a_field_that_is_the_source_time_has_the_last_moment() -> None:
    result = replay(FIELD, pa.table({"t": pa.array(MOMENTS, pa.timestamp("us"))}))
    assert [match["time"] for match in result.match_objects()][-2:] == TIMES[-2:]


def test_every_form_of_output_has_the_times_exactly(tmp_path: Path, ensue: Run) -> None:
    int96(tmp_path / "a.parquet")
    (tmp_path / "q.query").write_text(QUERY)
    for name in ("found.csv", "found.jsonl", "found.parquet"):
        assert ensue("replay", "q.query", "a.parquet", "--out", name).returncode == 0
    assert ensue("replay", "q.query", "a.parquet", "--report", "page.html").returncode == 0
    assert "1000-01-01" in (tmp_path / "page.html").read_text()
    with (tmp_path / "found.csv").open() as file:
        assert [row["a.source_time"] for row in csv.DictReader(file)] == TIMES
    lines = (tmp_path / "found.jsonl").read_text().splitlines()
    assert [json.loads(line)["members"]["a"]["source_time"] for line in lines] == TIMES
    found = pyarrow.parquet.read_table(tmp_path / "found.parquet")
    assert found.column("time").to_pylist() == MOMENTS


@pytest.mark.parametrize("copies", [1, 50])
def test_data_frames_have_the_times_exactly(copies: int) -> None:
    result = replay(QUERY, rows(MOMENTS) * copies)
    frame = result.matches
    assert [moment.isoformat() for moment in frame["a.source_time"].drop_duplicates()] == [
        moment.isoformat() for moment in MOMENTS
    ]
    assert "1000-01-01 00:00:00.000001" in frame.to_string()
    for other in (result.discarded, result.outputs, result.ledger, result.metrics):
        assert other.to_string()


def test_a_data_file_of_a_delta_table_has_the_times_exactly(tmp_path: Path) -> None:
    path = int96(tmp_path / "part-0.parquet")
    found = table_of_file(path, TableFile(path.name, path.stat().st_size), {}, ["at"])
    assert found.column("at").to_pylist() == [moment.replace(tzinfo=None) for moment in MOMENTS]
