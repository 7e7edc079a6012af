"""A table as its source has it: column names and cells, before a plan gives them a meaning."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError
from runtime.column_types import has_column, one_chunk
from runtime.file_forms import Asked, shortened
from runtime.timestamps import is_text


def without_views(columns: pa.Table) -> pa.Table:
    """The same values in the usual forms of text, bytes and lists, which all other code knows.

    Text need not be UTF-8 here.
    """
    for place, column in enumerate(columns.schema):
        kind = _plain(column.type)
        if kind != column.type:
            chunks = [_cast(chunk, kind) for chunk in columns.column(place).chunks]
            columns = columns.set_column(place, column.name, pa.chunked_array(chunks, kind))
    return columns


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, _cast(column.dictionary, kind.value_type))
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        return pa.array(column.to_pylist(), kind)  # Arrow's cast gives damaged lists (Arrow 26)
    try:
        return pc.cast(column, options=pc.CastOptions(kind, allow_invalid_utf8=True))
    except pa.ArrowNotImplementedError:  # such as a dictionary inside of a struct
        return pa.array(column.to_pylist(), kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The usual type of the same values."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        value = _plain(kind.value_type)
        return kind if value == kind.value_type else pa.dictionary(kind.index_type, value)
    if pa.types.is_struct(kind):
        return pa.struct([part.with_type(_plain(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain(kind.value_type))
    return pa.list_(_plain(kind.value_type)) if pa.types.is_list(kind) else kind


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is not a row.

    number: the record's number in the table, from 1
    place: where it is, for people: `line 7`
    reason: why it is not a row
    raw: the record as the file has it
    """

    number: int
    place: str
    reason: str
    raw: str


Describe = Callable[[int], tuple[str, str]]
"""Place and raw text of the row with this number. Called only for rows that cannot be read."""


@dataclass(frozen=True, slots=True)
class RawTable:
    """One table, or one part of it.

    name: the source's name, for messages and for rows that name no source
    columns: Arrow columns as the source has them
    numbers: by row: its number in the whole table, from 1
    describe: place and raw text of a row
    unreadable: records that are not rows
    has_types: False = all cells are text, whatever they mean
    declared: columns whose type comes from a schema, not from their values
    nested: by column of text: numbers of the rows whose cell was a list or an object
    keys: columns of text that the names of the file's folders say, whatever they mean
    partition: that all rows are of, whose numbers are their offsets; None = columns may say it
    is_ascii: all text is known to be ASCII, and so UTF-8
    has_comma: decimals that are text have a comma in place of a point
    thousands: what divides the digits of numbers that are text; None = nothing does
    missing: text that stands for no value, except where a field is a string
    unknown: by column whose values no Arrow type holds, what they are; its cells are null
    """

    name: str
    columns: pa.Table
    numbers: NDArray[np.int64]
    describe: Describe
    unreadable: Sequence[Unreadable] = field(default=())
    has_types: bool = True
    declared: frozenset[str] = frozenset()
    nested: Mapping[str, Collection[int]] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    partition: int | None = None
    is_ascii: bool = False
    has_comma: bool = False
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        names: list[str] = self.columns.column_names
        return names

    def has(self, name: str) -> bool:
        """Whether it has a column of this name."""
        return has_column(self.columns, name)

    def column(self, name: str) -> pa.Array:
        """A column as one array, dictionaries and runs decoded."""
        return plain_array(one_chunk(self.columns.column(name)))

    def values(self, name: str, most: int | None = None) -> pa.Array:
        """A column of times or numbers, null where a text stands for no value.

        most: so many rows are enough; None = all
        """
        return self.without_blanks(self.without_missing(self.column(name)[:most]))

    def with_points(self, column: pa.Array) -> pa.Array:
        """A column to be read as numbers. With commas a point, as in `1.500,0`, is not a number.

        Where points divide thousands, `1.500,0` is a number.
        """
        if not is_text(column.type):
            return column
        column = self.without_missing(column)
        if self.thousands is not None:
            between = re.escape(self.thousands)
            fraction = "," if self.has_comma else r"\."
            is_divided = pc.match_substring_regex(
                column, rf"^\s*[+-]?\d{{1,3}}({between}\d{{2,3}})*{between}\d{{3}}({fraction}\d*)?\s*$"
            )
            column = pc.if_else(is_divided, pc.replace_substring(column, self.thousands, ""), column)
        if not self.has_comma:
            return column
        for old, new in ((".", "\0"), (",", "."), ("\0", ",")):
            column = pc.replace_substring(column, old, new)
        return column

    def without_missing(self, column: pa.Array) -> pa.Array:
        """The cells, null where a word stands for no value."""
        return self._without(column, self.missing) if self.missing else column

    def without_blanks(self, column: pa.Array) -> pa.Array:
        """The cells, null where one of CSV has no text, as in `""`.

        That takes time: a caller asks where cells cannot be read as they are.
        """
        return column if self.has_types else self._without(column, [""])

    def _without(self, column: pa.Array, words: Sequence[str]) -> pa.Array:
        if not is_text(column.type):
            return column
        is_missing = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(words, column.type))
        return pc.if_else(is_missing, pa.scalar(None, column.type), column)

    def is_missing(self, name: str, row: int) -> bool:
        """Whether a cell of a column of times or numbers, by row from 0, has no value."""
        cell = plain_array(one_chunk(self.columns.column(name)[row : row + 1]))
        return bool(self.without_blanks(self.without_missing(cell)).null_count)

    def are_nested(self, name: str) -> NDArray[np.bool_]:
        """By row: whether a cell that is text now was a list or an object."""
        return np.isin(self.numbers, list(self.nested.get(name, ())))

    def cell(self, name: str, row: int) -> Any:
        """A cell as a Python value; `row` counts from 0."""
        return cell_of(self.columns.column(name)[row])

    def shown(self, name: str, row: int) -> str:
        """A cell for messages."""
        return cell_text(self.columns.column(name)[row])


