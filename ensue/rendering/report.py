"""A replay as one HTML page that needs nothing else: account, matches, discards, steps, queries."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa

import querylang
from ensue.rendering.explanation import automaton_svg
from ensue.rendering.replay_table import key_text
from ensue.rendering.text_table import TimeFormat, shortened, text_table
from querylang.dataclass import dataclass
from querylang.errors import InputError, listed
from querylang.plan.describe import graph_of
from querylang.plan.model import QueryPlan
from querylang.printable import json_text, printable
from querylang.system_errors import refused
from runtime.results.for_users import Plain, column_cells, plain_value
from runtime.timestamps import parse_time

PAGE_ROWS = 500
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
class Folded:
    """An explanation below a title, as a report folds it."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Explained:
    """Why the matches of a replay came, and why records were discarded, with bounds.

    matches: by title of a query, the first of its matches
    discarded: the first discarded records
    remark: why there are none; empty = there may be
    """

    matches: Mapping[str, Sequence[Folded]]
    discarded: Sequence[Folded]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a report shows.

    matches: by title of a query: its matches, flat
    objects: all matches as JSON objects
    tables: outputs, discards and others, by name
    steps: the replay as a table for people
    explained: why the first matches came, and why the first records were discarded
    """

    summary: str
    account: str
    warnings: Sequence[str]
    matches: Mapping[str, pa.Table]
    objects: Sequence[Plain]
    tables: Mapping[str, pa.Table]
    steps: str
    queries: Sequence[QueryPlan]
    explained: Explained


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
        raise refused(error, f"{path}: cannot be written") from error
    return path


def _is_replaceable(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) in {_BEGINNING.encode(), b""}


def page_html(page: Page, title: str) -> str:
    """The page; all text of users is escaped."""
    parts = [
        f'{_BEGINNING}\n<head><meta charset="utf-8"><title>{_html(title)}</title><style>{_STYLE}</style></head><body>',
        f"<h1>{_html(title)}</h1><p>{_html(page.summary)}</p><pre>{_html(page.account)}</pre>",
        *(f"<p>{_html(warning)}</p>" for warning in page.warnings),
        *(part for query, table in page.matches.items() for part in _matches(page, query, table)),
        *_tables(page),
        f"<h2>Step by step</h2><pre>{_html(page.steps)}</pre>",
        "<h2>Queries</h2>",
        *(part for query in page.queries for part in _query(query)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _matches(page: Page, query: str, table: pa.Table) -> Iterator[str]:
    """The picture of a query's matches, and their table."""
    yield f"<h2>Matches of {_html(query)}</h2>"
    found = [match for match in page.objects if _title(match) == query]
    picture = matches_svg(found)
    if picture is not None:
        first = f"The first {MOST} of {len(found)}. " if len(found) > MOST else ""
        yield f"{_image(picture)}<p>{first}A dot is an event, the bar the moment of the answer.</p>"
    yield from html_tables({"": table}, PAGE_ROWS) if found else ["<p>none</p>"]
    if found:
        yield from _why(page, page.explained.matches.get(query, ()), len(found), "Why they came")


def _title(match: Plain) -> str:
    return "/".join(word for word in (match["query"], match["instance"]) if word)


def _tables(page: Page) -> Iterator[str]:
    for title, table in page.tables.items():
        if title != "matches" and len(table):
            yield f"<h2>{_html(title.capitalize())}</h2>"
            yield from html_tables({"": table}, PAGE_ROWS)
            if title == "discarded":
                yield from _why(page, page.explained.discarded, len(table), "Why they were discarded")


def _why(page: Page, folded: Sequence[Folded], count: int, title: str) -> Iterator[str]:
    """The explanations of the first of so many, each folded."""
    if page.explained.remark:
        yield f"<p>{_html(title)}: {_html(page.explained.remark)}</p>"
        return
    yield f"<p>{_html(title)}:</p>"
    for item in folded:
        yield f"<details><summary>{_html(item.title)}</summary><pre>{_html(item.text)}</pre></details>"
    if count > len(folded):
        yield f"<p>and {count - len(folded)} more: <code>ensue why --match ID</code> or <code>--row N</code></p>"


