"""Lines of JSON objects as columns, by Arrow's reader.

Arrow's reader makes a cell for every line and name. A hostile text has new names in each line. So
the names are learned from few lines at a time, and the others are read with what is known.

Arrow's reader ends the process where a block begins with `null`, and where it infers a list or an
object for a name that has another type in an earlier block. It makes lists that point behind their
values where a list begins with `null`. So it is given nothing but lines that are objects, infers
within one block, and its columns are validated: with a known type it reads such lists as they are.
"""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from runtime.reading.formats.asked import MOST_NAMES

_FEW = 1 << 15
"""From how many bytes names and types are learned at once."""

_LINE_END, _RETURN, _OPENING, _CLOSING = b"\n\r{}"

_BLOCK = 1 << 20
"""How many bytes Arrow reads at a time, if types are known."""

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
    at, size = 0, _FEW
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
            if part is None and size > _FEW:
                size = _FEW
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
    reading = pa.json.ReadOptions(block_size=block)
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
