"""JSON messages as a table: an object each. Messages are read together as far as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from runtime.reading.formats.asked import Asked
from runtime.reading.formats.json_files import has_deep_line, is_text, row_of
from runtime.reading.formats.json_lines import parse_lines
from runtime.reading.formats.mappings import NotARow, of_rows
from runtime.reading.formats.raw_table import Describe, RawTable, joined

_FEW = 32
"""So few messages are read one by one, if they cannot be read together."""


def decode_json(values: Sequence[bytes | None], name: str, describe: Describe, asked: Asked) -> RawTable:
    """The messages, numbered from 0; what cannot be read makes only itself unreadable."""
    return joined(list(_parts(values, 0, name, describe, asked)))


def _parts(
    values: Sequence[bytes | None], first: int, name: str, describe: Describe, asked: Asked
) -> Iterator[RawTable]:
    """Tables of these messages; `first`: the number of the first one."""
    columns = _together(values, asked)
    if columns is not None:
        yield RawTable(name, _wanted(columns, asked), np.arange(first, first + len(columns)), describe)
    elif len(values) <= _FEW:
        rows = of_rows([_row(value, asked) for value in values], name, describe, asked, first)
        yield replace(rows, columns=_wanted(rows.columns, asked))
    else:
        middle = len(values) // 2
        yield from _parts(values[:middle], first, name, describe, asked)
        yield from _parts(values[middle:], first + middle, name, describe, asked)


def _wanted(columns: pa.Table, asked: Asked) -> pa.Table:
    """The columns that are needed: a hostile topic may have other names in each message."""
    if asked.wanted is None:
        return columns
    names = [name for name in columns.column_names if name.casefold() in asked.wanted]
    return columns.select(names) if names else pa.table({"": pa.nulls(len(columns))})


def _together(values: Sequence[bytes | None], asked: Asked) -> pa.Table | None:
    """All messages as columns; None = some must be looked at one by one."""
    present = [value for value in values if value]
    if len(present) < len(values) or not values or max(map(len, present)) > asked.max_record:
        return None
    data = b"\n".join(present)
    is_line_each = data.count(b"\n") == len(values) - 1
    if not is_line_each or not is_text(data) or has_deep_line(data):
        return None
    columns = parse_lines(data)
    return columns if columns is not None and len(columns) == len(values) else None


def _row(value: bytes | None, asked: Asked) -> Any:
    if value is None:
        return NotARow("a message without a value")
    if not value.strip():
        return NotARow("an empty message")
    return row_of(value, asked)
