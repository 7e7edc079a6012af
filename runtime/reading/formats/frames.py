"""Tables in memory: Arrow, Polars and pandas."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.errors import InputError
from runtime.interpreter.json_text import NOT_TEXT, is_unicode
from runtime.reading.formats.mappings import column_of, nested_rows, texts_of
from runtime.reading.formats.raw_table import RawTable, as_text_of_bytes, of_columns, one_line, refuse_repeated


def read_frame(table: Any, name: str) -> RawTable:
    """A table in memory; raises InputError for any other object."""
    columns = _as_arrow(table, name)
    refuse_repeated(columns.column_names, name)
    raw = of_columns(name, columns, _declared(table, columns))
    return replace(raw, nested=_nested(table, columns)) if _is_pandas(table) else raw


def _nested(frame: Any, columns: pa.Table) -> dict[str, list[int]]:
    """As `RawTable.nested`, of a pandas frame."""
    texts, numbers = texts_of(columns), range(1, len(columns) + 1)
    objects = {str(label): label for label in frame.select_dtypes("object").columns}
    return {name: nested_rows(list(frame[objects[name]]), numbers) for name in texts if name in objects}


def _as_arrow(table: Any, name: str) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "to_arrow"):
        return pa.table(table.to_arrow())
    if _is_pandas(table):
        return _of_pandas(table, name)
    raise InputError(f"a {type(table).__name__} is not a table; give a path or a pandas, Polars or Arrow table")


def _declared(table: Any, columns: pa.Table) -> frozenset[str]:
    """All columns except those of a pandas frame that hold arbitrary objects."""
    objects = table.select_dtypes("object").columns if _is_pandas(table) else ()
    return frozenset(columns.column_names) - set(map(str, objects))


def _is_pandas(table: Any) -> bool:
    return hasattr(table, "iloc")


def _of_pandas(frame: Any, name: str) -> pa.Table:
    labels = list(map(str, frame.columns))
    refuse_repeated(labels, name)
    if not is_unicode("".join(labels)):
        raise InputError(f"{name}: the name of a column {NOT_TEXT}")
    columns = {}
    for position, label in enumerate(labels):
        values = frame.iloc[:, position]
        place = f"{name}: column {label!r}"
        try:
            if values.dtype == object:
                columns[label] = _of_objects([None if _is_missing(value) else value for value in values], place)
            else:
                columns[label] = pa.array(values, from_pandas=True)
        except UnicodeEncodeError:
            raise InputError(f"{place}: a cell {NOT_TEXT}") from None
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"{place} cannot be read: {one_line(error)}") from error
    return pa.table(columns)


def _of_objects(values: list[Any], place: str) -> pa.Array:
    """A column of objects; text that UTF-8 cannot hold becomes bytes that are not UTF-8."""
    try:
        return column_of(values, place)
    except UnicodeEncodeError:
        if not all(value is None or isinstance(value, str) for value in values):
            raise
    encoded = [None if value is None else value.encode("utf-8", "surrogatepass") for value in values]
    return as_text_of_bytes(pa.array(encoded, pa.binary()))


def _is_missing(value: Any) -> bool:
    """None, pandas' NaT and NA, NaN. An array is a value."""
    if isinstance(value, Decimal):
        return value.is_qnan()  # a signalling NaN cannot be compared, and is a value that is wrong
    if isinstance(value, float | np.floating):
        return bool(value != value)  # noqa: PLR0124  NaN differs from itself
    return value is None or type(value).__name__ in ("NaTType", "NAType")
