"""A session of Spark for one job: a run is one of its streaming queries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from job_engine.deployment import Deployment
from job_engine.durable_files import sync
from job_engine.job.driver import Order
from job_engine.place import Place, RemotePath
from job_engine.sources.listing.batch_log import driver_files
from job_engine.threads import EarlyStart, in_background
from job_engine.wire.program import Program
from querylang.dataclass import dataclass
from querylang.errors import InputError
from spark_backend.executors import ship_kernels
from spark_backend.session import is_on_one_machine, job_session, keep_tasks, tasks_of
from spark_backend.source_stream import HAS_AVAILABLE_NOW, packed_stream, spark_options
from spark_backend.spark_operator import new_folder, start_workers
from spark_backend.worker_functions import results_stream

# End a bounded run whose source Spark cannot tell that it is one: before PySpark 4.2.


def stop_at_end(query: StreamingQuery) -> None:
    """Stop a query once its source has nothing new; the source must have fixed its end."""
    in_background(lambda: _stop(query), "ensue end")


def _stop(query: StreamingQuery) -> None:
    with suppress(Exception):  # whoever waits for the query gets what ended it
        query.processAllAvailable()
        query.stop()


# Where Spark's files of a checkpoint are, as Hadoop names it, and what it needs to write them.

_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"

_UMASK = "fs.permissions.umask-mode"
"""Which permissions files of Hadoop's file systems do not have, where only the JVM writes them."""


def place_for_spark(checkpoint: Place) -> str:
    """Its files in the checkpoint as Spark names them: Hadoop's word for S3 is `s3a`."""
    text = str(driver_files(checkpoint).folder.resolve())
    return f"s3a{text.removeprefix('s3')}" if text.startswith("s3://") else text


def reach_store(session: SparkSession, checkpoint: Place) -> None:
    """Let Spark write a checkpoint as Ensue does; raises InputError if it cannot."""
    if isinstance(checkpoint, Path):
        session.conf.set(_UMASK, f"{0o777 & ~checkpoint.stat().st_mode:03o}")
    if not isinstance(checkpoint, RemotePath) or not checkpoint.root.startswith("s3://"):
        return
    _refuse_missing_class(session, checkpoint)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        _set(session, "endpoint", endpoint)
        _set(session, "path.style.access", "true")
    if region:
        _set(session, "endpoint.region", region)


def _set(session: SparkSession, key: str, value: str) -> None:
    """A setting of this session only; what `spark: conf` says is kept."""
    name = f"fs.s3a.{key}"
    if session.sparkContext.getConf().get(f"spark.hadoop.{name}") is None:
        session.conf.set(name, value)


def _refuse_missing_class(session: SparkSession, checkpoint: RemotePath) -> None:
    jvm = session.sparkContext._jvm  # noqa: SLF001  the only way to its classes
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_CLASS, False, loader)
    except Exception as error:
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        raise InputError(
            f"{checkpoint}: Spark needs Hadoop's classes of S3 for a checkpoint there:"
            f' `spark: {{packages: ["org.apache.hadoop:hadoop-aws:{version}"]}}`'
        ) from error


