"""The records of a history table come in order of arrival, however its rows are spread over files; without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import querylang
from job_engine.deployment import HistoryTable
from job_engine.job.history import table_run
from job_engine.job.history.table_run import clusters, column_names, in_order, local_files
from querylang.errors import InputError
from querylang.parameters import NOTHING, with_instances
from runtime.replay import records

PLAN = with_instances(
    querylang.compile_text("event A { float v; }\nquery Q { inputs { A() retain 1; } find A as a }").plan, NOTHING
)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([], []),
        ([(0, 9), (10, 19), (20, 29)], [[0], [1], [2]]),
        ([(20, 29), (0, 9), (10, 19)], [[1], [2], [0]]),
        ([(0, 12), (10, 19), (20, 29)], [[0, 1], [2]]),
        ([(10, 19), (0, 10)], [[0, 1]]),
        ([(0, 99), (10, 19), (20, 29), (100, 101)], [[0, 1, 2], [3]]),
        ([(0, 9), None, (20, 29)], [[0, 1, 2]]),
        ([(0, 9), (1.5, 2.5)], [[0, 1]]),
    ],
)
def test_files_that_overlap_are_sorted_together(
    bounds: list[tuple[float, float] | None], expected: list[list[int]]
) -> None:
    assert clusters(bounds) == expected


def spread(random: np.random.Generator, count: int) -> list[pa.Table]:
    """Rows with few different arrivals, in files of which some overlap, each in its own order."""
    at = np.sort(random.integers(0, count // 3, count))
    cuts = np.sort(random.integers(0, count, 4))
    tables = []
    for rows in np.split(np.arange(count), cuts):
        mixed = np.concatenate([rows, random.integers(0, count, int(random.integers(3)))])
        random.shuffle(mixed)
        tables.append(pa.table({"at": at[mixed].astype(float), "event": ["A"] * len(mixed), "v": mixed.astype(float)}))
    return [table for table in tables if len(table)]


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_in_order_of_arrival_then_of_the_table(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    tables = spread(random, 200)
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    rows = [(at, number, place, v) for number, table in enumerate(tables) for place, (at, v) in enumerate(pairs(table))]
    expected = [v for _, _, _, v in sorted(rows)]
    history = HistoryTable("parquet", tmp_path)
    monkeypatch.setattr(table_run, "ROWS", 40)
    monkeypatch.setattr(records, "RUN", 20)
    with local_files(history, PLAN) as files:
        steps = list(table_run._steps(in_order(files, PLAN, column_names(history), "")))
    assert [v for step in steps for v in step.column("v:float").to_pylist()] == expected
    assert len(steps) > 2
    ends = [(step.column("_arrival")[0].as_py(), step.column("_arrival")[-1].as_py()) for step in steps]
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def pairs(table: pa.Table) -> list[tuple[float, float]]:
    return list(zip(table.column("at").to_pylist(), table.column("v").to_pylist(), strict=True))


def test_columns_of_partitions_and_later_ones_are_those_of_the_table(tmp_path: Path) -> None:
    first = pa.table({"at": [1.0, 2.0], "event": ["A", "A"], "day": ["mon", "tue"]})
    write_deltalake(tmp_path, first, partition_by=["event"])
    later = first.append_column("v", pa.array([5.0, 6.0]))
    write_deltalake(tmp_path, later, mode="append", schema_mode="merge", partition_by=["event"])
    history = HistoryTable("delta", tmp_path)
    with local_files(history, PLAN) as files:
        table = pa.concat_tables(in_order(files, PLAN, column_names(history), ""))
    assert table.column("v:float").to_pylist() in ([5.0, None, 6.0, None], [None, 5.0, None, 6.0])


def test_deleted_rows_do_not_count(tmp_path: Path) -> None:
    rows = pa.table({"at": [1.0, 2.0], "event": ["A", "A"], "v": [1.0, 2.0]})
    write_deltalake(tmp_path, rows)
    DeltaTable(tmp_path).delete("v = 1.0")
    history = HistoryTable("delta", tmp_path)
    with local_files(history, PLAN) as files:
        table = pa.concat_tables(in_order(files, PLAN, column_names(history), ""))
    assert table.column("v:float").to_pylist() == [2.0]


def test_a_file_that_is_not_parquet_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("at,event,v\n")
    with (
        pytest.raises(InputError, match=r"the history: .* cannot be read"),
        local_files(HistoryTable("parquet", tmp_path), PLAN),
    ):
        pass


def test_a_data_file_outside_of_the_table_is_read_only_where_that_is_set(tmp_path: Path) -> None:
    rows = pa.table({"at": [1.0], "event": ["A"], "v": [5.0]})
    write_deltalake(tmp_path / "past", rows)
    pq.write_table(rows, tmp_path / "private.parquet")
    commit = tmp_path / "past/_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = f"file://{tmp_path}/private.parquet"
    commit.write_text("\n".join(map(json.dumps, lines)))
    history = HistoryTable("delta", tmp_path / "past")
    wrong = r"the history: .*/past: its log names a data file outside of the table: .* With `outside_files: true`"
    with pytest.raises(InputError, match=wrong), local_files(history, PLAN):
        pass
    with local_files(replace(history, outside_files=True), PLAN) as files:
        table = pa.concat_tables(in_order(files, PLAN, column_names(history), ""))
    assert table.column("v:float").to_pylist() == [5.0]
