"""A checkpoint and the program that it was made for, opened beside its job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from querylang.errors import InputError
from querylang.plan.model import Plan
from spark_backend.job.checkpoint.checkpoint_record import Record, read_record, refuse_difference
from spark_backend.job.checkpoint.job_folder import JobFolder
from spark_backend.job.checkpoint.spark_checkpoint import place_for_spark, placed, reach_store
from spark_backend.job.checks.damaged_logs import refuse_damaged_logs
from spark_backend.job.checks.job_session import job_session
from spark_backend.job.checks.open_waits import clock_sources
from spark_backend.job.compilation import compile_deployment
from spark_backend.job.stages.change import kept_program
from spark_backend.operator.seeds import seeds_of
from spark_backend.settings.deployment import Deployment
from spark_backend.sources.listing.spark_log import last_batch
from spark_backend.wire.program import Program


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint with the program that runs on it."""

    deployment: Deployment
    record: Record
    program: Program

    @property
    def folder(self) -> JobFolder:
        """What Ensue keeps inside it."""
        return JobFolder(self.deployment.checkpoint)


def open_checkpoint(deployment: Deployment) -> Opened:
    """Open the checkpoint of a deployment; writes nothing.

    Raises InputError if there is none, or if it was made for something else.
    """
    record = kept_record(deployment)
    program, wanted = _wanted(deployment, record)
    refuse_difference(deployment.checkpoint, record, wanted, deployment)
    program = kept_program(program, deployment)
    return Opened(deployment, record, placed(program, record, deployment.checkpoint))


def open_record(deployment: Deployment, kept: Record) -> Record:
    """The record that a deployment would have with the event types of another one."""
    return _wanted(deployment, kept)[1]


def _wanted(deployment: Deployment, kept: Record) -> tuple[Program, Record]:
    """What the files say, by the rule for nulls that the checkpoint has."""
    compiled = compile_deployment(deployment, kept.types())
    program = _program(compiled.plan, deployment)
    earlier = _program(compiled.plan.with_failing_nulls(), deployment)
    chosen = earlier if earlier.fingerprint() == kept.plan else program
    return chosen, Record.of(deployment, chosen, compiled.schemas)


def _program(plan: Plan, deployment: Deployment) -> Program:
    return Program.of(plan, buckets=deployment.buckets, clock=deployment.clock, sources=clock_sources(deployment))


def kept_record(deployment: Deployment) -> Record:
    """The record of a deployment's checkpoint; raises InputError if there is none."""
    record = read_record(deployment.checkpoint)
    if record is None:
        raise InputError(f"{deployment.checkpoint}: there is no checkpoint yet: no job has run on it")
    return record


def saved_states(opened: Opened, buckets: list[int] | None = None) -> Iterator[tuple[int, bytes]]:
    """The states of buckets after the last micro-batch that is committed, one at a time.

    buckets: their numbers; None = all that have a state

    Raises InputError if nothing was committed, or the state store cannot be read.
    """
    checkpoint = opened.deployment.checkpoint
    refuse_damaged_logs(checkpoint)
    if last_batch(checkpoint) < 0:
        raise InputError(f"{checkpoint}: no micro-batch has been committed yet, so there is no state")
    if opened.program.seeds is not None:
        yield from seeds_of(opened.program.seeds, range(opened.program.buckets) if buckets is None else buckets)
        return
    session = job_session(opened.deployment, None)
    reach_store(session, checkpoint)
    labels = opened.program.labels
    wanted = None if buckets is None else [labels[bucket] for bucket in buckets]
    try:
        for label, data in _rows(session, place_for_spark(checkpoint), wanted):
            yield opened.program.bucket(label), data
    except PySparkException as error:
        raise InputError(f"{checkpoint}: its state cannot be read: {str(error).splitlines()[0]}") from error


def _rows(session: SparkSession, checkpoint: str, labels: list[int] | None) -> Iterator[tuple[int, bytes]]:
    session.streams.active  # noqa: B018 # starts what Spark's reader of state reports to
    table = session.read.format("statestore").load(checkpoint)
    label, data = sql.col("key.bucket"), sql.col("value.groupState.data")
    chosen = table if labels is None else table.where(label.isin(labels))
    row: Any
    for row in chosen.where(data.isNotNull()).select(label.alias("label"), data.alias("data")).toLocalIterator():
        yield int(row["label"]), bytes(row["data"])