def _query(query: QueryPlan) -> Iterator[str]:
    yield f"<details><summary>{_html(query.title)}</summary>"
    try:
        yield _image(automaton_svg(graph_of(query)))
    except InputError as error:  # too many transitions
        yield f"<p>{_html(str(error))}</p>"
    yield f"<pre>{_html(querylang.describe(query))}</pre></details>"


def _image(svg: str) -> str:
    """A picture of its own: its styles and names stay inside."""
    return f'<img alt="" src="data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}">'


def _html(text: str) -> str:
    return escape(printable(text))


# The first rows of results, for people: as text, and as HTML for notebooks.

FIRST_ROWS = 10
"""So many rows of a table are shown."""

WIDEST_CELL = 40
"""Longer text is cut."""

_LEFT_OUT = {"match_id", "definitive", "emitted", "waited", "partition", "metadata"}
_OF_EVENTS = (".event", ".source_time", ".arrival")
"""Columns that are not shown: a line has to fit on a screen."""

_RIGHT = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def without_repeated_keys(matches: pa.Table, keys: Sequence[str]) -> pa.Table:
    """A table of matches without the fields of events that only repeat a key: each key once."""
    first, names = matches.slice(0, FIRST_ROWS), frozenset(matches.column_names)
    own = {f".{key}": first.column(key) for key in keys if key in names}
    repeated = {
        name
        for name in matches.column_names
        if "." in name and (key := own.get(name[name.index(".") :])) is not None and first.column(name).equals(key)
    }
    return matches.drop_columns(sorted(repeated))


def first_rows_text(summary: str, tables: Mapping[str, pa.Table], account: str) -> str:
    """The summary, the first rows of each table that has rows, the account."""
    parts = [summary, *_texts(tables), account]
    return "\n\n".join(parts)


def first_rows_html(summary: str, tables: Mapping[str, pa.Table], account: str) -> str:
    """The same as HTML; all text of users is escaped."""
    parts = [
        f"<p>{escape(printable(summary))}</p>",
        *html_tables(tables, FIRST_ROWS),
        f"<pre>{escape(printable(account))}</pre>",
    ]
    return "\n".join(parts)


def _texts(tables: Mapping[str, pa.Table]) -> Iterator[str]:
    for title, table in _with_rows(tables):
        right = frozenset(field.name for field in table.schema if _is_right(field.type))
        yield f"{title}:\n{text_table(table.column_names, _rows(table, FIRST_ROWS), right)}{_more(table, FIRST_ROWS)}"


def html_tables(tables: Mapping[str, pa.Table], most: int) -> Iterator[str]:
    """Each table that has rows, below its title; `most`: so many rows are shown."""
    for title, table in _with_rows(tables):
        head = _html_row("th", table.column_names, [False] * table.num_columns)
        right = [_is_right(field.type) for field in table.schema]
        body = "".join(_html_row("td", row, right) for row in _rows(table, most))
        more = f"<p>{escape(_more(table, most).strip())}</p>" if _more(table, most) else ""
        heading = f"<p><b>{escape(title)}</b></p>" if title else ""
        yield f"{heading}<table><thead>{head}</thead><tbody>{body}</tbody></table>{more}"


def _html_row(tag: str, texts: Sequence[str], right: Sequence[bool]) -> str:
    style = ['style="text-align:right"' if is_right else 'style="text-align:left"' for is_right in right]
    texts = [escape(printable(text)) for text in texts]
    return f"<tr>{''.join(f'<{tag} {own}>{text}</{tag}>' for own, text in zip(style, texts, strict=True))}</tr>"


