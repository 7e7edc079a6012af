"""Rows and values of Python as columns: from lists of mappings, JSON and YAML."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.errors import FileErrors, InputError
from runtime.file_forms import EVERYTHING, MOST_NAMES, Asked, shortened
from runtime.interpreter.written_values import DEEPEST, NOT_TEXT, is_unicode
from runtime.reading.formats.raw_table import Describe, RawTable, Unreadable, as_json, as_text
from runtime.yaml_reader import YamlError, file_text, read_nodes, value_of

# Values of Python as columns: one table says what each scalar of Python, numpy and pandas is. Rows
# may mix them: an integer of numpy beside one of Python is a number as that one.

Plain = Callable[[Any], Any]
"""From a value of one type to the same one of a type that Arrow's columns are made of."""


@dataclass(frozen=True, slots=True)
class PythonCells:
    """Values as a column.

    column: text where Arrow has no type for all of them; null where no column can have them
    nested: of text: the rows, from 0, whose value was a list or an object
    unknown: what the values are, if the language has no type for them, and Arrow neither
    """

    column: pa.Array
    nested: Sequence[int] = ()
    unknown: str | None = None


def cells_of(values: Sequence[Any], place: str) -> PythonCells:
    """One type if all values have it, else text.

    Numbers of several types have the widest: decimals hold integers, floats all of them. Raises
    InputError for a value that is nested too deeply; `place` says where.
    """
    kinds = {type(value) for value in values if value is not None}
    if not kinds <= _FLAT:
        values, is_wide = _checked(values, place)
        kinds = {type(value) for value in values if value is not None}
        if is_wide:  # a struct would have a cell for every row and name
            return _text(values)
    if complex in kinds and kinds <= {*_NUMBERS, complex}:
        return PythonCells(pa.nulls(len(values)), unknown="complex numbers")
    if len(kinds) > 1 or kinds <= {datetime, Decimal}:
        values = _alike(values, kinds)
        kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds in ({int, float}, {list, tuple}):
        try:
            return PythonCells(pa.array(values))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass  # no Arrow type holds them; an infinite Decimal is a TypeError
    return _text(values)


def _text(values: Sequence[Any]) -> PythonCells:
    nested = [row for row, value in enumerate(values) if isinstance(value, list | tuple | dict)]
    return PythonCells(as_text(values), nested)


def _alike(values: Sequence[Any], kinds: set[type]) -> Sequence[Any]:
    """The values with one type, where one holds all of them; else as they are."""
    if Decimal in kinds and kinds <= _NUMBERS:
        return _numbers(values, has_floats=float in kinds)
    if datetime in kinds and kinds <= {datetime, date}:
        moments = [datetime(*day.timetuple()[:3]) if type(day) is date else day for day in values]  # noqa: DTZ001
        zones = {moment.tzinfo for moment in moments if moment is not None}
        return moments if len(zones) <= 1 else [None if moment is None else _in_utc(moment) for moment in moments]
    return values


def _in_utc(moment: datetime) -> datetime:
    """A moment without a zone is one of UTC."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # in another zone it is in the years 1 to 9999
        return moment


def _numbers(values: Sequence[Any], *, has_floats: bool) -> Sequence[Any]:
    """Decimals, or floats if there is one: of decimals those are that are not finite."""
    given = [value for value in values if value is not None]
    if any(isinstance(value, Decimal) and value.is_snan() for value in given):
        return values
    try:
        if has_floats or not all(value.is_finite() for value in given if isinstance(value, Decimal)):
            return [None if value is None else float(value) for value in values]
    except OverflowError:
        return values
    return [None if value is None else Decimal(value) for value in values]


def _checked(values: Sequence[Any], place: str) -> tuple[Sequence[Any], bool]:
    """The values with plain parts; whether they have too many names for columns.

    Raises InputError for one that is nested too deeply.
    """
    names: set[str] = set()
    kinds: set[type] = set()
    if all(_is_shallow(value, names, kinds, DEEPEST) for value in values):
        if kinds <= _PARTS:
            return values, len(names) > MOST_NAMES
        try:
            plain = [_plain(value, DEEPEST) for value in values]
        except RecursionError:
            pass
        else:
            names.clear()
            if all(_is_shallow(value, names, set(), DEEPEST) for value in plain):
                return plain, len(names) > MOST_NAMES
    raise InputError(f"{place} has a value nested more than {DEEPEST} deep")


def _is_shallow(value: Any, names: set[str], kinds: set[type], deepest: int) -> bool:
    """Whether a value is not nested too deeply; adds the names and types of its parts."""
    kinds.add(type(value))
    if isinstance(value, list | tuple):
        return deepest > 0 and all(_is_shallow(item, names, kinds, deepest - 1) for item in value)
    if isinstance(value, dict):
        names.update(map(str, value))
        return deepest > 0 and all(_is_shallow(item, names, kinds, deepest - 1) for item in value.values())
    return True


def _plain(value: Any, deepest: int) -> Any:
    """The value with plain parts; RecursionError if it is nested too deeply."""
    if deepest < 0:
        raise RecursionError
    value = _maker_of(value)(value)
    if isinstance(value, list | tuple):
        return [_plain(item, deepest - 1) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item, deepest - 1) for name, item in value.items()}
    return value if type(value) in _PARTS else _plain_again(value, deepest)


def _plain_again(value: Any, deepest: int) -> Any:
    """What stood for something else, such as the value of an enumeration, may do so, too."""
    return value if _maker_of(value) is _unchanged else _plain(value, deepest - 1)


def is_missing(value: Any) -> bool:
    """None, pandas' NA and NaT, a time or length of numpy without a value."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in _MISSING


