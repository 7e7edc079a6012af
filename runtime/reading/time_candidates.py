"""Which columns of a table without times could hold them: for the message that says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from runtime.policies.settings_text import look_of, patterns_of, time_format_options, unit_of
from runtime.reading.conversion import is_time
from runtime.reading.formats.raw_table import RawTable
from runtime.timestamps import NUMBER, cast_or_null, is_text, parse_times

_ROWS = 100
"""How many rows are looked at."""


def time_candidates(raw: RawTable, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The columns that hold times, and the option that reads each; "" where none is needed."""
    for name in names:
        column = raw.values(name, _ROWS).drop_null()
        if is_time(column.type):
            yield name, ""
        elif len(column) and _is_number(column.type):
            yield from _numbers(name, column)
        elif len(column) and is_text(column.type):
            yield from _texts(name, column)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(name: str, column: pa.Array) -> Iterator[tuple[str, str]]:
    units = {unit_of(number) for number in column.to_pylist()}
    look = look_of(column.to_pylist())
    if look is not None and "%" in look:
        yield name, f"`{look.partition('`')[2].partition('`')[0]}`"
    elif len(units) == 1 and None not in units:
        unit = units.pop()
        yield name, "" if unit == "s" else f"`--time-unit {unit}`"


def _texts(name: str, column: pa.Array) -> Iterator[tuple[str, str]]:
    numbers = pc.match_substring_regex(column, NUMBER)
    if pc.all(numbers).as_py():
        yield from _numbers(name, cast_or_null(column, pa.float64()).drop_null())
    elif not pc.any(numbers).as_py() and not parse_times(column).bad.any():
        yield name, ""
    elif options := time_format_options(patterns_of(column.to_pylist())):
        yield name, options