def _with_rows(tables: Mapping[str, pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """The tables that have rows, with the columns that are shown."""
    for title, table in tables.items():
        if len(table):
            yield title, table.select([name for name in table.column_names if _is_shown(name, table.column(name))])


def _is_shown(name: str, column: pa.ChunkedArray) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_OF_EVENTS) and _has_values(column)


def _has_values(column: pa.ChunkedArray) -> bool:
    if column.null_count == len(column):
        return False
    return not (pa.types.is_string(column.type) and set(column.unique().to_pylist()) <= {"", None})


def _more(table: pa.Table, most: int) -> str:
    return f"\n… {len(table) - most} more" if len(table) > most else ""


def _is_right(kind: pa.DataType) -> bool:
    return any(is_number(kind) for is_number in _RIGHT)


def _rows(table: pa.Table, most: int) -> list[list[str]]:
    """The cells of the first rows as text."""
    columns = [[_cell(cell) for cell in _cells(column)] for column in table.slice(0, most).columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if text is None else _short_time(text.removesuffix("Z")) for text in _moments(column)]
    if pa.types.is_list(column.type) and pa.types.is_timestamp(column.type.value_type):
        whole = column.combine_chunks()
        return column_cells(pa.ListArray.from_arrays(whole.offsets, pa.array(_cells(pa.chunked_array([whole.values])))))
    return column_cells(column)


def _short_time(text: str) -> str:
    """Without zeros at the end of a fraction of a second."""
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _moments(column: pa.ChunkedArray) -> list[str | None]:
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _cell(cell: Any) -> str:
    if cell is None:
        return ""
    text = cell if isinstance(cell, str) else json_text(plain_value(cell))
    return shortened(text.strip('"') if not isinstance(cell, str | dict | list) else text, WIDEST_CELL)


# Draw matches as SVG: a line per match, from its first event to the moment of its answer.
#
# All lines have the same scale and begin at the left, so that slow matches stand out.

MOST = 40
"""So many matches are drawn."""

WIDTH, LEFT, RIGHT, ROW, TOP = 960, 300, 130, 26, 34
NEAR = 46
"""Closer names would be written over one another."""

STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2933}.when{fill:#66737f}.line{stroke:#9fb1c1;stroke-width:2}"
    ".wait{stroke:#c4ccd4;stroke-dasharray:3 3}.dot{fill:#d7263d}.answer{stroke:#1f2933;stroke-width:2}"
)

_LENGTHS = (
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "µs"),
)


@dataclass(frozen=True, slots=True)
class _Line:
    """One match.

    label: its key
    moments: by event, in order of time: its name and time, µs
    answer: when the answer was given, µs
    """

    label: str
    moments: Sequence[tuple[str, int]]
    answer: int

    @property
    def start(self) -> int:
        return self.moments[0][1]

    @property
    def end(self) -> int:
        return max(self.answer, self.moments[-1][1])


def matches_svg(matches: Sequence[Plain]) -> str | None:
    """The picture of the first matches of a query; None = they have no events as members."""
    lines = [line for match in matches[:MOST] if (line := _line(match)) is not None]
    if not lines:
        return None
    longest = max(1, *(line.end - line.start for line in lines))
    height = TOP + ROW * len(lines) + ROW
    format_ = TimeFormat.of([line.start for line in lines])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{STYLE}</style>",
        f'<text class="when" x="{LEFT}" y="{TOP - 16}">first event</text>',
        f'<text class="when" x="{WIDTH - RIGHT}" y="{TOP - 16}" text-anchor="end">{_length(longest)} later</text>',
        *(part for number, line in enumerate(lines) for part in _drawn(line, TOP + ROW * number, longest, format_)),
        "</svg>",
    ]
    return "\n".join(parts)


def _line(match: Plain) -> _Line | None:
    members = [
        (name, one) for name, own in match["members"].items() for one in (own if isinstance(own, list) else [own])
    ]
    found = [(name, parse_time(one["time"])) for name, one in members if one is not None]
    if not found:
        return None
    found.sort(key=lambda item: item[1])
    return _Line(_label(match), found, parse_time(match["emitted"]))