_MISSING = ("NAType", "NaTType")
"""Types of pandas, which is slow to import. NaT is a `datetime` by its class."""

_LARGEST_UNITS = ("Y", "M", "W", "D")
"""Of numpy's times: those that have no time of day."""


def _moment(value: np.datetime64) -> Any:
    """A date, or a time without what is finer than microseconds; outside of the years text."""
    if np.isnat(value):
        return None
    unit = "D" if np.datetime_data(value)[0] in _LARGEST_UNITS else "us"
    found = value.astype(f"datetime64[{unit}]").item()
    return found if isinstance(found, date) else str(value)


def _length(value: np.timedelta64) -> Any:
    if np.isnat(value):
        return None
    try:
        found = value.astype("timedelta64[us]").item()
    except TypeError:  # of months or years
        return str(value)
    return found if isinstance(found, timedelta) else int(value.astype(np.int64))


def _datetime(value: datetime) -> datetime:
    """Without nanoseconds, which those of pandas have."""
    parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    return datetime(*parts, tzinfo=value.tzinfo, fold=value.fold)


def _fields(value: Any) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}


def _unchanged(value: Any) -> Any:
    return value


SCALARS: Mapping[type, Plain] = {
    Enum: lambda value: value.value,
    np.bool_: bool,
    np.integer: int,
    np.floating: float,
    np.complexfloating: complex,
    np.str_: str.__str__,
    np.bytes_: bytes,
    np.void: lambda value: (
        dict(zip(value.dtype.names, value.item(), strict=True)) if value.dtype.names else value.item()
    ),
    np.datetime64: _moment,
    np.timedelta64: _length,
    np.ndarray: lambda value: value.tolist() if value.dtype.kind not in "mM" else list(value),
    bool: bool,
    int: int,
    float: float,
    complex: complex,
    Decimal: Decimal,
    Fraction: float,
    str: str.__str__,
    bytes: bytes,
    bytearray: bytes,
    memoryview: bytes,
    datetime: _datetime,
    date: lambda value: date(value.year, value.month, value.day),
    time: _unchanged,
    timedelta: lambda value: timedelta(value.days, value.seconds, value.microseconds),
    UUID: str,
    pa.Scalar: lambda value: value.as_py(),
    Mapping: dict,
}
"""By type, its subclasses included, what a value is in a column. Others are text, as `str` has it.

A value of an enumeration stands for it. A data class is an object of its fields.
"""

_SIMPLE = frozenset({bool, int, float, str})
_FLAT = _SIMPLE | {Decimal, bytes, datetime, date, time, timedelta}
_PARTS = _FLAT | {complex, list, tuple, dict, type(None)}
"""Types of values that are as they should be."""

_NUMBERS = frozenset({int, float, Decimal})


def _maker_of(value: object) -> Plain:
    return _maker(cast("Hashable", type(value)))


@lru_cache(maxsize=1024)
def _maker(kind: Hashable) -> Plain:
    """What makes a value of this type a plain one."""
    assert isinstance(kind, type), "mypy does not know that types are hashable"
    if kind in _PARTS:
        return _unchanged
    if kind.__name__ in _MISSING:
        return lambda _value: None
    if issubclass(kind, Enum):
        return SCALARS[Enum]
    if dataclasses.is_dataclass(kind):
        return _fields
    found = next((SCALARS[base] for base in kind.__mro__ if base in SCALARS), None)
    if found is None and issubclass(kind, Mapping):
        found = SCALARS[Mapping]
    return found or _unchanged


