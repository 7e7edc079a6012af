"""Paths of event tables: files, folders and patterns."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ensue import replay
from ensue.event_tables import table_paths
from querylang.errors import InputError
from runtime.file_forms import name_of_table


def names(path: Path) -> list[str]:
    return [found.name for found in table_paths(path)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("9.csv", "10.csv", "b.jsonl", "note.txt", ".c.csv", "_d.csv", "[1].csv", "1.csv"):
        (tmp_path / name).write_text("at\n")
    return tmp_path


def test_a_folder_means_its_tables_in_natural_order(folder: Path) -> None:
    assert names(folder) == ["1.csv", "9.csv", "10.csv", "[1].csv", "b.jsonl"]


def test_a_folder_of_keys_is_read_with_all_that_is_below(tmp_path: Path) -> None:
    for name in (
        "year=2024/month=10/a.csv",
        "year=2024/month=9/a.csv",
        "year=2024/other/b.csv",
        "year=2023/_c.csv",
        "0.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("at\n")
    found = table_paths(tmp_path)
    assert [name_of_table(path) for path in found] == ["0.csv", "year=2024/month=9/a.csv", "year=2024/month=10/a.csv"]
    assert [name_of_table(path) for path in table_paths(found[1])] == ["a.csv"]


QUERY = (
    "query Q { inputs { E() key id retain 1; } find E as e where e.year = 2024 { print e.month.toString() + e.kind; } }"
)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_keys_of_folders_are_columns(tmp_path: Path, suffix: str) -> None:
    for number, folder in enumerate(
        ("year=2023/month=1/kind=a%2Fb", "year=2024/month=10/kind=c", "year=2024/month=9/kind=5")
    ):
        path = tmp_path / folder / f"part{suffix}"
        path.parent.mkdir(parents=True)
        columns = pa.table({"at": [number], "id": [7]})
        if suffix == ".parquet":
            pyarrow.parquet.write_table(columns, path)
        elif suffix == ".csv":
            pyarrow.csv.write_csv(columns, path)
        else:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in columns.to_pylist()))
    result = replay(QUERY, tmp_path)
    assert list(result.matches["e.kind"]) == ["c", "5"]
    assert list(result.matches["e.month"]) == [10, 9]
    assert [source for source, _ in result.ledger.groupby("source")] == [
        f"{folder}/part{suffix}"
        for folder in ("year=2023/month=1/kind=a%2Fb", "year=2024/month=10/kind=c", "year=2024/month=9/kind=5")
    ]


def test_a_file_s_own_column_comes_before_a_key(tmp_path: Path) -> None:
    (tmp_path / "id=5").mkdir()
    (tmp_path / "id=5" / "a.csv").write_text("at,id,kind\n1,6,x\n")
    result = replay("query Q { inputs { E() key id retain 1; } find E as e }", tmp_path)
    assert list(result.matches["e.id"]) == [6]


def test_a_file_of_no_bytes_is_no_table(folder: Path) -> None:
    (folder / "2.csv").write_bytes(b"")
    assert "2.csv" not in names(folder) + names(folder / "?.csv")
    for path in folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"has no rows: 6 files of 0 bytes$"):
        table_paths(folder)


def test_a_path_that_exists_is_never_a_pattern(folder: Path) -> None:
    assert names(folder / "[1].csv") == ["[1].csv"]
    (folder / "[1].csv").unlink()
    assert names(folder / "[1].csv") == ["1.csv"]
    assert names(folder / "?.csv") == ["1.csv", "9.csv"]
    assert names(folder / "*.csv") == ["1.csv", "9.csv", "10.csv", "_d.csv"]


def test_a_pattern_or_folder_without_tables_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file, and no file matches it as a pattern"):
        table_paths(tmp_path / "*.csv")
    with pytest.raises(InputError, match="is a folder without tables"):
        table_paths(tmp_path)


def test_a_file_that_is_not_there_is_left_to_the_reader(tmp_path: Path) -> None:
    assert names(tmp_path / "none.csv") == ["none.csv"]


def test_files_whose_names_are_not_utf8_are_read_beside_others(tmp_path: Path) -> None:
    for name in (b"a\xff.csv", b"b.csv"):
        (tmp_path / os.fsdecode(name)).write_text("at,k\n1,x\n")
    result = replay("event A { string k; }\nquery Q { inputs { A() key k within 1 hour; } find A as a }", tmp_path)
    assert sorted(set(result.ledger["source"])) == ["a\\xff.csv", "b.csv"]