def plain_array(column: pa.Array) -> pa.Array:
    """The same values in the usual form of their type, as of `plain_kind`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        is_simple = not pa.types.is_nested(kind.value_type) and not isinstance(kind.value_type, pa.BaseExtensionType)
        return plain_array(pc.cast(column, kind.value_type) if is_simple else column.dictionary.take(column.indices))
    if pa.types.is_run_end_encoded(kind):
        return plain_array(pc.run_end_decode(column))
    if isinstance(kind, pa.BaseExtensionType) and plain_kind(kind) != kind:
        return _of_extension(column, plain_kind(kind))
    return column


def plain_kind(kind: pa.DataType) -> pa.DataType:
    """The usual type of the same values: those of a dictionary, of runs, of a known extension."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_kind(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _OF_EXTENSIONS.get(kind.extension_name, kind)
    return kind


_OF_EXTENSIONS = {"arrow.uuid": pa.string(), "arrow.bool8": pa.bool_(), "arrow.json": pa.string()}
"""By name of an extension of Arrow that has a usual type: that type. Others have none."""


def _of_extension(column: pa.Array, kind: pa.DataType) -> pa.Array:
    stored = column.storage
    if pa.types.is_fixed_size_binary(stored.type):
        return pa.array([None if cell is None else str(UUID(bytes=cell)) for cell in stored.to_pylist()], kind)
    return pc.cast(stored, kind)


def cell_of(cell: pa.Scalar) -> Any:
    """A cell as a Python value; what Python cannot represent, such as some dates, as text."""
    try:
        return _python_value(cell)
    except UnicodeDecodeError:
        return _broken_text(cell, "backslashreplace")
    except (ArithmeticError, ValueError):  # decimals with more digits than their type has, too
        pass
    try:
        return cell.cast(pa.string()).as_py()
    except pa.ArrowException:
        return f"a {cell.type}"


