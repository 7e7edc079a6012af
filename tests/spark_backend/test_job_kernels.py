"""The archive of kernels that a job ships."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkFiles

from runtime.compiling.files import VARIABLE
from spark_backend.executors import ship_kernels, use_shipped_kernels


class Context:
    """What sending a file needs of Spark's context."""

    def __init__(self, folder: Path) -> None:
        self._temp_dir = str(folder)
        self.sent: list[str] = []
        self.addFile = self.sent.append
        self.environment: dict[str, str] = {}


def ship(context: Context, archive: Path) -> str:
    """The name that workers look for."""
    ship_kernels(cast("Any", SimpleNamespace(sparkContext=context)), archive)
    return context.environment["ENSUE_KERNELS_OF_JOB"]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A worker of a job that ships an archive; gives its path there."""
    (tmp_path / "kernels.zip").write_text("archive")
    context = Context(tmp_path)
    name = ship(context, tmp_path / "kernels.zip")
    for variable, value in context.environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv(VARIABLE, "")  # so that what the worker sets is taken back
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(tmp_path / "worker" / name))
    return tmp_path / "worker" / name


def test_a_worker_loads_what_the_job_has_sent(worker: Path) -> None:
    use_shipped_kernels()
    assert os.environ[VARIABLE] == str(worker)


def test_what_the_environment_of_an_executor_names_comes_first(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/own.zip")
    use_shipped_kernels()
    assert os.environ[VARIABLE] == "/own.zip"


def test_archives_of_one_name_do_not_meet(tmp_path: Path) -> None:
    """Spark would refuse the second one, and then every task of the session."""
    context, archive = Context(tmp_path), tmp_path / "kernels.zip"
    names = []
    for content in ("one", "other", "one"):
        archive.write_text(content)
        names.append(ship(context, archive))
        assert Path(context.sent[-1]).read_text() == content
    assert names[0] == names[2] != names[1]
    assert [Path(sent).name for sent in context.sent] == names
