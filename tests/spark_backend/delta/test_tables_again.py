"""Which data files of a Delta table a history reads again: those that the job has read, as it has read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from job_engine.sources.source import PieceAgain
from job_engine.sources.table.commits import position_at
from job_engine.sources.table.pieces import TableFirsts, TableMemory, TablePosition, TableWork
from job_engine.sources.table.planning import CommitPlanner
from job_engine.sources.table.running import table_pieces
from job_engine.sources.table.settings import DeltaSource


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for moment in (5, 3, 9, 7):
        append(tmp_path / "table", moment)
    return tmp_path / "table"


def append(path: Path, moment: int) -> None:
    times = pa.array([moment * 1_000_000], pa.timestamp("us", "UTC"))
    write_deltalake(path, pa.table({"at": times, "v": [moment]}), mode="append")


def values(path: Path, pieces: list[PieceAgain]) -> list[int]:
    files = [file for piece in pieces for unit in piece.work.units for file in unit.files]
    return [value for file in files for value in pq.read_table(path / file.path).column("v").to_pylist()]


def again(
    source: DeltaSource,
    before: TablePosition | None,
    read: TablePosition,
    count: int,
    firsts: TableFirsts | None = None,
) -> tuple[list[PieceAgain], list[str]]:
    found = table_pieces(source, TableMemory("s", read, count), before, firsts)
    return list(found.pieces), list(found.gaps)


def position(path: Path, version: int) -> TablePosition:
    return position_at(DeltaSource("s", str(path), "at"), version, is_read=True)


def test_commits_are_read_in_the_order_in_which_the_job_has_read_them(path: Path) -> None:
    source = DeltaSource("s", str(path), "at")
    pieces, gaps = again(source, None, position(path, 2), 3)
    assert (values(path, pieces), gaps) == ([5, 3, 9], [])
    assert [unit.first for piece in pieces for unit in piece.work.units] == [1, 2, 3]
    later, gaps = again(source, position(path, 2), position(path, 3), 4)
    assert (values(path, later), gaps) == ([7], [])
    assert [unit.first for piece in later for unit in piece.work.units] == [4]


def test_after_a_compaction_and_a_vacuum_the_rows_are_those_of_the_table(path: Path) -> None:
    table = DeltaTable(path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    pieces, gaps = again(DeltaSource("s", str(path), "at"), None, position(path, 4), 4)
    assert (sorted(values(path, pieces)), gaps) == ([3, 5, 7, 9], [])


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", [3, 5, 7, 9, 4, 8]), ("latest", [4, 8]), ("2", [9, 7, 4, 8]), ("0", [5, 3, 9, 7, 4, 8])],
)
def test_a_history_begins_where_the_job_has_begun(path: Path, start: str, expected: list[int]) -> None:
    source = DeltaSource("s", str(path), "at", start, max_files=1)
    read, positions = list[int](), {}
    for more in (None, 4, 8):
        if more is not None:
            append(path, more)
        for _ in range(6):
            found = CommitPlanner([source]).next(positions, {"s": len(read)}, lambda *_: None)
            positions = found.positions
            read += values(path, [PieceAgain("s", 1, TableWork(found.units))])
    pieces, gaps = again(source, None, positions["s"], len(read))
    assert (read, values(path, pieces), gaps) == (expected, expected, [])


def test_time_waits_for_the_commits_that_are_read_again_later(path: Path) -> None:
    moments = dict(zip(files_of(path), (5, 3, 9, 7), strict=True))
    source = DeltaSource("s", str(path), "at")
    read = replace(position(path, 2), has_unread=True)
    pieces, _ = again(source, None, read, 3, lambda _, files, __: [moments[item.file.path] for item in files])
    left = [piece.unread["s"] for piece in pieces]
    assert [(item.first, item.number, moments[item.path]) for item in left if item] == [(3, 2, 3), (7, 3, 7), (7, 4, 7)]


def files_of(path: Path) -> list[str]:
    """The data files in the order of commits."""
    pieces, _ = again(DeltaSource("s", str(path), "at", "0"), None, replace(position(path, 3), began=-1), 4)
    return [file.path for piece in pieces for unit in piece.work.units for file in unit.files]


def test_a_history_without_data_files_that_the_job_has_read_has_a_gap(path: Path) -> None:
    source = DeltaSource("s", str(path), "at", "2")
    read = CommitPlanner([source]).next({}, {}, lambda *_: None)
    gone = read.units[0].files[0].path
    (path / gone).unlink()
    pieces, gaps = again(source, None, read.positions["s"], 2)
    assert len(pieces) == 2
    assert gaps == [f"source 's': the data file {gone} no longer exists"]
    older = replace(read.positions["s"], began=None)
    assert again(source, None, older, 2) == (
        [],
        ["source 's': an older release has not written down where it began to read"],
    )
