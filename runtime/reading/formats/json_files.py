"""JSON files: one object per line, or one list of objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.errors import InputError
from runtime.arrow_types import has_column
from runtime.interpreter.written_values import (
    DEEPEST,
    JsonError,
    depth,
    has_many_brackets,
    is_in_string,
    levels,
    parse_json,
)
from runtime.reading.formats.asked import MOST_NAMES, Asked, shortened
from runtime.reading.formats.blocks import Blocks
from runtime.reading.formats.json_lines import parse_lines
from runtime.reading.formats.mappings import NotARow, of_mappings, of_rows
from runtime.reading.formats.raw_table import RawTable, joined

_TOGETHER = 64 << 20
"""A file of so many bytes is one part."""

_ROWS = 1 << 19
"""Least rows of a part of a larger file."""


def read_json(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    """The file in parts; a list as a whole."""
    with path.open("rb") as file:
        blocks = Blocks(file)
        while not blocks.waiting.strip() and not blocks.is_end:
            blocks.take(len(blocks.waiting))
            blocks.fill()
        if blocks.waiting.lstrip()[:1] == b"[":
            yield of_mappings(_list(path, blocks.waiting + file.read(), asked), name, asked)
        else:
            yield from _grouped(_Lines(name, blocks, asked), path.stat().st_size)


def _grouped(parts: Iterable[RawTable], size: int) -> Iterator[RawTable]:
    """Parts joined where they are small: one that lacks a name or has another type is rare then.

    A name that a part lacks and an earlier one has is a column of nulls.
    """
    names: dict[str, None] = {}
    waiting: list[RawTable] = []
    for part in parts:
        waiting.append(part)
        if size > _TOGETHER and sum(len(item) for item in waiting) >= _ROWS:
            yield _completed(joined(waiting), names)
            waiting = []
    if waiting:
        yield _completed(joined(waiting), names)


def _completed(part: RawTable, names: dict[str, None]) -> RawTable:
    columns = part.columns
    for name in names:
        if not has_column(columns, name):
            columns = columns.append_column(name, pa.nulls(len(columns)))
    if len(names) <= MOST_NAMES:
        names.update(dict.fromkeys(columns.column_names))
    return replace(part, columns=columns)


def _list(path: Path, data: bytes, asked: Asked) -> list[Any]:
    """The elements of a list; those that are too long or nested too deeply are not rows."""
    try:
        if len(data) <= asked.max_record and not has_many_brackets(data):
            rows = parse_json(data)
        else:
            rows = [_element(part, asked) for part in _elements(data.strip())]
    except JsonError as error:
        raise InputError(f"{path}: is not JSON: {error}") from error
    assert isinstance(rows, list), "it begins with a bracket"
    return rows


def _elements(data: bytes) -> Iterator[bytes]:
    """The texts of a list's elements. Raises JsonError."""
    open_behind = levels(data)
    if open_behind[-1] != 0 or (open_behind[:-1] <= 0).any():
        raise JsonError("the list does not end where the file ends")
    content = np.frombuffer(data, np.uint8)
    commas = np.flatnonzero((content == ord(",")) & (open_behind == 1) & ~is_in_string(content)).tolist()
    if not commas and not data[1:-1].strip():
        return
    for before, behind in pairwise([0, *commas, len(data) - 1]):
        yield data[before + 1 : behind]


def _element(text: bytes, asked: Asked) -> Any:
    if len(text) > asked.max_record:
        reason = asked.too_long
    elif has_many_brackets(text) and depth(text) > DEEPEST:
        reason = f"nested more than {DEEPEST} deep"
    else:
        return parse_json(text)
    return NotARow(reason, text[: 1 << 16].decode("utf-8", "replace").strip())


class _Lines:
    """The tables of a file with an object per line.

    number: of the next line that is not blank, from 1
    """

    def __init__(self, name: str, blocks: Blocks, asked: Asked) -> None:
        self.name = name
        self.blocks = blocks
        self.asked = asked
        self.number = 1

    def __iter__(self) -> Iterator[RawTable]:
        blocks, is_empty = self.blocks, True
        while blocks.waiting or not blocks.is_end:
            size = len(blocks.waiting) if blocks.is_end else blocks.waiting.rfind(b"\n") + 1
            if size or len(blocks.waiting) > self.asked.max_record:
                yield self._part(size) if size else self._long_line()
                is_empty = False
            else:
                blocks.fill()
        if is_empty:
            yield of_mappings([], self.name, self.asked)

    def _part(self, size: int) -> RawTable:
        """The first bytes, which are whole lines."""
        first_line, first = self.blocks.line, self.number
        data = self.blocks.take(size)
        places = cache(lambda: _line_places(data, first_line))
        if len(data) <= self.asked.max_record and is_text(data) and not has_deep_line(data):
            columns = parse_lines(data)
            if columns is not None:
                self.number += len(columns)
                return RawTable(
                    self.name, columns, np.arange(first, self.number), lambda number: places()[number - first]
                )
        rows = [row_of(line, self.asked) for line in data.split(b"\n") if line.strip()]
        self.number += len(rows)
        return of_rows(rows, self.name, lambda number: places()[number - first], self.asked, first)

    def _long_line(self) -> RawTable:
        """Skip a line that is longer than the limit."""
        blocks, number = self.blocks, self.number
        place = f"line {blocks.line}", shortened(blocks.waiting[: 1 << 16].decode("utf-8", "replace"))
        blocks.skip_line()
        self.number += 1
        return of_rows([NotARow(self.asked.too_long)], self.name, lambda _: place, self.asked, number)


def row_of(line: bytes, asked: Asked) -> Any:
    """One object by itself, so that a broken one makes only itself unreadable."""
    if len(line) > asked.max_record:
        return NotARow(asked.too_long)
    try:
        return parse_json(line)
    except JsonError as error:
        return NotARow(f"not JSON: {error}")


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8, which Arrow's reader does not look at."""
    try:
        return data.isascii() or data.decode() is not None
    except UnicodeDecodeError:
        return False


def has_deep_line(data: bytes) -> bool:
    """Whether a line might be nested too deeply; usual ones only begin with a bracket."""
    inner = data.count(b"[") + data.count(b"{") - data.count(b"\n{")
    if inner <= DEEPEST:
        return False
    content = np.frombuffer(data, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(content[:-1] == ord("\n")) + 1])
    opening = (content & 0xDF) == ord("[")
    return bool(np.add.reduceat(opening, starts, dtype=np.int64).max() > DEEPEST)


def _line_places(data: bytes, first: int) -> list[tuple[str, str]]:
    """Place and beginning of each line that is not blank; `first`: number of the first line."""
    lines = enumerate(data.split(b"\n"), first)
    return [
        (f"line {number}", shortened(line.strip().decode("utf-8", "replace"))) for number, line in lines if line.strip()
    ]
