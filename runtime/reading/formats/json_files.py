"""JSON files: one object per line, or one list of objects."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from querylang.errors import InputError
from runtime.reading.formats.mappings import NotARow, of_mappings, of_rows
from runtime.reading.formats.raw_table import RawTable, one_line


def read_json(path: Path, name: str, _few_values: Collection[str]) -> Iterator[RawTable]:
    """The whole file as one table."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] == b"[":
        try:
            rows = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: is not JSON: {one_line(error)}") from error
        yield of_mappings(rows, name)
    else:
        yield _lines_at_once(data, name) or _line_by_line(data, name)


def _lines_at_once(data: bytes, name: str) -> RawTable | None:
    """All lines by Arrow's reader.

    None = a line is broken, or Arrow's types would change a value.
    """
    try:
        first = json.loads(data.lstrip().partition(b"\n")[0])
        text = pa.schema([(key, pa.string()) for key, value in first.items() if isinstance(value, str)])
        options = pa.json.ParseOptions(explicit_schema=text)
        columns = pa.json.read_json(pa.BufferReader(data), parse_options=options)
    except (ValueError, AttributeError, RecursionError):
        return None
    if any(pa.types.is_timestamp(column.type) for column in columns.columns):
        return None
    numbers = np.arange(1, len(columns) + 1)
    places = cache(lambda: _line_places(data))
    return RawTable(name, columns, numbers, lambda number: places()[number - 1])


def _line_by_line(data: bytes, name: str) -> RawTable:
    """Each line by itself, so that a broken one makes only itself unreadable."""
    places = _line_places(data)
    rows: list[Any] = []
    for _, line in places:
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            rows.append(NotARow(f"not JSON: {_problem(error)}"))
    return of_rows(rows, name, lambda number: places[number - 1])


def _line_places(data: bytes) -> list[tuple[str, str]]:
    """Place and text of each line that is not blank."""
    lines = enumerate(data.decode("utf-8", "replace").split("\n"), 1)
    return [(f"line {number}", line.strip()) for number, line in lines if line.strip()]


def _problem(error: Exception) -> str:
    """What is wrong with one line, without its place in the file."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (character {error.pos + 1})"
    return "nested too deeply" if isinstance(error, RecursionError) else one_line(error)
