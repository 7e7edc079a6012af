"""`ensue rebucket`: another number of buckets for a job's checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_line


def rebucket(
    file: DeploymentFile,
    buckets: Annotated[int, typer.Argument(metavar="N", help="The new number of buckets.")],
    as_json: Json = False,
) -> None:
    """Move the checkpoint of a job that does not run to another number of buckets.

    Answers stay the same. The old state is kept until a run with the new one has ended.
    """
    from ensue.rendering.status_text import bytes_text
    from job_engine.job.upkeep.rebucket import rebucket as move

    done = move(file, buckets)
    if as_json:
        print_json(done.to_plain())
        return
    reached = "before its first micro-batch" if done.batch is None else f"after micro-batch {done.batch}"
    print_line(
        f"moved from {done.before} to {done.buckets} buckets {reached}: {bytes_text(done.size)}, tasks: {done.tasks}"
    )
    if done.old is not None:
        print_line(f"the old state is kept in {done.old} until a run has ended")
    if not done.is_set:
        print_line(f"now set `buckets: {done.buckets}` in {file}")
