"""Options of the whole suite, what its processes have in common, and which files `make test` starts first."""

from __future__ import annotations

import gc
import io
import os

import pytest

from querylang.printable import forget_secrets
from runtime.compiling.notice import tell_on
from runtime.threads import COLLECTIONS

# Every JVM of the suite lives for minutes at most: the second compiler would take a third of the processors' time and
# never give it back. It is said to Spark's launcher, which passes it on and prints nothing about it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# What the suite tests is machine code; `ENSUE_COMPILE=never` runs it as plain Python, which must answer the same.
os.environ.setdefault("ENSUE_COMPILE", "always")

STARTED_FIRST = (
    "tests/differential/test_patterns.py",  # on one worker: compiles every kernel, once a machine
    "tests/querylang/test_fuzz.py",  # on the other meanwhile: needs no kernel
    "tests/querylang/test_limits.py",
    "tests/spark_backend/test_standalone.py",
    "tests/spark_backend/kafka/test_kafka_jobs.py",
    "tests/spark_backend/test_kill.py",
    "tests/torture/test_torture.py",
    "tests/project/test_docs.py",
    "tests/spark_backend/test_deployment.py",
    "tests/spark_backend/",
    "tests/benchmarks/test_benchmarks.py",
    "tests/conformance/",
    "tests/ensue/test_spark.py",
    "tests/differential/",
    "tests/project/test_wheel.py",
)
"""The files and folders that take longest (`make test PYTEST=--durations=30` tells). Workers take whole files in this
order, then the others in that of their names: with short ones last, all workers end at about the same time."""


def pytest_configure() -> None:
    """Tests look at what the logger says; that kernels are compiled belongs to no test."""
    tell_on(io.StringIO())


@pytest.fixture(autouse=True)
def other_settings() -> None:
    """No test hides the values of another one's settings."""
    forget_secrets()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("random streams")
    group.addoption("--streams", type=int, default=150, help="how many random streams the differential test runs")
    group.addoption("--streams-seed", type=int, default=0, help="draw other streams than those of every day")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several workers the longest files come first; alone, pytest's own order stays."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid.split("::")[0]))


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def pytest_unconfigure() -> None:
    """Extensions count at the end what is left of them."""
    gc.unfreeze()


def place(file: str) -> int:
    return next((at for at, start in enumerate(STARTED_FIRST) if file.startswith(start)), len(STARTED_FIRST))
