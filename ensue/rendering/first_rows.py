"""The first rows of results, for people: as text, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import pyarrow as pa

from ensue.rendering.text_table import shortened, text_table
from querylang.printable import json_text, printable
from runtime.results.for_users import cells, plain_value

ROWS = 10
"""So many rows of a table are shown."""

WIDEST_CELL = 40
"""Longer text is cut."""

_LEFT_OUT = {"match_id", "definitive", "emitted", "waited", "partition"}
_OF_EVENTS = (".event", ".source_time", ".arrival")
"""Columns that are not shown: a line has to fit on a screen."""

_RIGHT = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def first_rows_text(summary: str, tables: Mapping[str, pa.Table], account: str) -> str:
    """The summary, the first rows of each table that has rows, the account."""
    parts = [summary, *_texts(tables), account]
    return "\n\n".join(parts)


def first_rows_html(summary: str, tables: Mapping[str, pa.Table], account: str) -> str:
    """The same as HTML; all text of users is escaped."""
    parts = [
        f"<p>{escape(printable(summary))}</p>",
        *html_tables(tables, ROWS),
        f"<pre>{escape(printable(account))}</pre>",
    ]
    return "\n".join(parts)


def _texts(tables: Mapping[str, pa.Table]) -> Iterator[str]:
    for title, table in _with_rows(tables):
        right = frozenset(field.name for field in table.schema if _is_right(field.type))
        yield f"{title}:\n{text_table(table.column_names, _rows(table, ROWS), right)}{_more(table, ROWS)}"


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
    columns = [[_text(cell) for cell in _cells(column)] for column in table.slice(0, most).columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if text is None else text.removesuffix("Z").removesuffix(".000000") for text in _moments(column)]
    if pa.types.is_list(column.type) and pa.types.is_timestamp(column.type.value_type):
        whole = column.combine_chunks()
        return cells(pa.ListArray.from_arrays(whole.offsets, pa.array(_cells(pa.chunked_array([whole.values])))))
    return cells(column)


def _moments(column: pa.ChunkedArray) -> list[str | None]:
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    text = cell if isinstance(cell, str) else json_text(plain_value(cell))
    return shortened(text.strip('"') if not isinstance(cell, str | dict | list) else text, WIDEST_CELL)
