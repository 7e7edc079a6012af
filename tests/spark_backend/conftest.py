"""One Spark session and one server of S3 for this folder's tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from pyspark.sql import SparkSession

from job_engine import stores
from job_engine.deployment_file import ENGINE_VARIABLE
from job_engine.setting_keys import Engine
from job_engine.sources.folder import reading
from job_engine.sources.folder.pieces import TakenFile
from job_engine.sources.folder.settings import ListedSource
from spark_backend.session import get_session
from tests.support.stores import StoreServer, store_server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import os

    if os.environ.get("ENSUE_ENGINE") == "local":
        yield None
        return
    session = get_session("ensue tests", cores=2)
    yield session
    session.stop()


@pytest.fixture
def engine_of_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """What runs jobs in processes that a test starts: the local engine, unless the test names one."""
    chosen = Engine(getattr(request, "param", Engine.LOCAL))
    monkeypatch.setenv(ENGINE_VARIABLE, chosen)
    return chosen


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """What runs all jobs of a test: the local engine, unless the test names one."""
    chosen = Engine(getattr(request, "param", Engine.LOCAL))
    monkeypatch.setenv(ENGINE_VARIABLE, chosen)
    if chosen is Engine.SPARK:
        request.getfixturevalue("spark")
    return chosen


@pytest.fixture(scope="session")
def one_server() -> Iterator[StoreServer]:
    with store_server() as server:
        yield server


@pytest.fixture
def store(one_server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreServer]:
    """A store without objects, which the environment names."""
    for name, value in one_server.environment.items():
        monkeypatch.setenv(name, value)
    stores.open_store.cache_clear()
    yield one_server
    one_server.clear()
    stores.open_store.cache_clear()


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose first arrivals were looked up."""
    found: list[str] = []
    inner = reading.first_arrivals

    def noted(options: Mapping[str, str], source: ListedSource, files: Sequence[TakenFile]) -> list[int | None]:
        found.extend(file.path for file in files)
        return inner(options, source, files)

    monkeypatch.setattr(reading, "first_arrivals", noted)
    return found
