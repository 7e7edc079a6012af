"""Options of the whole suite, what its processes have in common, and which files `make test` starts first."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator
from typing import Any

import pytest

from querylang.printable import forget_secrets
from runtime.progress_line import tell_on
from runtime.threads import COLLECTIONS
from tests.support.kafka.broker import Broker, running_broker

# Every JVM of the suite lives for minutes at most: the second compiler would take a third of the processors' time and
# never give it back, and a collector with threads of its own a twentieth. It is said to Spark's launcher, which passes
# it on and prints nothing about it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# What the suite tests is machine code; `ENSUE_COMPILE=never` runs it as plain Python, which must answer the same.
os.environ.setdefault("ENSUE_COMPILE", "always")

STARTED_FIRST = (
    "tests/differential/test_patterns.py",  # on one worker: compiles every kernel, once a machine
    "tests/querylang/test_fuzz.py",  # on the other meanwhile: needs no kernel
    "tests/spark_backend/test_deployment.py",  # and all others on its session of Spark
    "tests/spark_backend/kafka/test_kafka_jobs.py",  # and all others on its broker
    "tests/querylang/test_limits.py",
    "tests/spark_backend/test_standalone.py",
    "tests/torture/test_torture.py",
    "tests/spark_backend/",
    "tests/benchmarks/test_benchmarks.py",
    "tests/conformance/",
    "tests/ensue/test_spark.py",
    "tests/differential/",
    "tests/project/test_wheel.py",
)
"""The files and folders that take longest (`make test PYTEST=--durations=30` tells). Workers take whole files in this
order, then the others in that of their names: with short ones last, all workers end at about the same time."""

ON_ONE_BROKER = (
    "tests/spark_backend/kafka/",
    "tests/job_engine/local/test_local_topics.py",
    "tests/job_engine/local/test_planned_anew.py",
    # These need a session of Spark, as most of the others do.
    "tests/conformance/test_executors.py",
    "tests/conformance/test_published_in_jobs.py",
    "tests/ensue/test_spark.py",
    "tests/project/test_docs.py",
)
ON_ONE_SESSION = (
    "tests/ensue/test_shuffled_tables.py",
    "tests/ensue/test_streams.py",
    "tests/spark_backend/delta/test_catalog_names.py",
    "tests/spark_backend/delta/test_delta_batch.py",
    "tests/spark_backend/delta/test_delta_jobs.py",
    "tests/spark_backend/test_changed_tables.py",
    "tests/spark_backend/test_constructs.py",
    "tests/spark_backend/test_deployment.py",
    "tests/spark_backend/test_frames.py",
    "tests/spark_backend/test_job_in_a_program.py",
    "tests/spark_backend/test_kill.py",
    "tests/spark_backend/test_lookups.py",
    "tests/spark_backend/test_moving.py",
    "tests/spark_backend/test_old_checkpoints.py",
    "tests/spark_backend/test_ordering_stream.py",
    "tests/spark_backend/test_own_columns_of_frames.py",
    "tests/spark_backend/test_properties_file.py",
    "tests/spark_backend/test_random_patterns.py",
    "tests/spark_backend/test_remarks_of_frames.py",
    "tests/spark_backend/test_shared_folders.py",
    "tests/spark_backend/test_spark_settings.py",
    "tests/spark_backend/test_status.py",
    "tests/spark_backend/test_verify.py",
)
"""Files that one worker takes as if they were one file: a session or a broker of each worker would cost as much
processor time as dozens of tests, and the first of everything that a JVM does is slow."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of Kafka; each test has topics of its own."""
    with running_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files, and those together that share what is slow to start."""
    from xdist.scheduler.loadfile import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            shared = (files for files in (ON_ONE_BROKER, ON_ONE_SESSION) if file.startswith(files))
            return next(shared, (file,))[0]

    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure() -> None:
    """Tests look at what the logger says; that kernels are compiled belongs to no test."""
    tell_on(io.StringIO())
    gc.set_threshold(*COLLECTIONS)  # thousands of tests are about to be made, and none goes away


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


def pytest_unconfigure() -> None:
    """Extensions count at the end what is left of them."""
    gc.unfreeze()


def place(file: str) -> int:
    return next((at for at, start in enumerate(STARTED_FIRST) if file.startswith(start)), len(STARTED_FIRST))
