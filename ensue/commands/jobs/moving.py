"""`ensue move` and `ensue rebucket`: another engine, or other buckets, for a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_line
from job_engine.document.setting_keys import Engine

if TYPE_CHECKING:
    from job_engine.job.upkeep.moving import MoveReport


def move(
    file: DeploymentFile,
    to: Annotated[Engine, typer.Option("--to", help="What continues the job: Spark, or processes of this machine.")],
    buckets: Annotated[int | None, typer.Option(metavar="N", min=1, help="Another number of buckets, too.")] = None,
    as_json: Json = False,
) -> None:
    """Let the other engine continue a job that does not run: from one machine to Spark, or back.

    Answers stay the same. The old state is kept until a run with the new one has ended.
    """
    from job_engine.job.upkeep.moving import move

    _show(file, move(file, to, buckets), as_json=as_json)


def rebucket(
    file: DeploymentFile,
    buckets: Annotated[int, typer.Argument(metavar="N", help="The new number of buckets.")],
    as_json: Json = False,
) -> None:
    """Move the checkpoint of a job that does not run to another number of buckets.

    Answers stay the same. The old state is kept until a run with the new one has ended.
    """
    from job_engine.job.upkeep.moving import rebucket

    _show(file, rebucket(file, buckets), as_json=as_json)


def _show(file: DeploymentFile, done: MoveReport, *, as_json: bool) -> None:
    from ensue.rendering.status_text import bytes_text

    if as_json:
        print_json(done.to_plain())
        return
    ways = [f"from {done.engine_before} to {done.engine}"] * (done.engine_before != done.engine)
    ways += [f"from {done.before} to {done.buckets} buckets"] * (done.before != done.buckets)
    reached = "before its first micro-batch" if done.batch is None else f"after micro-batch {done.batch}"
    tasks = f", tasks: {done.tasks}" if done.engine is Engine.SPARK else ""
    print_line(f"moved {' and '.join(ways)} {reached}: {bytes_text(done.size)}{tasks}")
    if done.old is not None:
        print_line(f"the old state is kept in {done.old} until a run has ended")
    if not done.is_set:
        print_line(f"now set {' and '.join(f'`{key}: {value}`' for key, value in done.to_set.items())} in {file}")
