"""JSON: files with one object per line or one list of objects, and messages that are objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from querylang.errors import InputError
from runtime.column_types import has_column
from runtime.file_forms import MOST_NAMES, Asked, shortened
from runtime.interpreter import written_values
from runtime.reading.formats.blocks import Blocks
from runtime.reading.formats.python_rows import NotARow, of_mappings, of_rows
from runtime.reading.formats.raw_table import Describe, RawTable, joined_parts

# Lines of JSON objects as columns, by Arrow's reader.
#
# Arrow's reader makes a cell for every line and name. A hostile text has new names in each line. So
# the names are learned from few lines at a time, and the others are read with what is known.
#
# Arrow's reader ends the process where a block begins with `null`, and where it infers a list or an
# object for a name that has another type in an earlier block. It makes lists that point behind
# their values where a list begins with `null`. So it is given nothing but lines that are objects,
# infers within one block, and its columns are validated: with a known type it reads such lists as
# they are.

_FIRST_BYTES = 1 << 15
"""From how many bytes names and types are learned at once."""

_LINE_END, _RETURN, _OPENING, _CLOSING = b"\n\r{}"

_BLOCK = 1 << 20
"""How many bytes Arrow reads at a time, if types are known."""

_SHORT = 1 << 18
"""Bytes for which other threads cost more than they help."""

_CELLS_PER_BYTE = 4
"""Most cells for each byte of text; an honest table has fewer than one."""


def parse_lines(data: bytes) -> pa.Table | None:
    """The objects of all lines, which are not nested too deeply.

    None = a line is broken, or Arrow's types would change a value, or there are too many names.
    """
    try:
        return _parsed(data)
    except (ValueError, AttributeError, RecursionError, pa.ArrowException):
        return None


def _parsed(data: bytes) -> pa.Table | None:
    view = memoryview(data)
    known: pa.Schema | None = None
    parts: list[pa.Table] = []
    at, size = 0, _FIRST_BYTES
    while at < len(data):
        end = data.find(b"\n", at + size) + 1 or len(data)
        chunk = view[at:end]
        lines = _objects(chunk)
        if lines is None:
            return None
        part = None
        if known is not None:
            if _are_too_many(known, lines, len(chunk)):
                return None
            part = _with_known_names(chunk, known)
            if part is None and size > _FIRST_BYTES:
                size = _FIRST_BYTES
                continue
            size *= 8
        if part is None:
            part = _with_new_names(chunk)
            if part is None or _are_too_many(part.schema, lines, len(chunk)):
                return None
            schemas = [part.schema] if known is None else [known, part.schema]
            known = pa.unify_schemas(schemas, promote_options="permissive")
        if not part.columns or any(map(_may_lack_digits, part.columns)):
            return None  # a table without columns has no rows either
        if len(part) != lines:
            return None
        parts.append(part)
        at = end
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def _may_lack_digits(column: pa.ChunkedArray | pa.Array) -> bool:
    """Whether integers may have become other numbers: beside fractions, or beyond 64 bits."""
    kind = column.type
    if pa.types.is_float64(kind):
        return bool(pc.any(pc.greater_equal(pc.abs(column), 2.0**53)).as_py())
    if pa.types.is_list(kind):
        return _may_lack_digits(pc.list_flatten(column))
    return pa.types.is_struct(kind) and any(map(_may_lack_digits, column.flatten()))


def _objects(chunk: memoryview) -> int | None:
    """The number of lines, if each one begins and ends as an object does; blank ones do not count.

    Between `}` and `{` an object has a comma. So where Arrow finds as many objects, each is a line.
    """
    content = np.frombuffer(chunk, np.uint8)
    ends = np.flatnonzero(content == _LINE_END)
    if len(ends) == 0 or ends[-1] < len(content) - 1:
        ends = np.append(ends, len(content))
    firsts = content[np.append(0, ends[:-1] + 1)]  # of a blank line it is the line's end
    lasts = content[ends - 1]
    returns = np.count_nonzero(content == _RETURN)  # Arrow begins blocks behind them, too
    if ends[0] > 1 and (lasts == _RETURN).all():
        lasts = content[ends - 2]
        returns -= len(ends)
    if returns == 0 and (firsts == _OPENING).all() and (lasts == _CLOSING).all():
        return len(ends)
    lines = [line for line in map(bytes.strip, bytes(chunk).split(b"\n")) if line]
    looks_right = all(line[:1] == b"{" and line[-1:] == b"}" and b"\r" not in line for line in lines)
    return len(lines) if looks_right else None


def _with_known_names(chunk: memoryview, known: pa.Schema) -> pa.Table | None:
    """The lines as objects of these names and types; None = some are not."""
    try:
        return _read(chunk, known, "error")
    except pa.ArrowInvalid:
        return None


def _with_new_names(chunk: memoryview) -> pa.Table | None:
    """The lines with the types that fit them; text that looks like a time remains text."""
    first = json.loads(bytes(chunk).lstrip().partition(b"\n")[0])
    text = pa.schema([(key, pa.string()) for key, value in first.items() if isinstance(value, str)])
    found = _read(chunk, text, "infer")
    plain = pa.schema([field.with_type(_without_times(field.type)) for field in found.schema])
    read = found if plain == found.schema and _is_sound(found) else _read(chunk, plain, "error")
    return read.select(list(dict.fromkeys([*first, *read.column_names])))  # Arrow puts the text first


def _read(chunk: memoryview, schema: pa.Schema, others: Literal["infer", "error"]) -> pa.Table:
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    block = len(chunk) + 1 if others == "infer" else _BLOCK
    reading = pa.json.ReadOptions(block_size=block, use_threads=len(chunk) > _SHORT)
    table = pa.json.read_json(pa.BufferReader(chunk), parse_options=options, read_options=reading)
    if others == "error":
        table.validate()
    return table


def _is_sound(table: pa.Table) -> bool:
    try:
        table.validate()
    except pa.ArrowInvalid:
        return False
    return True


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return kind


def _are_too_many(schema: pa.Schema, lines: int, size: int) -> bool:
    """Whether there are too many names, or too many cells for so little text."""
    names = sum(_leaves(field.type) for field in schema)
    return names > MOST_NAMES or names * lines > _CELLS_PER_BYTE * size + 100_000


def _leaves(kind: pa.DataType) -> int:
    return 1 + sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))


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
            yield _completed(joined_parts(waiting), names)
            waiting = []
    if waiting:
        yield _completed(joined_parts(waiting), names)


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
        if len(data) <= asked.max_record and not written_values.has_many_brackets(data):
            rows = written_values.parse_json(data)
        else:
            rows = [_element(part, asked) for part in _elements(data.strip())]
    except written_values.JsonError as error:
        raise InputError(f"{path}: is not JSON: {error}") from error
    assert isinstance(rows, list), "it begins with a bracket"
    return rows


def _elements(data: bytes) -> Iterator[bytes]:
    """The texts of a list's elements. Raises JsonError."""
    open_behind = written_values.levels(data)
    if open_behind[-1] != 0 or (open_behind[:-1] <= 0).any():
        raise written_values.JsonError("the list does not end where the file ends")
    content = np.frombuffer(data, np.uint8)
    commas = np.flatnonzero((content == ord(",")) & (open_behind == 1) & ~written_values.is_in_string(content)).tolist()
    if not commas and not data[1:-1].strip():
        return
    for before, behind in pairwise([0, *commas, len(data) - 1]):
        yield data[before + 1 : behind]


