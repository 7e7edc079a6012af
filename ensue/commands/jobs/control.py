"""`ensue control`: send a control event to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_line

if TYPE_CHECKING:
    from job_engine.job.commands import Sent

JOB = "job"
"""The part that answers a change of the queries."""

AtTime = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="The arrival time at which it takes place; default: now.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the job has taken it.")]


def control(
    file: DeploymentFile,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="`SetDelayedEventsLeeway(5, 20)`, for example.")],
    at: AtTime = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Send a control event to a job, and wait until it is taken."""
    from job_engine.job.commands import send_control
    from job_engine.settings.deployment_file import load_deployment

    print_sent(send_control(load_deployment(file), event, at=at, wait=not no_wait), as_json=as_json)


def print_sent(sent: Sent, *, as_json: bool) -> None:
    """What became of a command; exit code 1 if it was wrong."""
    from runtime.timestamps import format_time

    outcome = sent.outcome
    place = None if outcome is None or outcome.time is None else format_time(outcome.time)
    errors = [] if outcome is None else outcome.errors
    if as_json:
        state = "sent" if outcome is None and sent.is_running else "stored" if outcome is None else "taken"
        print_json(
            {
                "command": sent.command.number,
                "state": "error" if errors else state,
                "batch": None if outcome is None else outcome.batch,
                "time": place,
                "is_complete": outcome is not None and outcome.is_complete,
                "count": 0 if outcome is None else outcome.count,
                "errors": errors,
            }
        )
    else:
        for line in errors or [_sentence(sent, place)]:
            print_line(line)
    if errors:
        raise typer.Exit(1)


def _sentence(sent: Sent, place: str | None) -> str:
    outcome = sent.outcome
    if outcome is None and sent.is_running:
        return f"sent as command {sent.command.number}; it waits for the next micro-batch of the job"
    if outcome is None:
        return f"the job does not run: stored as command {sent.command.number} for its next start"
    done = [item.text for item in outcome.answers.values() if item.part == JOB and item.text]
    where = "before all records" if place is None else f"at arrival time {place}"
    waits = "" if outcome.is_complete else "; it takes effect when all sources have been read beyond there"
    if done:
        return f"{done[0]}, {where}"
    return f"taken in micro-batch {outcome.batch}, {where}{waits}"