def _python_value(cell: pa.Scalar) -> Any:
    """As `as_py`, which searches each field of a struct by its name."""
    if not isinstance(cell, pa.StructScalar) or not cell.is_valid:
        return cell.as_py()
    names = [part.name for part in cell.type]
    if len(set(names)) < len(names):
        return cell.as_py()  # which refuses it
    return {name: _python_value(cell[number]) for number, name in enumerate(names)}


def _broken_text(cell: pa.Scalar, errors: str) -> str:
    """A cell with text that is not UTF-8; `errors`: how to show its other bytes, as in `decode`."""
    if isinstance(cell, pa.DictionaryScalar):
        return _broken_text(cell.value, errors)
    if pa.types.is_nested(cell.type) or pa.types.is_run_end_encoded(cell.type):
        return f"a {cell.type}"
    text: bytes = cell.cast(pa.large_binary()).as_py()
    return text.decode("utf-8", errors)


_SURROGATE = re.compile(r"(?<!\\)\\udc([89a-f][0-9a-f])")
"""How `repr` shows a byte that is not text."""


def cell_text(cell: pa.Scalar) -> str:
    r"""A cell for messages; bytes that are not text as `\xff`."""
    try:
        cell.as_py()
    except UnicodeDecodeError:
        return shortened(_SURROGATE.sub(r"\\x\1", repr(_broken_text(cell, "surrogateescape"))))
    except (ArithmeticError, ValueError):  # decimals with more digits than their type has, too
        pass
    return shortened(repr(cell_of(cell)))


def text_column(column: pa.Array) -> pa.Array:
    """The cells as text: objects and lists as JSON, without the parts that are null."""
    column = plain_array(column)
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if not pa.types.is_nested(kind):
        try:
            return pc.cast(column, pa.string())
        except pa.ArrowException:
            pass
    return as_text([cell_of(cell) for cell in column])