def _element(text: bytes, asked: Asked) -> Any:
    if len(text) > asked.max_record:
        reason = asked.too_long
    elif written_values.has_many_brackets(text) and written_values.depth(text) > written_values.DEEPEST:
        reason = f"nested more than {written_values.DEEPEST} deep"
    else:
        return written_values.parse_json(text)
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
        return written_values.parse_json(line)
    except written_values.JsonError as error:
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
    if inner <= written_values.DEEPEST:
        return False
    content = np.frombuffer(data, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(content[:-1] == ord("\n")) + 1])
    opening = (content & 0xDF) == ord("[")
    return bool(np.add.reduceat(opening, starts, dtype=np.int64).max() > written_values.DEEPEST)


def _line_places(data: bytes, first: int) -> list[tuple[str, str]]:
    """Place and beginning of each line that is not blank; `first`: number of the first line."""
    lines = enumerate(data.split(b"\n"), first)
    return [
        (f"line {number}", shortened(line.strip().decode("utf-8", "replace"))) for number, line in lines if line.strip()
    ]


# JSON messages as a table: an object each. Messages are read together as far as possible.

_FEW_MESSAGES = 32
"""So few messages are read one by one, if they cannot be read together."""

_FEW_BYTES = 1 << 13
"""Messages of so few bytes are read one by one at once: Arrow would hand them to another thread."""


def decode_json(values: Sequence[bytes | None], name: str, describe: Describe, asked: Asked) -> RawTable:
    """The messages, numbered from 0; what cannot be read makes only itself unreadable."""
    return joined_parts(list(_parts(values, 0, name, describe, asked)))


def _parts(
    values: Sequence[bytes | None], first: int, name: str, describe: Describe, asked: Asked
) -> Iterator[RawTable]:
    """Tables of these messages; `first`: the number of the first one."""
    are_short = sum(len(value or b"") + 1 for value in values) <= _FEW_BYTES
    columns = None if are_short else _together(values, asked)
    if columns is not None:
        yield RawTable(name, _wanted(columns, asked), np.arange(first, first + len(columns)), describe)
    elif are_short or len(values) <= _FEW_MESSAGES:
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
