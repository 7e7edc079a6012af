"""`ensue status`: show the state of a deployment's job."""

from __future__ import annotations

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_text


def status(file: DeploymentFile, as_json: Json = False) -> None:
    """Show the state of a deployment's job.

    The clock and the sources that hold it back, what is not processed yet, accounts, sizes, rates,
    memory.
    """
    from ensue.commands.fast_start import load_arrow_alone

    load_arrow_alone()
    from ensue.rendering.status_text import status_text
    from job_engine.job.watching.status import status_of

    found = status_of(file)
    if as_json:
        print_json(found.to_plain())
    else:
        print_text(status_text(found))
