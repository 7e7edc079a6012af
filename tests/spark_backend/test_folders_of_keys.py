"""Folders named `key=value` on a disk, in a store and of a history: their keys are columns everywhere."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
import querylang
from job_engine.deployment import HistoryTable
from job_engine.job.history.table_run import column_names, in_order, local_files
from job_engine.place import place_of
from tests.support.folder_job import FolderJob
from tests.support.stores import StoreServer

OPEN = """query Q {
    inputs { A() key k, kind retain 2; }
    find A as a -> A as b where b.v > a.v and b.year >= a.year
}"""
DEFINED = f"event A {{ string k; integer v; integer year; string kind; }}\n{OPEN}"
FILES = ("year=2023/kind=a%2Fb/1", "year=2024/kind=a%2Fb/1", "year=2024/kind=c/2", "year=2025/kind=c/3")


def rows(number: int) -> pa.Table:
    return pa.table({"at": [float(number), number + 0.5], "k": ["x", "x"], "v": [number, number + 1]})


@pytest.mark.parametrize("text", [DEFINED, OPEN], ids=["defined", "open"])
@pytest.mark.parametrize("is_remote", [False, True], ids=["disk", "store"])
def test_a_job_answers_as_a_replay(tmp_path: Path, store: StoreServer, text: str, *, is_remote: bool) -> None:
    for number, name in enumerate(FILES, 1):
        table = "at,k,v\n" + "".join(f"{row['at']},{row['k']},{row['v']}\n" for row in rows(number).to_pylist())
        file = tmp_path / "in" / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(table)
        store.put(f"in/{name}.csv", table)
    source = {"event": "A", "arrival": "at", "infer": True} | ({"path": "s3://bucket/in"} if is_remote else {})
    job = FolderJob(tmp_path, text, {"in": source})
    job.run()
    ids, discarded, _ = job.answer()
    replayed = ensue.replay(text, "s3://bucket/in" if is_remote else tmp_path / "in").match_objects()
    assert (ids, discarded) == (sorted(match["match_id"] for match in replayed), [])
    fields = [match["members"]["b"]["fields"] for match in replayed]
    assert [(item["year"], item["kind"]) for item in fields] == [(2023, "a/b"), (2024, "a/b"), (2024, "c"), (2025, "c")]


def test_columns_of_files_in_a_store_are_judged_as_those_on_a_disk(
    tmp_path: Path, store: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("in/day=1/1.csv", "at,k,v,year,kind,offset\n1,x,1,2023,a,7\n2,x,2,2023,a,7\n")
    source = {"event": "A", "arrival": "at", "path": "s3://bucket/in"}
    job = FolderJob(tmp_path, DEFINED, {"in": source})
    assert job.ready.record.fields == {"in": ("offset",)}
    assert "in: 1.csv: 'offset' is a field" in caplog.text


@pytest.mark.parametrize("is_remote", [False, True], ids=["disk", "store"])
def test_a_history_has_the_keys_of_its_folders(tmp_path: Path, store: StoreServer, *, is_remote: bool) -> None:
    for number, name in enumerate(FILES, 1):
        file = tmp_path / "old" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(number), file)
        store.put(f"old/{name}.parquet", file.read_bytes())
    plan = querylang.compile_text(DEFINED).plan
    place = place_of("s3://bucket/old") if is_remote else tmp_path / "old"
    table = HistoryTable("parquet", place, arrival="at")
    with ExitStack() as stack:
        files = stack.enter_context(local_files(table, plan))
        found = pa.concat_tables(in_order(files, plan, column_names(table), "history/"))
    assert found.column("year:integer").to_pylist() == [2023] * 2 + [2024] * 4 + [2025] * 2
    assert found.column("kind:string").to_pylist() == ["a/b"] * 4 + ["c"] * 4


def test_a_file_of_a_history_may_lack_a_column_that_another_one_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "old").mkdir()
    whole = rows(1).append_column("year", pa.array([1, 1])).append_column("kind", pa.array(["a", "a"]))
    pq.write_table(whole, tmp_path / "old" / "1.parquet")
    pq.write_table(whole.drop_columns(["v"]), tmp_path / "old" / "2.parquet")
    plan, table = querylang.compile_text(DEFINED).plan, HistoryTable("parquet", tmp_path / "old", arrival="at")
    with local_files(table, plan) as files:
        found = pa.concat_tables(in_order(files, plan, column_names(table), ""))
    assert sorted(found.column("v:integer").to_pylist(), key=str) == [1, 2, None, None]
    assert caplog.messages == ["2.parquet: has no column 'v', which other tables have: it is null there"]
