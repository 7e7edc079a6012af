"""`ensue plan`: what a start of a job with the files as they are would change."""

from __future__ import annotations

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_line


def plan(file: DeploymentFile, as_json: Json = False) -> None:
    """Show what a start of a job that applies its files would change."""
    from job_engine.job.preflight import plan_of

    found = plan_of(file)
    if as_json:
        print_json(found.to_plain())
        return
    if found.is_new:
        print_line("the checkpoint is new: a start runs the files as they are")
        return
    if found.release is not None:
        print_line(found.release)
    for line in (*found.changes, *found.live):
        print_line(line)
    if not found.changes:
        print_line("nothing would change")
    elif found.is_needed:
        print_line(f"`ensue run {file} --apply` does it; without --apply the job does not start")
    else:
        print_line(f"`ensue run {file} --apply` does it; `ensue run {file}` leaves the queries as they are")
