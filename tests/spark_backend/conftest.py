"""Plans, arrivals and one Spark session for this folder's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_backend.session import get_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = get_session("ensue tests", cores=2)
    yield session
    session.stop()
