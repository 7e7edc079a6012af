"""What a task on an executor says of the job's local folders."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from querylang.errors import InputError
from spark_backend import executors
from spark_backend.executors import looking, refuse_unseen_folders


def test_a_folder_that_is_not_there_is_named_with_the_machine(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    wanted = [("the sink 'matches'", str(tmp_path / "gone")), ("the source 'a'", str(tmp_path / "here"))]
    assert list(looking(wanted, 0)([0])) == [("the sink 'matches'", socket.gethostname())]


def test_executors_that_see_the_folders_leave_no_trace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "LONGEST_TASK", 0.0)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").touch()
    refuse_unseen_folders(spark.sparkContext, 1, {"the source": tmp_path / "in"}, {"the sink": tmp_path / "out"})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["1.csv", "in", "out"]


def test_executors_that_do_not_see_a_folder_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "LONGEST_TASK", 0.0)
    monkeypatch.setattr(executors, "_known", lambda _: "elsewhere")
    with pytest.raises(InputError, match=r"in: the executor on .* does not see this folder of the source 'a'"):
        refuse_unseen_folders(spark.sparkContext, 1, {"the source 'a'": tmp_path / "in"}, {})
