"""`ensue check`: check query and deployment files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.options import Json
from ensue.commands.output import print_error, print_json, print_text


def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files or folders; `-` is a query on standard input.")
    ],
    as_json: Json = False,
) -> None:
    """Check query and deployment files: all mistakes, each with its place.

    Each query file is checked by itself, those that a deployment names together.
    """
    from ensue.commands.findings import check_files
    from querylang.errors import counted

    report = check_files(files)
    if as_json:
        print_json(report.to_plain())
    else:
        for error in report.errors:
            print_error(str(error))
        for warning in report.warnings:
            print_error(f"warning: {warning}")
        if not report.errors:
            print_text(f"{counted(report.files, 'file')}, no mistakes")
    if report.errors:
        raise typer.Exit(1)