# Rows that are mappings of names to values: from JSON, YAML, or a list in Python.

_CELLS_PER_VALUE = 50
"""Most cells of a table for each cell that has a value."""


@dataclass(frozen=True, slots=True)
class NotARow:
    """A record that could not be parsed, in a list of rows; `raw`: as it is written."""

    reason: str
    raw: str = ""


def of_mappings(rows: Sequence[Any], name: str, asked: Asked = EVERYTHING) -> RawTable:
    """A table of rows without places of their own: `row 3`. Raises InputError if none is a row."""
    if rows and not any(isinstance(row, Mapping | NotARow) for row in rows):
        raise InputError(f"{name}: row 1 is {type(rows[0]).__name__}; a row is a mapping of names to values")

    def describe(number: int) -> tuple[str, str]:
        row = rows[number - 1]
        return f"row {number}", shortened(row.raw if isinstance(row, NotARow) else as_json(row))

    return of_rows(rows, name, describe, asked)


def of_rows(rows: Sequence[Any], name: str, describe: Describe, asked: Asked = EVERYTHING, first: int = 1) -> RawTable:
    """Columns of the rows that are mappings; all other rows are unreadable.

    first: the number of the first row
    """
    unreadable = []
    good: list[Mapping[str, Any]] = []
    numbers = []
    for number, row in enumerate(rows, first):
        if isinstance(row, Mapping):
            good.append(row)
            numbers.append(number)
        else:
            reason = row.reason if isinstance(row, NotARow) else "not a mapping of names to values"
            unreadable.append(Unreadable(number, describe(number)[0], reason, describe(number)[1]))
    try:
        cells = _cells(good, name, asked)
    except UnicodeEncodeError:
        checked = [NotARow(NOT_TEXT) if isinstance(row, Mapping) and not _is_text(row) else row for row in rows]
        return of_rows(checked, name, describe, asked, first)
    return of_cells(cells, name, np.array(numbers, np.int64), describe, unreadable)


def of_cells(
    cells: Mapping[str, PythonCells],
    name: str,
    numbers: NDArray[np.int64],
    describe: Describe,
    unreadable: Sequence[Unreadable] = (),
) -> RawTable:
    """A table of these columns, by name; `numbers`: of their rows."""
    columns = {column: own.column for column, own in cells.items()}
    return RawTable(
        name,
        pa.table(columns) if columns else pa.table({"": pa.nulls(len(numbers))}),
        numbers,
        describe,
        unreadable,
        nested={column: numbers[list(own.nested)].tolist() for column, own in cells.items() if own.nested},
        unknown={column: own.unknown for column, own in cells.items() if own.unknown is not None},
    )


def _is_text(row: Mapping[str, Any]) -> bool:
    """Whether all text of a row is Unicode, without halves of surrogate pairs."""
    return is_unicode(json.dumps(row, default=str, ensure_ascii=False))


def _cells(rows: Sequence[Mapping[str, Any]], name: str, asked: Asked) -> dict[str, PythonCells]:
    names = _names(rows, name, asked)
    return {str(key): cells_of([row.get(key) for row in rows], f"{name}: column {str(key)!r}") for key in names}


def _names(rows: Sequence[Mapping[str, Any]], name: str, asked: Asked) -> list[str]:
    """The names that become columns: all of them, or those that are needed, if they are too many.

    A table has a cell for every row and name. A hostile one may have new names in each row.
    """
    names = dict.fromkeys(key for row in rows for key in row)
    if asked.only is not None:
        return [key for key in names if str(key).casefold() in asked.only]
    cells, values = len(names) * len(rows), sum(map(len, rows))
    if len(names) <= MOST_NAMES and (cells <= _CELLS_PER_VALUE * values or cells <= 1_000_000):
        return list(names)
    if asked.wanted is None:
        raise InputError(
            f"{name}: its {len(rows):,} rows have {len(names):,} different names;"
            f" with more than {MOST_NAMES:,}, or with so few in common, define the event types"
        )
    return [key for key in names if str(key).casefold() in asked.wanted]


def read_yaml(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    """The whole file as one table; raises FileErrors with all values that cannot be read."""
    found: list[tuple[int | None, str]] = []
    try:
        root = read_nodes(file_text(path))
    except YamlError as error:
        raise FileErrors(str(path), [(error.line, error.message)]) from error
    document = None if root is None else value_of(root, lambda line, message: found.append((line, message)))
    if found:
        raise FileErrors(str(path), found)
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InputError(f"{path}: a YAML table is a list of rows, or a mapping with `rows`")
    yield of_mappings(rows, name, asked)
