"""`ensue fmt`: format query and definition files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.output import print_content, print_error, print_line


def fmt(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files or folders; `-` is standard input.")],
    only_check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if a file would be.")
    ] = False,
    to_stdout: Annotated[bool, typer.Option("--stdout", help="Print the result, change nothing.")] = False,
) -> None:
    """Format files in the one canonical layout; comments are kept.

    Prints the names of the files that it changed. What comes from a pipe is printed, as of
    standard input.
    """
    from ensue.commands.texts import layout

    if files == [Path("-")]:
        raise typer.Exit(_format_standard_input(only_check=only_check))
    has_mistakes = has_changes = False
    for item in layout.layouts(files):
        if item.mistakes is not None:
            has_mistakes = True
            print_error(str(item.mistakes))
        elif to_stdout or not (only_check or item.can_be_written):
            print_content(item.after)
        elif item.is_changed:
            if not only_check:
                layout.write(item)
            print_line(str(item.path))
        has_changes = has_changes or item.is_changed
    if has_mistakes or (only_check and has_changes):
        raise typer.Exit(1)


def _format_standard_input(*, only_check: bool) -> int:
    import querylang

    text = sys.stdin.read()
    formatted = querylang.format_text(text, "-")
    if only_check:
        return int(text != formatted)
    print_content(formatted)
    return 0
