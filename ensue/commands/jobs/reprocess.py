"""`ensue reprocess`: put mended records back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.options import DeploymentFile, Json
from ensue.commands.output import print_error, print_json, print_line


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
    from job_engine.job.upkeep.reprocess import reprocess as put_back
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
