"""`ensue import`: a pattern that was written for another engine to a query file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.output import print_content, print_line, print_warnings


def import_sql(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.sql", help="A text with one MATCH_RECOGNIZE clause; `-` is standard input.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="The query file; without it the text is printed.")] = None,
) -> None:
    """Translate a MATCH_RECOGNIZE clause to a query, where it means the same.

    The query finds the same matches in the same rows. What has no counterpart, or would mean
    something else, is refused with its line and the reason. Rows without a key are not a partition:
    a warning says so, unless the text leaves them out.
    """
    from querylang.errors import InputError

    try:
        from ensue.importing.translation import translate
    except ModuleNotFoundError:
        raise InputError("ensue import needs the package sqlglot: pip install 'ensue[sql]'") from None

    found = translate(_text(file), str(file), _name(out or file))
    if out is not None and out.exists():
        raise InputError(f"{out}: exists already; remove it, or give another name")
    print_warnings(found.warnings)
    if out is None:
        print_content(found.query)
        return
    out.write_text(found.query, encoding="utf-8")
    print_line(str(out))


def _text(file: Path) -> str:
    from querylang.errors import InputError

    try:
        text = sys.stdin.read() if file == Path("-") else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return text.removeprefix("\ufeff")  # of an editor on Windows


def _name(file: Path) -> str:
    """The name of the query, from that of a file."""
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in file.stem).split()
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"Query{name}"
