"""Text that is not UTF-8: columns may hold any bytes as text, and no reader looks at them.

Such a cell is not a value. If it were taken with replacement characters, different keys could
become one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import InputError
from runtime.reading.formats.csv_form import USUAL_CSV, UTF_8, CsvForm
from runtime.reading.formats.raw_table import RawTable, as_text_of_bytes, one_line, plain_array
from runtime.reading.formats.unfolding import BROKEN

REPLACEMENT = "\ufffd"
_SHOWN_BROKEN = BROKEN.encode(UTF_8, "surrogatepass").decode(UTF_8, "backslashreplace")
"""A byte that is not text in the encoding of its file, as `RawTable.shown` has it."""
_ONLY_CP1252 = re.compile(r"\\x[89]")
"""A byte that is a control character in Latin-1, and a letter or a sign in Windows' encoding."""


@dataclass(frozen=True, slots=True)
class BrokenCell:
    """A cell whose text is not UTF-8.

    row: from 0
    column: its name
    reason: for people: the text, the column, and what is wrong
    """

    row: int
    column: str
    reason: str


def without_broken_text(
    raw: RawTable, names: Collection[str], texts: Collection[str] = (), csv: CsvForm = USUAL_CSV
) -> tuple[RawTable, Sequence[BrokenCell]]:
    """The table with null in place of text that is not UTF-8, and where that was.

    names: the columns that are looked at, if the table has them
    texts: those that are text also where they are declared as bytes
    csv: how the table is written, if it is CSV

    Raises InputError for a column in memory that is damaged otherwise.
    """
    if raw.is_ascii:
        return raw, ()
    raw = _with_texts(raw, texts)
    columns = raw.columns
    cells: list[BrokenCell] = []
    for name in names:
        position = columns.schema.get_field_index(name)
        if position < 0 or _is_sound(columns.column(position)):
            continue
        column = raw.column(name)
        broken = _broken_rows(column)
        rows = np.flatnonzero(broken).tolist()
        cells += [BrokenCell(row, name, _reason(raw, name, row, csv)) for row in rows]
        taken = column.take(pa.array(np.arange(len(column)), mask=broken))
        _check(taken, raw.name)
        columns = columns.set_column(position, name, taken)
    return raw if columns is raw.columns else replace(raw, columns=columns), cells


def _reason(raw: RawTable, name: str, row: int, csv: CsvForm) -> str:
    shown = raw.shown(name, row)
    if csv.encoding != UTF_8 and not raw.has_types:
        return f"{shown.replace(_SHOWN_BROKEN, REPLACEMENT)} in {name!r} is not {csv.encoding} text"
    reason = f"{shown} in {name!r} is not UTF-8 text"
    if raw.has_types:
        return reason
    encoding = "cp1252" if _ONLY_CP1252.search(shown) else "latin-1"
    return f"{reason}; if it is {encoding}: `--csv encoding={encoding}`"


def _with_texts(raw: RawTable, texts: Collection[str]) -> RawTable:
    columns = raw.columns
    for name in texts:
        position = columns.schema.get_field_index(name)
        kind = columns.schema.field(position).type if position >= 0 else pa.null()
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            columns = columns.set_column(position, name, as_text_of_bytes(columns.column(position)))
    return raw if columns is raw.columns else replace(raw, columns=columns)


def _is_sound(column: pa.ChunkedArray) -> bool:
    """Whether all text of a column is UTF-8: one pass over it, or over a dictionary's values."""
    if not _has_text(column.type):
        return True
    try:
        for chunk in column.chunks:
            (chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _check(column: pa.Array, table: str) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f"{table}: a column is damaged: {one_line(error)}") from None


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _has_text(kind.value_type)
    return _is_string(kind) or any(_has_text(kind.field(number).type) for number in range(kind.num_fields))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _broken_rows(column: pa.Array) -> NDArray[np.bool_]:
    """By row: whether text in it is not UTF-8. Called only where there is such a row."""
    column = plain_array(column)
    kind = column.type
    broken = np.zeros(len(column), np.bool_)
    if _is_string(kind):
        cells = pc.cast(column, pa.large_binary()).to_pylist()
        return np.array([cell is not None and not _is_utf8(cell) for cell in cells], np.bool_)
    if pa.types.is_struct(kind):
        for part in column.flatten():
            broken |= _broken_rows(part)
    elif _is_list(kind):
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        broken[parents[_broken_rows(column.flatten())]] = True
    elif pa.types.is_map(kind):
        entries = column.view(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        return _broken_rows(entries)
    return broken


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
