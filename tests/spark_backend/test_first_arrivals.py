"""When the first record of a file arrives, by its beginning, its end, its statistics, or all of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import querylang
from job_engine.sources.folder import reading
from job_engine.sources.folder.reading import first_arrival
from job_engine.sources.reading import Reading
from runtime.instants import SECOND

PLAN = querylang.compile_text(
    "event A { string k; } query Q { inputs { A() key k within 3.0; } find A as a -> A as b }"
).plan
READING = Reading("A", arrival="at", source_time="ts")
ASCENDING = list(range(100, 1100))
SHUFFLED = [*range(600, 1100), *range(100, 600)]
NEARLY = [five + 4 - back for five in range(100, 1100, 5) for back in range(5)]
"""Each some seconds out of order."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_WHOLE", 2000)
    monkeypatch.setattr(reading, "PART", 300)


def file_of(folder: Path, name: str, moments: list[int]) -> Path:
    file = folder / name
    rows = [{"at": moment, "ts": moment, "k": "x" * 20} for moment in moments]
    csv = "at,ts,k\n" + "".join(f"{row['at']},{row['ts']},{row['k']}\n" for row in rows)
    match name.partition(".")[2]:
        case "csv":
            file.write_text(csv)
        case "csv.gz":
            file.write_bytes(gzip.compress(csv.encode()))
        case "json":
            file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        case "list.json":
            file.write_text(json.dumps(rows))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=100)
    return file


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz", "1.json", "1.list.json", "1.parquet"])
@pytest.mark.parametrize("moments", [ASCENDING, ASCENDING[::-1], ASCENDING[:5], SHUFFLED, NEARLY])
def test_it_is_the_least_arrival(tmp_path: Path, name: str, moments: list[int]) -> None:
    if name.endswith(".gz") and moments == SHUFFLED:
        pytest.skip("of a large compressed file whose beginning is in order the rest is not looked at")
    assert first_arrival(file_of(tmp_path, name, moments), READING, PLAN) == 100 * SECOND


@pytest.mark.parametrize(("name", "is_found"), [("1.csv", False), ("1.json", False), ("1.parquet", True)])
def test_one_early_record_between_the_places_that_are_read_is_not_found(
    tmp_path: Path, name: str, *, is_found: bool
) -> None:
    moments = [*ASCENDING[:200], 7, *ASCENDING[200:]]
    assert first_arrival(file_of(tmp_path, name, moments), READING, PLAN) == (7 if is_found else 100) * SECOND


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz", "1.json"])
def test_of_a_large_file_in_order_only_some_places_are_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = file_of(tmp_path, name, ASCENDING), list[str]()
    known = Reading.least_arrival
    monkeypatch.setattr(Reading, "least_arrival", lambda it, path, *more: read.append(path) or known(it, path, *more))
    assert first_arrival(file, READING, PLAN) == 100 * SECOND
    assert 1 < len(read) <= reading.PLACES
    assert str(file) not in read


@pytest.mark.parametrize("text", ["", "at,ts,k\n", "no,such,columns\n1,2,3\n"])
def test_a_file_without_readable_records_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.csv").write_text(text)
    assert first_arrival(tmp_path / "1.csv", READING, PLAN) is None
    assert first_arrival(tmp_path / "gone.csv", READING, PLAN) is None
