"""Send a command to a job, and wait for what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from job_engine.clock import monotonic, sleep
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.settings.deployment import Deployment
from job_engine.sources.listing.batch_log import batches_of
from job_engine.sources.listing.command_folder import EVENT, Command, CommandKind, Outcome
from querylang.errors import InputError
from querylang.printable import warn

LOOK = 0.25
"""Seconds between two looks for an outcome."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A command that was written.

    is_running: whether a job runs that takes it; else its next start does
    outcome: what became of it; None = nobody waited for it, or no job runs
    """

    command: Command
    is_running: bool
    outcome: Outcome | None = None


def send_command(
    deployment: Deployment,
    text: str,
    *,
    kind: CommandKind = EVENT,
    at: int | None = None,
    wait: bool = True,
    seconds: float | None = None,
) -> Sent:
    """Write a command into the checkpoint of a deployment, and wait until it is taken.

    at: the arrival time at which it takes place, µs; None = as soon as it is read
    seconds: how long to wait at most; None = for as long as the job runs

    Raises InputError if it cannot be written, or if the job ends before it takes it.
    """
    folder = JobFolder(deployment.checkpoint)
    if read_record(deployment.checkpoint) is None:
        raise InputError(
            f"{deployment.checkpoint}: no job has run on this checkpoint yet; start it with `ensue run {deployment.file}`"
        )
    lock = folder.lock()
    runs = lock.is_held()
    try:
        command = folder.commands.send(text, at=at, kind=kind)
    except OSError as error:
        raise InputError(f"{folder.commands.path}: the command cannot be written: {error.strerror or error}") from error
    if not (runs and wait):
        return Sent(command, runs)
    return Sent(command, runs, _outcome(folder, command, lock.is_held, seconds))


def _outcome(folder: JobFolder, command: Command, runs: Callable[[], bool], seconds: float | None) -> Outcome | None:
    """What became of a command; None = nothing in that time."""
    limit = None if seconds is None else monotonic() + seconds
    next_question = monotonic() + 2
    said = ""
    while (found := folder.commands.outcome(command.number)) is None:
        now = monotonic()
        if limit is not None and now > limit:
            return None
        if now > next_question:
            next_question = now + 2
            if not runs() and folder.commands.outcome(command.number) is None:
                raise InputError(
                    f"{folder.checkpoint}: the job ended before it took the command, which is kept for its next start"
                )
            reason = what_it_waits_for(folder, command)
            if reason != said:
                said = reason
                warn(f"command {command.number} waits for {reason}")
        sleep(LOOK)
    return found


def what_it_waits_for(folder: JobFolder, command: Command) -> str:
    """What has to happen before a job takes a command."""
    earlier = [number for number in folder.commands.pending() if number < command.number]
    if earlier:
        return f"command {earlier[0]}, which was sent before it"
    batches = batches_of(folder.checkpoint)
    if batches.open is not None:
        return f"the end of micro-batch {batches.open}, which is being processed"
    if batches.ended < 0:
        return "the first micro-batch: the job has begun and has not read anything yet"
    return "the next micro-batch; the job's `trigger` and its sources decide when it begins"