def _label(match: Plain) -> str:
    key: dict[str, Any] = match["key"]
    return key_text(key, is_named=len(key) > 1)


def _drawn(line: _Line, y: float, longest: int, format_: TimeFormat) -> Iterator[str]:
    def place(moment: int) -> float:
        return LEFT + (moment - line.start) / longest * (WIDTH - LEFT - RIGHT)

    label = escape(printable(shortened(line.label, 24)))
    yield f'<text x="8" y="{y + 4}">{label}</text>'
    yield f'<text class="when" x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{format_.text(line.start)}</text>'
    last = place(line.moments[-1][1])
    yield f'<path class="line" d="M{LEFT} {y}H{last:.1f}"/>'
    if line.answer > line.moments[-1][1]:
        yield f'<path class="line wait" d="M{last:.1f} {y}H{place(line.answer):.1f}"/>'
    yield f'<path class="answer" d="M{place(line.answer):.1f} {y - 6}v12"/>'
    written = float("-inf")
    for name, moment in line.moments:
        x = place(moment)
        yield f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>'
        if x - written >= NEAR:
            written = x
            yield f'<text x="{x + 6:.1f}" y="{y - 6}">{escape(printable(shortened(name, 12)))}</text>'
    yield f'<text class="when" x="{place(line.end) + 10:.1f}" y="{y + 4}">{_length(line.end - line.start)}</text>'


def _length(micros: int) -> str:
    """A length of time in the unit that fits: `1.5 min`."""
    size, unit = next(((size, unit) for size, unit in _LENGTHS if micros >= size), (1, "s"))
    return f"{micros / size:.4g} {unit}"


# Matches over a field, with matplotlib, which need not be installed.


def plot_matches(matches: pa.Table, field: str, axes: Any) -> Any:
    """Draw each match as a line through its events: their times, and the values of a field.

    matches: flat
    field: the name of a number that at least one event of the pattern has
    axes: what is drawn on, as matplotlib has it; None = new ones
    Raises InputError for a field that is not a number of an event, and without matplotlib.
    """
    all_names = frozenset(matches.column_names)
    names = [name.removesuffix(".time") for name in matches.column_names if name.endswith(".time")]
    columns = {name: matches.column(f"{name}.{field}") for name in names if f"{name}.{field}" in all_names}
    numbers = {name: column for name, column in columns.items() if _is_right(_type_of_one(column.type))}
    if not numbers:
        problem = "is not a number" if columns else "is not a field of an event of the matches"
        raise InputError(f"`plot`: {field!r} {problem}; numbers are {listed(_number_fields(matches, names)) or 'none'}")
    drawn = _new_axes() if axes is None else axes
    times = {name: matches.column(f"{name}.time") for name in numbers}
    for row in range(len(matches)):
        events = sorted(
            event for name in numbers for event in _events(times[name][row].as_py(), numbers[name][row].as_py())
        )
        drawn.plot([moment for moment, _value in events], [value for _moment, value in events], marker="o")
    drawn.set_xlabel("time (UTC)")
    drawn.set_ylabel(field)
    return drawn


def _number_fields(matches: pa.Table, names: Sequence[str]) -> list[str]:
    """The fields of events that are numbers, without the number of their row."""
    paths = [field.name.partition(".") for field in matches.schema if _is_right(_type_of_one(field.type))]
    return list(dict.fromkeys(path for name, _, path in paths if name in names and path != "row"))


def _type_of_one(type_: pa.DataType) -> pa.DataType:
    """Of a run, which has a list of values, the type of one."""
    return type_.value_type if pa.types.is_list(type_) else type_


def _events(times: Any, values: Any) -> list[tuple[datetime, float]]:
    """The events of a name, or of a run, that have a value."""
    pairs = zip(times, values, strict=True) if isinstance(times, list) else [(times, values)]
    return [(moment, float(value)) for moment, value in pairs if moment is not None and value is not None]


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError("matplotlib is not installed: `pip install matplotlib`") from None
    return pyplot.subplots()[1]
