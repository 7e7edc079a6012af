"""`ensue compact`: let many small files of a job's results become few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_error, print_json, print_line
from querylang.errors import InputError

if TYPE_CHECKING:
    from job_engine.sinks.kinds import Compacted


def compact(
    file: DeploymentFile,
    target: Annotated[
        str, typer.Option("--target", metavar="SIZE", help="The size that files should have.")
    ] = "128 MB",
    as_json: Json = False,
) -> None:
    """Let many small files of a job's results become few.

    The job may run meanwhile. Its newest micro-batches stay as they are.
    """
    from job_engine.job.upkeep.results import compact_job
    from runtime.policies.settings_text import parse_size

    size = parse_size(target)
    if size is None:
        raise InputError(f"--target: '{target}' is not a size from 1 kB to 1 GB, such as '128 MB'")
    report = compact_job(file, size, _ignore if as_json else _tell)
    if as_json:
        print_json(report.to_plain())
    for name, way in report.ways.items():
        if way:
            print_error(f"sink '{name}' {way}")
    if not report.sinks and not as_json:
        print_error("the job has no sinks of files, so there is nothing to compact")


def _tell(sink: str, done: Compacted) -> None:
    changed = f"{done.replaced:,} files became {done.written:,}" if done.replaced else "nothing to do"
    print_line(f"{sink}: {changed}; {done.left:,} files")


def _ignore(_sink: str, _done: Compacted) -> None:
    pass
