"""Spark sessions: the active one, or a new local one with the settings that we measure with.

The settings of a user's session are never changed. Jobs of our own run in a session beside it
(`own_session`), which shares its context.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from spark_backend.class_archive import class_options

ROOT = Path(__file__).resolve().parent.parent

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")

OPTIONS = "spark.driver.extraJavaOptions"

AT_RUN_TIME = {
    "spark.sql.session.timeZone": "UTC",
    # Our rows are few and large: one Arrow batch may hold all rows of a task.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # One task per file: opening a file is taken to cost as much as reading a whole partition.
    "spark.sql.files.openCostInBytes": str(128 << 20),
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Rows are spread by bucket on purpose: merging partitions would lose parallelism.
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of every session that runs a job of our own."""

AT_START = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.worker.reuse": "true",
    # Packed numbers do not get much smaller, and the shuffle of one machine passes no network.
    "spark.shuffle.compress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    OPTIONS: f"-Xss16m -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
}
"""Settings of a session that we start ourselves.

Only the JVM's quick compiler runs. The other one needed more time than it saved, since records do
not pass through the JVM: with it a micro-batch took a quarter longer.

The deep stack is for a query that is stopped while its results are being written: Spark then
searches a long message with a regular expression that recurses for each character.
"""


OF_WORKERS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Variables of Python workers of our own jobs, unless the environment has them.

Workers keep memory from one micro-batch to the next. To give it back and get it again, page by
page, took a quarter of their time.
"""


def get_session(
    name: str = "ensue", cores: int | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The active session unchanged, or else a new local session on `cores` (None = all).

    name, settings: of a new session only
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return with_package_path(active)
    # workers must find the packages of this interpreter
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    count = cores or os.cpu_count() or 2
    chosen = AT_START | AT_RUN_TIME | {"spark.sql.shuffle.partitions": str(count)} | dict(settings or {})
    chosen[OPTIONS] = f"{chosen[OPTIONS]} {class_options()}".strip()
    builder = SparkSession.builder.appName(name).master(f"local[{count}]")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return with_package_path(builder.getOrCreate())


def own_session(name: str = "ensue") -> SparkSession:
    """A session for a job of our own, beside the active one and with our settings."""
    session = get_session(name).newSession()
    for key, value in AT_RUN_TIME.items():
        session.conf.set(key, value)
    for key, value in OF_WORKERS.items():
        session.sparkContext.environment.setdefault(key, os.environ.get(key, value))
    return session


def is_on_one_machine(session: SparkSession) -> bool:
    """Whether all tasks of a session run on this machine."""
    master = session.sparkContext.master or ""
    return master.startswith("local") and not master.startswith("local-cluster")


def with_package_path(session: SparkSession) -> SparkSession:
    """The same session; its local workers find this package."""
    context = session.sparkContext
    if (context.master or "").startswith("local"):
        paths = [str(ROOT), *filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep))]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return session
