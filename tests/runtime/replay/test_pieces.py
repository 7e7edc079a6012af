"""Records of files piece by piece: the same order as all at once, whatever the order in the files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import querylang
from runtime.reading.column_names import STANDARD
from runtime.replay import records, replay
from runtime.replay.loading import files_to_read
from runtime.replay.records import NotSortedError, Reading, merged
from runtime.replay.replay import read_records, replay_records

QUERY = """
event A { integer id; integer k; }
query Q { inputs { A() key k within 2.0; } find A as a -> A as b }
"""
PLAN = querylang.compile_text(QUERY).plan
COORDINATES = ("_arrival", "_source", "_partition", "_offset")


def table(count: int, *, is_sorted: bool, seed: int = 1) -> pa.Table:
    """Rows of which several arrive at each moment."""
    random = np.random.default_rng(seed)
    at = random.integers(0, count // 3, count)
    return pa.table({"at": np.sort(at) if is_sorted else at, "id": np.arange(count), "k": random.integers(0, 9, count)})


def written(folder: Path, *tables: pa.Table) -> list[Path]:
    """The tables as Parquet files of small row groups."""
    paths = [folder / f"{number}.parquet" for number in range(len(tables))]
    for path, rows in zip(paths, tables, strict=True):
        pq.write_table(rows, path, row_group_size=70)
    return paths


def reading(paths: list[Path]) -> Reading:
    return Reading(files_to_read(paths, PLAN, [STANDARD] * len(paths), {}))


def coordinates(found: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(found.column(name).to_pylist() for name in COORDINATES), strict=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; runs are as small as these tables."""
    monkeypatch.setattr(records, "RUN", 150)
    monkeypatch.setattr(records, "ROWS_OF_A_GROUP", 40)
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_sorted_files_are_merged_as_they_are_read(folder: Path) -> None:
    paths = written(folder, *(table(500, is_sorted=True, seed=seed) for seed in range(3)))
    found = list(reading(paths).sorted_pieces())
    assert len(found) > 6
    assert coordinates(pa.concat_tables(found)) == coordinates(read_records(paths, PLAN).arrivals.table)


def test_a_part_that_begins_before_the_end_of_the_one_before_is_noticed(folder: Path) -> None:
    paths = written(folder, table(500, is_sorted=True), table(500, is_sorted=False))
    with pytest.raises(NotSortedError):
        list(reading(paths).sorted_pieces())


@pytest.mark.parametrize("is_sorted", [True, False])
def test_runs_on_disk_give_the_same_order(folder: Path, is_sorted: bool) -> None:
    paths = written(folder, *(table(500, is_sorted=is_sorted, seed=seed) for seed in range(3)))
    found = list(reading(paths).pieces_by_runs(folder / "runs"))
    assert len(list((folder / "runs").iterdir())) > len(paths)
    assert coordinates(pa.concat_tables(found)) == coordinates(read_records(paths, PLAN).arrivals.table)


def test_rows_with_coordinates_of_their_own_keep_their_numbers(folder: Path) -> None:
    rows = table(200, is_sorted=False).append_column("offset", pa.array(np.arange(200)[::-1] + 1_000))
    own = reading(written(folder, rows))
    found = pa.concat_tables(list(own.pieces_by_runs(folder / "runs")))
    whole = read_records(written(folder, rows), PLAN)
    assert coordinates(found) == coordinates(whole.arrivals.table)
    places = zip(*(found.column(name).to_pylist() for name in COORDINATES[1:]), strict=True)
    assert [own.row_of(*place) for place in places] == whole.rows.tolist()


def test_records_of_one_moment_may_fill_several_tables() -> None:
    def stream(place: int, *moments: list[int]) -> list[pa.Table]:
        offset = iter(range(100))
        return [
            pa.table(
                {
                    "_arrival": pa.array(at, pa.int64()),
                    "_place": pa.array([place] * len(at), pa.int64()),
                    "_partition": pa.array([0] * len(at), pa.int64()),
                    "_offset": pa.array([next(offset) for _ in at], pa.int64()),
                }
            )
            for at in moments
        ]

    streams = [stream(0, [1, 5], [5, 5], [], [5, 9]), stream(1, [5], [5], [6]), stream(2)]
    found = pa.concat_tables(list(merged([iter(tables) for tables in streams])))
    rows = list(zip(*(found.column(name).to_pylist() for name in ("_arrival", "_place", "_offset")), strict=True))
    assert rows == sorted(rows)
    assert len(rows) == 9


def test_the_answer_does_not_depend_on_how_records_are_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "CHUNK", 37)
    paths = written(folder, table(300, is_sorted=True))
    engine = replay.Engine(PLAN)
    calls = list(replay.replay_calls(engine, reading(paths).sorted_pieces()))
    found = [table for call in calls for table in replay.in_order(PLAN, call).matches.values()]
    whole = replay_records(PLAN, read_records(paths, PLAN))
    assert pa.concat_tables(found).drop_columns("_rank") == pa.concat_tables(whole.matches.values()).drop_columns(
        "_rank"
    )
    assert engine.ledger() == whole.ledger
    assert all(len(one) for one, _ in pairwise([*found, None]) if one is not None)
