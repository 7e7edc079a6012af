"""A replay as one HTML page that needs nothing else: account, matches, discards, steps, queries."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pyarrow as pa

import querylang
from ensue.rendering.automaton_picture import automaton_svg
from ensue.rendering.first_rows import html_tables
from ensue.rendering.matches_picture import MOST, matches_svg
from querylang.errors import InputError
from querylang.plan.describe import graph_of
from querylang.plan.model import QueryPlan
from querylang.printable import printable
from runtime.results.for_users import Plain

ROWS = 500
"""So many rows of a table are shown."""

_BEGINNING = '<!DOCTYPE html>\n<html lang="en">\n<!-- a report of Ensue -->'
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;color:#1f2933;max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
    "th,td{padding:.2rem .6rem;border-bottom:1px solid #e9edf1;white-space:nowrap}"
    "pre{background:#f6f8fa;padding:.8rem;overflow-x:auto;font-size:13px}"
    "h2{margin-top:2.2rem;border-bottom:1px solid #c4ccd4}img{max-width:100%}summary{cursor:pointer}"
)


@dataclass(frozen=True, slots=True)
class Page:
    """What a report shows.

    matches: by title of a query: its matches, flat
    objects: all matches as JSON objects
    tables: outputs, discards and others, by name
    steps: the replay as a table for people
    """

    summary: str
    account: str
    warnings: Sequence[str]
    matches: Mapping[str, pa.Table]
    objects: Sequence[Plain]
    tables: Mapping[str, pa.Table]
    steps: str
    queries: Sequence[QueryPlan]


def write_page(page: Page, path: Path) -> Path:
    """Write the report; an earlier one is replaced.

    Raises InputError for another file of this name, and for one that cannot be written.
    """
    if path.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"{path}: a report is an HTML page; write a name such as {path.with_suffix('.html').name!r}")
    try:
        if path.exists() and not (path.is_file() and _is_replaceable(path)):
            raise InputError(f"{path}: is not a report of Ensue, so it is not overwritten; write another name")
        path.write_text(page_html(page, path.stem), "utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def _is_replaceable(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) in {_BEGINNING.encode(), b""}


def page_html(page: Page, title: str) -> str:
    """The page; all text of users is escaped."""
    parts = [
        f'{_BEGINNING}\n<head><meta charset="utf-8"><title>{_text(title)}</title><style>{_STYLE}</style></head><body>',
        f"<h1>{_text(title)}</h1><p>{_text(page.summary)}</p><pre>{_text(page.account)}</pre>",
        *(f"<p>{_text(warning)}</p>" for warning in page.warnings),
        *(part for query, table in page.matches.items() for part in _matches(page, query, table)),
        *_tables(page.tables),
        f"<h2>Step by step</h2><pre>{_text(page.steps)}</pre>",
        "<h2>Queries</h2>",
        *(part for query in page.queries for part in _query(query)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _matches(page: Page, query: str, table: pa.Table) -> Iterator[str]:
    """The picture of a query's matches, and their table."""
    yield f"<h2>Matches of {_text(query)}</h2>"
    found = [match for match in page.objects if _title(match) == query]
    picture = matches_svg(found)
    if picture is not None:
        first = f"The first {MOST} of {len(found)}. " if len(found) > MOST else ""
        yield f"{_image(picture)}<p>{first}A dot is an event, the bar the moment of the answer.</p>"
    yield from html_tables({"": table}, ROWS) if found else ["<p>none</p>"]


def _title(match: Plain) -> str:
    return "/".join(word for word in (match["query"], match["instance"]) if word)


def _tables(tables: Mapping[str, pa.Table]) -> Iterator[str]:
    for title, table in tables.items():
        if title != "matches" and len(table):
            yield f"<h2>{_text(title.capitalize())}</h2>"
            yield from html_tables({"": table}, ROWS)


def _query(query: QueryPlan) -> Iterator[str]:
    yield f"<details><summary>{_text(query.title)}</summary>"
    try:
        yield _image(automaton_svg(graph_of(query)))
    except InputError as error:  # too many transitions
        yield f"<p>{_text(str(error))}</p>"
    yield f"<pre>{_text(querylang.describe(query))}</pre></details>"


def _image(svg: str) -> str:
    """A picture of its own: its styles and names stay inside."""
    return f'<img alt="" src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}">'


def _text(text: str) -> str:
    return escape(printable(text))
