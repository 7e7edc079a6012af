"""`ensue import`: a pattern that was written for another engine to a query file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.commands.output import print_content, print_line


def import_sql(
    file: Annotated[Path, typer.Argument(metavar="FILE.sql", help="A text with one MATCH_RECOGNIZE clause.")],
    out: Annotated[Path | None, typer.Option("--out", help="The query file; without it the text is printed.")] = None,
) -> None:
    """Translate a MATCH_RECOGNIZE clause to a query, where it means the same.

    The query finds the same matches in the same rows. What has no counterpart, or would mean
    something else, is refused with its line and the reason.
    """
    from querylang.errors import InputError

    try:
        from ensue.importing.translation import translate
    except ModuleNotFoundError:
        raise InputError("ensue import needs the package sqlglot: pip install 'ensue[sql]'") from None

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    query = translate(text, str(file), _name(out or file))
    if out is None:
        print_content(query)
        return
    if out.exists():
        raise InputError(f"{out}: exists already; remove it, or give another name")
    out.write_text(query, encoding="utf-8")
    print_line(str(out))


def _name(file: Path) -> str:
    """The name of the query, from that of a file."""
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in file.stem).split()
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"Query{name}"
