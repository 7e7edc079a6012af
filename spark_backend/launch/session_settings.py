"""Settings of sessions that we start; they are needed before Spark is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spark_backend.class_archive import class_options
from spark_backend.cluster.masters import is_local, submitted_master

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

LOG_SETTINGS = Path(__file__).resolve().parents[1] / "log4j2.properties"

OPTIONS = "spark.driver.extraJavaOptions"

AT_RUN_TIME = {
    "spark.sql.session.timeZone": "UTC",
    # Our rows are few and large: one Arrow batch may hold all rows of a task.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # One task per file: opening a file is taken to cost as much as reading a whole partition.
    "spark.sql.files.openCostInBytes": str(128 << 20),
    # A worker that a signal ends tells which one.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
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
    "spark.python.worker.faulthandler.enabled": "true",
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


MASTER = "spark.master"

_OF_ONE_MACHINE = {"spark.ui.enabled", "spark.shuffle.compress", "spark.driver.host", "spark.driver.bindAddress"}
"""Those that are wrong, or not wanted, where executors are on other machines."""


def settings_of_start(name: str, cores: int | None = None, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a new session, those of the JVM included; local unless they name a master."""
    given = dict(settings or {})
    count = cores or os.cpu_count() or 2
    given.setdefault(MASTER, submitted_master(os.environ) or f"local[{count}]")
    own = AT_START | AT_RUN_TIME | {"spark.sql.shuffle.partitions": str(count)}
    if not is_local(given[MASTER]):
        own = {key: value for key, value in own.items() if key not in _OF_ONE_MACHINE}
        del own["spark.sql.shuffle.partitions"]
    options = " ".join(filter(None, (own[OPTIONS], given.get(OPTIONS), class_options())))
    return {"spark.app.name": name} | own | given | {OPTIONS: options}
