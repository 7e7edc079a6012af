"""Packed rows that pass from task to task in files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from job_engine.wire.packed_rows import PACKED_SCHEMA, SMALL, fetched, put_aside, remove_rows
from spark_backend.spark_operator import new_folder

LARGE = [b"a" * 10, b"b" * SMALL, b"", b"c" * 1000]


def batch_of(rows: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(len(rows)), pa.int32()), rows], schema=PACKED_SCHEMA)


def values(batch: pa.RecordBatch) -> list[bytes]:
    return [bytes(value) for value in batch.column(1).to_pylist()]


class TestRowsInFiles:
    @pytest.mark.parametrize("first", [0, 1], ids=["whole", "slice"])
    def test_rows_come_back_as_they_were(self, tmp_path: Path, first: int) -> None:
        batch = batch_of(LARGE).slice(first)
        (placed,) = put_aside(iter([batch]), tmp_path)
        assert [fetched(value) for value in values(placed)] == LARGE[first:]
        assert sum(map(len, values(placed))) < 1000
        assert placed.column(0) == batch.column(0)

    def test_small_batches_stay_as_they_are(self, tmp_path: Path) -> None:
        (placed,) = put_aside(iter([batch_of([b"a", b"b"])]), tmp_path)
        assert values(placed) == [b"a", b"b"]
        assert not list(tmp_path.iterdir())

    def test_removed_rows_leave_nothing(self, tmp_path: Path) -> None:
        list(put_aside(iter([batch_of(LARGE)] * 2), tmp_path))
        remove_rows(tmp_path)
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_something_cleaned_up_is_made_again(self, tmp_path: Path) -> None:
        folder = tmp_path / "cleaned up" / "rows"
        remove_rows(folder)
        (placed,) = put_aside(iter([batch_of(LARGE)]), folder)
        assert [fetched(value) for value in values(placed)] == LARGE

    def test_a_row_that_is_cut_off_is_refused(self, tmp_path: Path) -> None:
        (placed,) = put_aside(iter([batch_of(LARGE)]), tmp_path)
        (file,) = tmp_path.iterdir()
        file.write_bytes(b"short")
        with pytest.raises(OSError, match="5 bytes of a packed row that has 10"):
            fetched(values(placed)[0])


class TestFolder:
    @pytest.mark.parametrize(
        ("master", "has_one"),
        [("local[2]", True), ("local", True), ("local-cluster[2,1,1024]", False), ("spark://host:7077", False)],
    )
    def test_only_where_all_tasks_run_on_one_machine(self, tmp_path: Path, master: str, has_one: bool) -> None:
        context = SimpleNamespace(master=master, _temp_dir=str(tmp_path))
        folder = new_folder(cast("Any", SimpleNamespace(sparkContext=context)))
        assert (folder is not None) == has_one
        assert folder is None or folder.parent == tmp_path
