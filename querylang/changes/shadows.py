"""A shadow: a changed text that runs beside a query, with a name of its own and no effects."""

from __future__ import annotations

from dataclasses import dataclass

from querylang.errors import InputError, QueryErrors
from querylang.source import Source
from querylang.syntax.ast import Broken
from querylang.syntax.parser import parse

SUFFIX = "_shadow"


@dataclass(frozen=True, slots=True)
class Shadow:
    """A text to deploy.

    names: of its queries, by the name of the query that each runs beside
    """

    text: str
    names: dict[str, str]


def shadow_of(text: str, path: str = "query") -> Shadow:
    """The text with other names, and without the blocks of `find`: nothing is sent or printed.

    Raises QueryErrors for a text that is not one, InputError for a query without a name.
    """
    file, mistakes = parse(Source(path, text))
    if mistakes:
        raise QueryErrors(mistakes)
    changes: list[tuple[int, int, str]] = []
    names = {}
    for query in file.queries:
        if query.name is None:
            raise InputError(f"{path}: a shadow runs beside a query of the same name: write `query NAME {{ … }}`")
        names[query.name.text] = query.name.text + SUFFIX
        changes.append((query.name.span.start, query.name.span.end, query.name.text + SUFFIX))
        if query.find is not None and not isinstance(query.find, Broken) and query.find.block is not None:
            changes.append((query.find.block.span.start, query.find.block.span.end, ";"))
    if not names:
        raise InputError(f"{path}: the text has no query")
    for start, end, other in reversed(changes):
        text = text[:start] + other + text[end:]
    return Shadow(text, names)
