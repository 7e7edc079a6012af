"""The Spark session: a local one with the settings that Ensue was measured with, or the one that is there already.

Takes nothing but settings; gives a SparkSession. The settings of a user's session are left alone: jobs of our own run in a
session beside it (`own_session`), which shares its context.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")

AT_RUN_TIME = {
    "spark.sql.session.timeZone": "UTC",
    # Rows are few and large here: one Arrow batch may hold all of a task's.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # Every file a task of its own: opening one counts as much as a whole partition.
    "spark.sql.files.openCostInBytes": str(128 << 20),
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Rows are spread by bucket on purpose: joining partitions would take parallelism away.
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of every session in which we run a job of our own."""

AT_START = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.worker.reuse": "true",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Xss16m -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
}
"""Settings of a session that we start ourselves.

The deep stack is for a query that is stopped while its results are being written: Spark then searches a long message with a
regular expression that recurses for each character.
"""


def get_session(
    name: str = "ensue", cores: int | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The active session, its settings left alone; without one, a new local session on `cores` (default: all)."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return findable(active)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers must find the packages of this interpreter
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    count = cores or os.cpu_count() or 2
    chosen = AT_START | AT_RUN_TIME | {"spark.sql.shuffle.partitions": str(count)} | dict(settings or {})
    builder = SparkSession.builder.appName(name).master(f"local[{count}]")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return findable(builder.getOrCreate())


def own_session(name: str = "ensue") -> SparkSession:
    """A session for a job of our own beside the active one: its settings are not the user's."""
    session = get_session(name).newSession()
    for key, value in AT_RUN_TIME.items():
        session.conf.set(key, value)
    return session


def findable(session: SparkSession) -> SparkSession:
    """The same session; local workers are told where this package is."""
    context = session.sparkContext
    if (context.master or "").startswith("local"):
        paths = [str(ROOT), *filter(None, context.environment.get("PYTHONPATH", "").split(os.pathsep))]
        context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return session
