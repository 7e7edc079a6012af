"""Which data files of a Delta table a history reads again: those that the job has read, as it has read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_backend.job.history.pieces import Piece
from spark_backend.job.history.tables_again import table_pieces
from spark_backend.sources.delta.delta_source import DeltaSource
from spark_backend.sources.delta.snapshot import position_at
from spark_backend.sources.delta.table_units import TablePosition


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for moment in (5, 3, 9, 7):
        times = pa.array([moment * 1_000_000], pa.timestamp("us", "UTC"))
        write_deltalake(tmp_path / "table", pa.table({"at": times, "v": [moment]}), mode="append")
    return tmp_path / "table"


def values(path: Path, pieces: list[Piece]) -> list[int]:
    files = [file for piece in pieces for unit in piece.task.units for file in unit.files]
    return [value for file in files for value in pq.read_table(path / file.path).column("v").to_pylist()]


def position(path: Path, version: int) -> TablePosition:
    return position_at(DeltaSource("s", str(path), "at"), version, is_read=True)


def test_commits_are_read_in_the_order_in_which_the_job_has_read_them(path: Path) -> None:
    source = DeltaSource("s", str(path), "at")
    pieces, gaps = table_pieces(source, None, position(path, 2), 3)
    assert (values(path, pieces), gaps) == ([5, 3, 9], [])
    assert [unit.first for piece in pieces for unit in piece.task.units] == [1, 2, 3]
    later, gaps = table_pieces(source, position(path, 2), position(path, 3), 4)
    assert (values(path, later), gaps) == ([7], [])
    assert [unit.first for piece in later for unit in piece.task.units] == [4]


def test_after_a_compaction_and_a_vacuum_the_rows_are_those_of_the_table(path: Path) -> None:
    table = DeltaTable(path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    pieces, gaps = table_pieces(DeltaSource("s", str(path), "at"), None, position(path, 4), 4)
    assert (sorted(values(path, pieces)), gaps) == ([3, 5, 7, 9], [])
