"""Paths of event tables: files, folders and patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ensue.event_tables.table_paths import table_paths
from querylang.errors import InputError


def names(path: Path) -> list[str]:
    return [found.name for found in table_paths(path)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("9.csv", "10.csv", "b.jsonl", "note.txt", ".c.csv", "_d.csv", "[1].csv", "1.csv"):
        (tmp_path / name).write_text("at\n")
    return tmp_path


def test_a_folder_means_its_tables_in_natural_order(folder: Path) -> None:
    assert names(folder) == ["1.csv", "9.csv", "10.csv", "[1].csv", "b.jsonl"]


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