def as_text_of_bytes(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The same bytes as text, UTF-8 or not: `broken_text` looks at the columns that are needed."""
    return pc.cast(column, options=pc.CastOptions(pa.large_string(), allow_invalid_utf8=True))


def of_columns(name: str, columns: pa.Table, declared: frozenset[str] = frozenset(), first: int = 1) -> RawTable:
    """A table all of whose records are rows; `first`: the number of its first row."""
    columns = without_views(columns)
    numbers = np.arange(first, first + len(columns))
    return RawTable(name, columns, numbers, _describe_rows(columns, first), declared=declared)


def numbered_from(raw: RawTable, first: int) -> RawTable:
    """The same table with its first row numbered `first`; lines of files keep their numbers."""
    added = first - 1
    if not added:
        return raw

    def describe(number: int) -> tuple[str, str]:
        place, text = raw.describe(number - added)
        return _moved(place, added), text

    return replace(
        raw,
        numbers=raw.numbers + added,
        describe=describe,
        unreadable=[
            replace(item, number=item.number + added, place=_moved(item.place, added)) for item in raw.unreadable
        ],
        nested={name: [number + added for number in numbers] for name, numbers in raw.nested.items()},
    )


def _moved(place: str, added: int) -> str:
    word, _, number = place.partition(" ")
    return f"{word} {int(number) + added}" if word == "row" and number.isdecimal() else place


def with_keys(raw: RawTable, keys: Mapping[str, str | None]) -> RawTable:
    """The table with a column for each of these that it does not have itself."""
    own = {name.casefold() for name in raw.names}
    added = {name: value for name, value in keys.items() if name.casefold() not in own}
    columns = raw.columns
    for name, value in added.items():
        columns = columns.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(raw)))
    return replace(raw, columns=columns, keys=frozenset(added))


def refuse_repeated(names: Sequence[str], table: str) -> None:
    """Raise InputError for two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{table}: duplicate column {shortened(name)!r}")
        seen.add(name)


def joined_parts(parts: Sequence[RawTable]) -> RawTable:
    """All rows of all parts of a table."""
    parts = [part for part in parts if len(part) or part.unreadable] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    firsts = [_first_number(part) for part in parts]

    def describe(number: int) -> tuple[str, str]:
        return parts[bisect_right(firsts, number) - 1].describe(number)

    columns = _concatenated([part.columns for part in parts])
    return RawTable(
        parts[0].name,
        columns,
        np.concatenate([part.numbers for part in parts]),
        describe,
        [record for part in parts for record in part.unreadable],
        parts[0].has_types,
        parts[0].declared,
        _nested(parts, columns),
        keys=parts[0].keys,
        is_ascii=all(part.is_ascii for part in parts),
        unknown={name: kind for part in parts for name, kind in part.unknown.items()},
    )


def _nested(parts: Sequence[RawTable], columns: pa.Table) -> dict[str, list[int]]:
    """As `RawTable.nested`, with the columns that are text only where parts are joined."""
    found: dict[str, list[int]] = {}
    for part in parts:
        for name, numbers in part.nested.items():
            found.setdefault(name, []).extend(numbers)
        for name, column in zip(part.names, part.columns.columns, strict=True):
            if pa.types.is_nested(column.type) and pa.types.is_string(columns.column(name).type):
                found.setdefault(name, []).extend(part.numbers[pc.is_valid(column).to_numpy()].tolist())
    return found


def _first_number(part: RawTable) -> int:
    """The number of the first record, readable or not."""
    numbers = [record.number for record in part.unreadable[:1]] + part.numbers[:1].tolist()
    return min(numbers, default=0)


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows; a column that has types in different tables which no type holds is text."""
    tables = [table for table in tables if len(table)] or list(tables[:1])
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    return pa.table({name: _joined_column(name, tables) for name in names})


def _joined_column(name: str, tables: Sequence[pa.Table]) -> pa.ChunkedArray:
    parts = [table.column(name) if has_column(table, name) else pa.nulls(len(table)) for table in tables]
    alone = [pa.table({"": part}) for part in parts]
    try:
        return pa.concat_tables(alone, promote_options="permissive").column(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([as_text(part.to_pylist()) for part in parts], pa.string())


def _describe_rows(columns: pa.Table, first: int) -> Describe:
    def describe(number: int) -> tuple[str, str]:
        row = {name: cell_of(columns.column(name)[number - first]) for name in columns.column_names}
        return f"row {number}", shortened(as_json(row))

    return describe


def as_text(values: Sequence[Any]) -> pa.Array:
    """Values of different types as text; objects without the parts that are null."""
    return pa.array([_text_of(value) for value in values], pa.string())


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = {name: part for name, part in value.items() if part is not None}
    return as_json(value) if isinstance(value, bool | list | dict) else str(value)


def as_json(value: Any) -> str:
    """A value as JSON, for people: what JSON does not have is shown as text."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def one_line(error: Exception) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())


def without_long_rows(raw: RawTable, asked: Asked) -> RawTable:
    """Rows that are longer than the limit are unreadable."""
    if raw.columns.nbytes <= asked.max_record:
        return raw
    lengths = np.zeros(len(raw), np.int64)
    for column in raw.columns.columns:
        if is_bytes_or_text(column.type):
            lengths += pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0).to_numpy()
    is_long = lengths > asked.max_record
    if not is_long.any():
        return raw
    unreadable = [
        Unreadable(number, f"row {number}", asked.too_long, f"{length:,} bytes")
        for number, length in zip(raw.numbers[is_long].tolist(), lengths[is_long].tolist(), strict=True)
    ]
    columns = raw.columns.filter(pa.array(~is_long))
    return RawTable(raw.name, columns, raw.numbers[~is_long], raw.describe, unreadable, declared=raw.declared)


def is_bytes_or_text(kind: pa.DataType) -> bool:
    """Whether the cells of a column of this type are of any length."""
    return any(
        is_one(kind)
        for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )
