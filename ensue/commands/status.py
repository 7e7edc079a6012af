"""Commands that show a job: `ensue status`, `state` and `plan`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.common import DeploymentFile, Json, QueryPattern, names_like, print_json, print_line, print_text


def status(file: DeploymentFile, query: QueryPattern = None, as_json: Json = False) -> None:
    """Show the state of a deployment's job.

    The clock and the sources that hold it back, what is not processed yet, accounts, sizes, rates,
    memory.
    """
    from runtime.column_types import load_arrow_alone

    load_arrow_alone()
    from ensue.commands.status_text import status_text
    from job_engine.job.status import status_of

    shown = status_of(file)
    if query is not None:
        shown = shown.only(names_like(query, shown.names))
    if as_json:
        print_json(shown.to_plain())
    else:
        print_text(status_text(shown))


# `ensue state`: show what a job keeps.

Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="A key: `7`; `card=7` for one part of several; or a JSON object."),
]


class Form(StrEnum):
    """How the state is printed."""

    TABLE = "table"
    JSON = "json"


def state(
    file: DeploymentFile,
    key: Keys = None,
    form: Annotated[Form, typer.Option("--format", help="For people, or for programs.")] = Form.TABLE,
    as_json: Json = False,
) -> None:
    """Show what a job keeps of a key, what waits, and until when; or how much of all keys.

    It is the state after the last micro-batch. The job may run meanwhile.
    """
    start_for_state(file)
    from ensue.commands.status_text import state_text
    from job_engine.job.upkeep.keys import job_state

    shown = job_state(file, key or ())
    if as_json or form is Form.JSON:
        print_json(shown.to_plain())
    else:
        print_text(state_text(shown))


def start_for_state(file: Path) -> None:
    """Starts what reads the state of a job; mistakes in the file are reported before."""
    from job_engine.deployment_file import load_deployment
    from job_engine.job.driver import driver_of
    from job_engine.sources.listing.batch_log import engine_of

    deployment = load_deployment(file)
    deployment = replace(deployment, engine=engine_of(deployment.checkpoint))
    driver_of(deployment).start_early(deployment, runs=False)


# `ensue plan`: what a start of a job with the files as they are would change.


def plan(file: DeploymentFile, as_json: Json = False) -> None:
    """Show what a start of a job that applies its files would change."""
    from job_engine.job.preflight import plan_of

    changes = plan_of(file)
    if as_json:
        print_json(changes.to_plain())
        return
    if changes.is_new:
        print_line("the checkpoint is new: a start runs the files as they are")
        return
    if changes.release is not None:
        print_line(changes.release)
    for line in (*changes.changes, *changes.live, *changes.tables):
        print_line(line)
    if not changes.changes:
        print_line("no query would change" if changes.tables else "nothing would change")
    elif changes.is_needed:
        print_line(f"`ensue run {file} --apply` does it; without --apply the job does not start")
    else:
        print_line(f"`ensue run {file} --apply` does it; `ensue run {file}` leaves the queries as they are")