class SparkRun:
    """A streaming query of Spark."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query

    @property
    def is_active(self) -> bool:
        """Whether it still runs; False also where Java has ended, and with it the job."""
        try:
            return bool(self.query.isActive)
        except Exception:  # noqa: BLE001 # whatever a JVM that is not there answers
            return False

    @property
    def is_between_batches(self) -> bool:
        """Whether it waits for input; a query that only begins must not be stopped yet."""
        status = self.query.status
        return not status["isTriggerActive"] and str(status["message"]).startswith("Waiting for")

    @property
    def is_idle(self) -> bool:
        """Whether it waits for input, or for the time of its next micro-batch."""
        try:
            status = self.query.status
        except Exception:  # noqa: BLE001 # whatever a JVM that is not there answers
            return False
        return not status["isTriggerActive"] or str(status["message"]).startswith("Waiting")

    @property
    def message(self) -> str:
        """What Spark says that it does."""
        return str(self.query.status["message"])

    def wait(self, seconds: float | None = None) -> bool:
        """As `Running.wait`."""
        if seconds is None:
            self.query.awaitTermination()
            return True
        # Spark takes parts of a second too, whatever its annotation says.
        limit: Any = max(0.001, seconds)
        return self.query.awaitTermination(limit) is not False

    def stop(self, may_give_up: Callable[[], bool] = lambda: True) -> None:  # noqa: ARG002 # Spark ends what it writes
        """As `Running.stop`."""
        with suppress(Py4JError):  # a signal to the process group may have ended Java already
            self.query.stop()


@dataclass(frozen=True, slots=True)
class SparkMachine:
    """A session of Spark for one job."""

    session: SparkSession

    def tasks(self, deployment: Deployment) -> int:
        """As `Machine.tasks`."""
        return tasks_of(self.session, deployment)

    def keep_tasks(self, deployment: Deployment, tasks: int) -> None:
        """As `Machine.keep_tasks`."""
        keep_tasks(self.session, deployment, tasks)

    def new_folder(self) -> Path | None:
        """As `Machine.new_folder`."""
        return new_folder(self.session)

    def begin(self, order: Order) -> SparkRun:
        """Start a streaming query."""
        session = self.session
        # Otherwise a bounded run never ends: with a timeout Spark always sees one more empty batch.
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(order.has_timeouts).lower())
        packed = packed_stream(session, spark_options(session, order.options, order.program.tasks, order.rows))
        results = results_stream(packed, order.program, order.sinks, order.writer.identity)
        writer = results.writeStream.queryName(order.name).outputMode("append")
        writer = writer.option("checkpointLocation", place_for_spark(order.checkpoint))
        if not order.is_bounded:
            writer = writer.trigger(processingTime=f"{order.trigger // 1000} milliseconds")
        elif HAS_AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        query = writer.foreachBatch(_write(order)).start()
        if order.is_bounded and not HAS_AVAILABLE_NOW:
            stop_at_end(query)
        return SparkRun(query)

    def states(self, checkpoint: Place, program: Program, buckets: list[int] | None) -> Iterator[tuple[int, bytes]]:
        """From Spark's state store."""
        reach_store(self.session, checkpoint)
        labels = program.labels
        wanted = None if buckets is None else [labels[bucket] for bucket in buckets]
        try:
            for label, data in _rows(self.session, place_for_spark(checkpoint), wanted):
                yield program.bucket(label), data
        except PySparkException as error:
            raise InputError(f"{checkpoint}: its state cannot be read: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        """The session stays: it is the user's, or the next job's."""


def _write(order: Order) -> Callable[[DataFrame, int], None]:
    """The `foreachBatch` function of a run. Spark may call it again with the same micro-batch."""
    offsets = driver_files(order.checkpoint).offsets  # nothing moves the checkpoint while it runs

    def write(results: DataFrame, batch: int) -> None:
        def run() -> Iterator[bytes]:
            # a power cut must not leave results whose offsets are lost
            sync(offsets / str(batch))
            sync(offsets)
            return (bytes(row["data"]) for row in results.collect())

        order.writer.write(run, batch)

    return write


def _rows(session: SparkSession, checkpoint: str, labels: list[int] | None) -> Iterator[tuple[int, bytes]]:
    session.streams.active  # noqa: B018 # starts what Spark's reader of state reports to
    table = session.read.format("statestore").load(checkpoint)
    label, data = sql.col("key.bucket"), sql.col("value.groupState.data")
    chosen = table if labels is None else table.where(label.isin(labels))
    row: Any
    for row in chosen.where(data.isNotNull()).select(label.alias("label"), data.alias("data")).toLocalIterator():
        yield int(row["label"]), bytes(row["data"])


def open_machine(deployment: Deployment, given: SparkSession | None, *, runs: bool) -> SparkMachine:
    """A session beside the one that is given or exists, or a new one, with what the job needs."""
    session = job_session(deployment, given)
    reach_store(session, deployment.checkpoint)
    if deployment.kernels is not None:
        ship_kernels(session, deployment.kernels)
    if runs:
        _start_workers(session)
    return SparkMachine(session)


_with_workers: set[str] = set()
"""The applications of Spark whose Python workers have been started."""


def _start_workers(session: SparkSession) -> None:
    """Once per application, while the query is planned."""
    application = session.sparkContext.applicationId
    if is_on_one_machine(session) and application not in _with_workers:
        _with_workers.add(application)
        EarlyStart(lambda: start_workers(session))
