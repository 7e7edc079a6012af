"""Commands that care for a job's checkpoint and its results: copies, moves, fewer files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands.changes import NoWait
from ensue.commands.common import DeploymentFile, Json, print_error, print_json, print_line
from job_engine.setting_keys import Engine
from querylang.errors import InputError

if TYPE_CHECKING:
    from job_engine.job.upkeep.backup import BackupReport
    from job_engine.job.upkeep.moving import MoveReport
    from job_engine.place import Place
    from job_engine.sinks.kinds import Compacted


# `ensue backup` and `ensue restore`: copies of a job's checkpoint.

BackupFolder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of the backup, local or in a store.")]


def backup(file: DeploymentFile, folder: BackupFolder, as_json: Json = False) -> None:
    """Copy the checkpoint of a job that does not run to a new folder."""
    from job_engine.job.upkeep.backup import back_up

    _print(back_up(file, _place(folder)), f"backed up to {folder}", as_json=as_json)


def restore(
    file: DeploymentFile,
    folder: BackupFolder,
    replace: Annotated[bool, typer.Option("--replace", help="Put a checkpoint that is there aside.")] = False,
    remove_results: Annotated[
        bool, typer.Option("--remove-results", help="Remove result files that the job will write again.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue without files that were read since and removed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a job's checkpoint that of a backup; its next run continues from there."""
    from job_engine.job.upkeep.backup import restore as restore_checkpoint

    done = restore_checkpoint(
        file, _place(folder), replace=replace, remove_results=remove_results, accept_loss=accept_loss
    )
    _print(done, f"restored from {folder}", as_json=as_json)


def _place(folder: str) -> Place:
    from job_engine.place import SHOWN, UnknownScheme, place_of
    from querylang.errors import InputError

    try:
        return place_of(folder)
    except UnknownScheme as error:
        raise InputError(f"{folder}: '{error}' is not a kind of place; expected a path, or {SHOWN}") from error


def _print(done: BackupReport, what: str, *, as_json: bool) -> None:
    from ensue.commands.status_text import bytes_text
    from querylang.errors import counted

    if as_json:
        print_json(done.to_plain())
        return
    reached = "before its first micro-batch" if done.batch < 0 else f"up to micro-batch {done.batch}"
    print_line(f"{what}: {reached}, {counted(done.files, 'file')}, {bytes_text(done.size)}")
    if done.removed:
        print_line(f"removed: {counted(done.removed, 'result file')} of later micro-batches")
    if done.returned:
        print_line(f"moved back from archives: {counted(done.returned, 'file')} that the job reads again")
    if done.before is not None:
        print_line(f"the checkpoint that was there is now {done.before}")


# `ensue compact`: let many small files of a job's results become few.


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


# `ensue forget`: let a job forget a key.


def forget(
    file: DeploymentFile,
    key: Annotated[
        list[str],
        typer.Option("--key", metavar="KEY", help="A key: `7`; `card=7` for one part of several; or a JSON object."),
    ],
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Let a job forget a key: its events, pending matches and held records.

    A job that does not run forgets at its next start. Results that were written stay as they are.
    """
    from job_engine.job.upkeep.keys import forget as let_forget
    from querylang.errors import counted, listed

    forgetting = let_forget(file, key, wait=not no_wait)
    outcome = forgetting.sent.outcome
    errors = [] if outcome is None else outcome.errors
    state = "forgotten" if outcome is not None else "sent" if forgetting.sent.is_running else "stored"
    if as_json:
        print_json(
            {
                "command": forgetting.sent.command.number,
                "state": "error" if errors else state,
                "batch": None if outcome is None else outcome.batch,
                "removed": dict(forgetting.removed),
                "tables": list(forgetting.tables),
                "others": list(forgetting.others),
                "remains": list(forgetting.remains),
                "errors": errors,
            }
        )
    elif errors:
        for line in errors:
            print_line(line)
    elif outcome is None and not forgetting.sent.is_running:
        print_line(f"the job does not run: stored as command {forgetting.sent.command.number} for its next start")
    elif outcome is None:
        print_line(f"sent as command {forgetting.sent.command.number}")
    else:
        events, waits, held, values = (
            forgetting.removed.get(name, 0) for name in ("events", "waits", "held", "values")
        )
        parts = f"{counted(events, 'event')}, {counted(waits, 'pending match', 'pending matches')}"
        parts += f", {counted(values, 'stored value')}" if values else ""
        print_line(f"forgotten in micro-batch {outcome.batch}: {parts}, {counted(held, 'held record')}")
    if errors:
        raise typer.Exit(1)
    if not as_json:
        when = "removed" if forgetting.are_rows_gone else "removed when the job takes changes, or at its next start"
        for name in forgetting.tables:
            print_line(f"rows of the key in earlier versions of the table '{name}': {when}")
        if forgetting.others:
            print_error(
                f"queries without such a key may keep its events under other keys: {listed(list(forgetting.others))}"
            )
        for line in forgetting.remains:
            print_error(f"not touched: {line}")


# `ensue move` and `ensue rebucket`: another engine, or other buckets, for a checkpoint.


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
    from ensue.commands.status_text import bytes_text

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


# `ensue reprocess`: put mended records back.


def reprocess(
    file: DeploymentFile,
    records: Annotated[
        Path, typer.Argument(metavar="DISCARDED", help="Rows of the sink `discarded` as JSON lines, mended.")
    ],
    again: Annotated[
        bool, typer.Option("--again", help="Also records that some queries have used, which use them again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put mended records back into their sources, with their arrival."""
    from job_engine.job.upkeep.results import reprocess as put_back
    from querylang.errors import counted

    done = put_back(file, records, again=again)
    if as_json:
        print_json({"files": dict(done.files), "records": done.records, "twice": done.twice})
        return
    for name, written in done.files.items():
        print_line(f"{name}: {written}")
    print_line(f"{counted(done.records, 'record')} put back")
    if done.twice:
        print_error(f"{counted(done.twice, 'record')} of them are used a second time by some queries")
