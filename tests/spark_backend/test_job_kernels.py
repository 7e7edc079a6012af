"""The archive of kernels that a job ships."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkFiles

from runtime.shipped_kernels import VARIABLE
from spark_backend.wire.job_kernels import ship_kernels, use_shipped_kernels


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A worker of a job that ships `kernels.zip`; gives the folder that Spark copies files to."""
    sent: list[str] = []
    context = SimpleNamespace(addFile=sent.append, environment={})
    ship_kernels(cast("Any", SimpleNamespace(sparkContext=context)), Path("/jobs/kernels.zip"))
    assert sent == ["/jobs/kernels.zip"]
    for name, value in context.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(VARIABLE, "")  # so that what the worker sets is taken back
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(tmp_path / name))
    return tmp_path


def test_a_worker_loads_what_the_job_has_sent(worker: Path) -> None:
    use_shipped_kernels()
    assert os.environ[VARIABLE] == str(worker / "kernels.zip")


def test_what_the_environment_of_an_executor_names_comes_first(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/own.zip")
    use_shipped_kernels()
    assert os.environ[VARIABLE] == "/own.zip"
    assert not list(worker.iterdir())
