"""A checkpoint and the program that it was made for, opened beside its job."""

from __future__ import annotations

from collections.abc import Iterator

from job_engine.deployment import Deployment
from job_engine.job.checkpoint.checkpoint_record import (
    Record,
    placed,
    read_record,
    refuse_difference,
    refuse_half_restored,
)
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.compilation import compiled_as_kept
from job_engine.job.driver import driver_of, in_words_of_driver
from job_engine.job.plan_rules import clock_sources, finished, would_chain
from job_engine.job.preflight import refuse_damaged_logs
from job_engine.job.stages.between_batches import kept_program
from job_engine.job.written_journal import read_files
from job_engine.operator.bucket_state import seeds_of
from job_engine.place import Place
from job_engine.sources.listing.batch_log import last_batch
from job_engine.wire.program import Program
from querylang.dataclass import dataclass, replace
from querylang.errors import EnsueError, InputError
from querylang.plan.model import Plan
from querylang.running import Running


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
    """Open the checkpoint of a deployment, with the driver that it is of; writes nothing.

    Raises InputError if there is none, or if it was made for something else.
    """
    record = kept_record(deployment)
    deployment = replace(deployment, engine=record.engine)
    program, wanted = _wanted(deployment, record)
    refuse_difference(deployment.checkpoint, record, wanted, deployment)
    program = kept_program(program, deployment)
    return Opened(deployment, record, placed(program, record, deployment.checkpoint))


def open_record(deployment: Deployment, kept: Record, checkpoint: Place) -> Record:
    """The record that a deployment would have in another checkpoint, whose record is `kept`."""
    return _wanted(replace(deployment, checkpoint=checkpoint), kept)[1]


def _wanted(deployment: Deployment, kept: Record) -> tuple[Program, Record]:
    """What the files said when they were last applied, by the rules that the checkpoint has.

    That they have been edited since, or do not compile now, concerns the next start alone.
    """
    before = read_files(deployment)
    try:
        compiled = compiled_as_kept(deployment, kept)
    except EnsueError:
        if before is None:
            raise
        return _as_applied(before, deployment, kept)
    programs = [
        _program(plan, deployment, kept, feeds=compiled.feeds) for plan in (compiled.plan, *compiled.plan.earlier())
    ]
    chosen = next((program for program in programs if program.fingerprint() == kept.plan), None)
    if chosen is None and before is not None:
        return _as_applied(before, deployment, kept)
    return chosen or programs[0], Record.of(deployment, chosen or programs[0], compiled.schemas)


def _as_applied(before: Running, deployment: Deployment, kept: Record) -> tuple[Program, Record]:
    plan, feeds = before.plan(), kept.chains or not would_chain(before.plan())
    program = _program(finished(plan, deployment, feeds=feeds), deployment, kept, feeds=feeds)
    record = Record.of(deployment, program, kept.types())
    return program, replace(record, plan=kept.plan, queries=kept.queries)


def _program(plan: Plan, deployment: Deployment, kept: Record, *, feeds: bool) -> Program:
    sources = clock_sources(deployment)
    program = Program.of(plan, buckets=deployment.buckets, clock=deployment.clock, sources=sources)
    return replace(program, feeds=feeds, gathered=kept.gathered_of(program), crosses=kept.can_cross)


def kept_record(deployment: Deployment) -> Record:
    """The record of a deployment's checkpoint; raises InputError if there is none."""
    refuse_half_restored(deployment.checkpoint)
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
    refuse_damaged_logs(checkpoint, opened.deployment.engine)
    if last_batch(checkpoint) < 0:
        raise InputError(f"{checkpoint}: no micro-batch has been committed yet, so there is no state")
    if opened.program.seeds is not None:
        yield from seeds_of(opened.program.seeds, range(opened.program.buckets) if buckets is None else buckets)
        return
    with in_words_of_driver(opened.deployment):
        machine = driver_of(opened.deployment).open(opened.deployment, runs=False)
        try:
            yield from machine.states(checkpoint, opened.program, buckets)
        finally:
            machine.close()
