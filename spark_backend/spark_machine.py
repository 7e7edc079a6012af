"""A session of Spark for one job: a run is one of its streaming queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from job_engine.durable_files import sync
from job_engine.early_start import EarlyStart
from job_engine.job.driver import Order
from job_engine.places.place import Place
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.batch_log import driver_files
from job_engine.wire.program import Program
from querylang.errors import InputError
from spark_backend.bounded_end import stop_at_end
from spark_backend.job_session import job_session, keep_tasks, tasks_of
from spark_backend.session import is_on_one_machine
from spark_backend.spark_checkpoint import place_for_spark, reach_store
from spark_backend.stream.job_kernels import ship_kernels
from spark_backend.stream.results import results_stream
from spark_backend.stream.source_stream import packed_stream, spark_options
from spark_backend.stream.spark_operator import start_workers
from spark_backend.stream.spark_reader import HAS_AVAILABLE_NOW
from spark_backend.stream.temporary_rows import new_folder


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

    def stop(self) -> None:
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
