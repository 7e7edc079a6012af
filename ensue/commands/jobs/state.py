"""`ensue state`: show what a job keeps."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_text

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
    from job_engine.job.driver import driver_of
    from job_engine.settings.deployment_file import load_deployment
    from job_engine.sources.listing.batch_log import engine_of

    deployment = load_deployment(file)  # mistakes in the file are reported before Spark is started
    deployment = replace(deployment, engine=engine_of(deployment.checkpoint))
    driver_of(deployment).start_early(deployment, runs=False)
    from ensue.rendering.state_text import state_text
    from job_engine.job.upkeep.keys import job_state

    found = job_state(file, key or ())
    if as_json or form is Form.JSON:
        print_json(found.to_plain())
    else:
        print_text(state_text(found))
