"""`ensue backup` and `ensue restore`: copies of a job's checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_json, print_line

if TYPE_CHECKING:
    from job_engine.job.upkeep.backup import BackupReport
    from job_engine.places.place import Place

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
    as_json: Json = False,
) -> None:
    """Make a job's checkpoint that of a backup; its next run continues from there."""
    from job_engine.job.upkeep.backup import restore as restore_checkpoint

    done = restore_checkpoint(file, _place(folder), replace=replace, remove_results=remove_results)
    _print(done, f"restored from {folder}", as_json=as_json)


def _place(folder: str) -> Place:
    from job_engine.places.place import SHOWN, UnknownScheme, place_of
    from querylang.errors import InputError

    try:
        return place_of(folder)
    except UnknownScheme as error:
        raise InputError(f"{folder}: '{error}' is not a kind of place; expected a path, or {SHOWN}") from error


def _print(done: BackupReport, what: str, *, as_json: bool) -> None:
    from ensue.rendering.status_text import bytes_text
    from querylang.errors import counted

    if as_json:
        print_json(done.to_plain())
        return
    reached = "before its first micro-batch" if done.batch < 0 else f"up to micro-batch {done.batch}"
    print_line(f"{what}: {reached}, {counted(done.files, 'file')}, {bytes_text(done.size)}")
    if done.removed:
        print_line(f"removed: {counted(done.removed, 'result file')} of later micro-batches")
    if done.before is not None:
        print_line(f"the checkpoint that was there is now {done.before}")
