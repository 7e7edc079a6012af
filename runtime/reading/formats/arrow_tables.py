"""Tables that are columns already: of Arrow, Polars, pandas and others, and in files of Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from querylang.errors import InputError, kind_in_words
from runtime.file_forms import EVERYTHING, Asked
from runtime.interpreter.written_values import NOT_TEXT, is_unicode
from runtime.reading.formats.python_rows import PythonCells, cells_of, is_missing
from runtime.reading.formats.raw_table import (
    RawTable,
    as_text_of_bytes,
    of_columns,
    one_line,
    refuse_repeated,
    without_long_rows,
)

_ARRIVAL, _SOURCE_TIME = "at", "ts"


def held(table: Any) -> Any:
    """What can be read only once, or only as a stream, as a table or a list of rows in memory.

    Iterators of rows or record batches, readers, datasets, relations of DuckDB, lazy frames.
    Raises InputError if reading fails.
    """
    if isinstance(table, pa.Table | pa.RecordBatch | str | Path | Sequence) or _is_pandas(table):
        return table
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return pa.table(table)
        if hasattr(table, "to_table") and hasattr(table, "schema"):  # a dataset
            return table.to_table()
        if hasattr(table, "collect") and hasattr(table, "lazy"):  # a lazy frame
            return table.collect()
    except Exception as error:  # of the library that has the data
        raise InputError(f"a {type(table).__name__} cannot be read as a table: {one_line(error)}") from error
    return _of_iterator(list(table)) if isinstance(table, Iterator) else table


def _of_iterator(items: list[Any]) -> Any:
    is_of_batches = bool(items) and isinstance(items[0], pa.RecordBatch)
    return pa.Table.from_batches(items) if is_of_batches else items


def read_frame(table: Any, name: str, asked: Asked = EVERYTHING) -> RawTable:
    """A table in memory; raises InputError for any other object."""
    if _is_pandas(table):
        return _of_pandas(_chosen(_with_index(table, asked), asked), name)
    columns = _as_arrow(held(table))
    refuse_repeated(columns.column_names, name)
    names = asked.chosen(columns.column_names)
    columns = columns if names is None else columns.select(names)
    return of_columns(name, columns, frozenset(columns.column_names))


def _chosen(frame: Any, asked: Asked) -> Any:
    """A pandas frame without the columns that are not looked at."""
    names = asked.chosen(map(str, frame.columns))
    return frame if names is None else frame.loc[:, [str(label) in names for label in frame.columns]]


def _as_arrow(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "to_arrow"):
        return pa.table(table.to_arrow())
    raise InputError(
        f"{kind_in_words(table)} is not a table; give a path, a list of rows (mappings of names to values), or a pandas,"
        " Polars or Arrow table"
    )


def _with_index(frame: Any, asked: Asked) -> Any:
    """A pandas frame with the named levels of its index as columns; one of times is `at`.

    Unless there are other columns of times, or users name one.
    """
    labels, added = set(map(str, frame.columns)), {}
    for level, label in enumerate(frame.index.names):
        values = frame.index.get_level_values(level)
        if label is not None and str(label) not in labels:
            added[str(label)] = values
        is_of_times = values.dtype.kind == "M" and not asked.has_named_times
        if is_of_times and not {_ARRIVAL, _SOURCE_TIME} & (labels | added.keys()):
            added[_ARRIVAL] = values
    return frame.assign(**added) if added else frame


def _is_pandas(table: Any) -> bool:
    return hasattr(table, "iloc") and hasattr(table, "columns")  # a Series has no columns


def _of_pandas(frame: Any, name: str) -> RawTable:
    labels = list(map(str, frame.columns))
    refuse_repeated(labels, name)
    if not is_unicode("".join(labels)):
        raise InputError(f"{name}: the name of a column {NOT_TEXT}")
    cells = {label: _column(frame.iloc[:, place], f"{name}: column {label!r}") for place, label in enumerate(labels)}
    columns = pa.table({label: own.column for label, own in cells.items()})
    declared = frozenset(labels) - set(map(str, frame.select_dtypes("object").columns))
    raw = of_columns(name, columns, declared)
    return replace(
        raw,
        nested={label: [row + 1 for row in own.nested] for label, own in cells.items() if own.nested},
        unknown={label: own.unknown for label, own in cells.items() if own.unknown is not None},
    )


def _column(values: Any, place: str) -> PythonCells:
    """A column of pandas; one of a dtype that Arrow does not have is null."""
    try:
        if values.dtype == object:
            return _of_objects([None if _is_missing(value) else value for value in values], place)
        return PythonCells(pa.array(values, from_pandas=True))
    except UnicodeEncodeError:
        raise InputError(f"{place}: a cell {NOT_TEXT}") from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _of_other_dtype(values, place)


def _of_other_dtype(values: Any, place: str) -> PythonCells:
    """A column of a dtype that Arrow does not have: its values in another form, if there is one."""
    if hasattr(values, "sparse") and str(values.dtype).startswith("Sparse"):
        return _column(values.sparse.to_dense(), place)
    if values.dtype.kind == "f":  # more digits than 64 bits have
        return _column(values.astype("float64"), place)
    categories = getattr(values.dtype, "categories", None)
    if categories is None:
        return PythonCells(pa.nulls(len(values)), unknown=str(values.dtype))
    if categories.dtype == object:
        return _column(values.astype(object), place)
    return PythonCells(pa.nulls(len(values)), unknown=f"category of {categories.dtype}")


def _of_objects(values: list[Any], place: str) -> PythonCells:
    """A column of objects; text that UTF-8 cannot hold becomes bytes that are not UTF-8."""
    try:
        return cells_of(values, place)
    except UnicodeEncodeError:
        if not all(value is None or isinstance(value, str) for value in values):
            raise
    encoded = [None if value is None else value.encode("utf-8", "surrogatepass") for value in values]
    return PythonCells(as_text_of_bytes(pa.array(encoded, pa.binary())))


def _is_missing(value: Any) -> bool:
    """What `is_missing` says, and NaN. An array is a value."""
    if isinstance(value, Decimal):
        return value.is_qnan()  # a signalling NaN cannot be compared, and is a value that is wrong
    if isinstance(value, float | np.floating):
        return bool(value != value)  # noqa: PLR0124  NaN differs from itself
    return is_missing(value)


# Arrow files and Feather files: Arrow's own format, as a file or as a stream, in parts.

_MAGIC, _OLD_MAGIC = b"ARROW1", b"FEA1"

_ROWS = 1 << 20
"""Most rows of a part."""


def read_arrow(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    """The file's batches, large ones in parts; a file without any is one empty table."""
    with path.open("rb") as file:
        magic = file.read(len(_MAGIC))
        file.seek(0)
        if not magic:
            raise InputError(f"{path}: is empty")
        if magic.startswith(_OLD_MAGIC):
            raise InputError(f"{path}: is a Feather file of version 1; write it again as version 2")
        source = pa.ipc.open_file(file) if magic == _MAGIC else pa.ipc.open_stream(file)
        refuse_repeated(source.schema.names, name)
        first, names = 1, frozenset(source.schema.names)
        for whole in _batches(source):
            chosen = asked.chosen(whole.schema.names)
            batch = whole if chosen is None else whole.select(chosen)
            for column in batch.columns:
                _check(column)
            for start in range(0, len(batch), _ROWS):
                columns = pa.Table.from_batches([batch.slice(start, _ROWS)])
                yield without_long_rows(of_columns(name, columns, names, first), asked)
                first += len(columns)
        if first == 1:
            yield of_columns(name, source.schema.empty_table(), names)


def _batches(source: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    if isinstance(source, pa.ipc.RecordBatchFileReader):
        return (source.get_batch(number) for number in range(source.num_record_batches))
    return iter(source)


_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def _check(column: pa.Array) -> None:
    """Raise ArrowException for a column that points behind its end. Text need not be UTF-8 here."""
    if pa.types.is_dictionary(column.type):
        _check(column.dictionary)
        places = pa.nulls(len(column.dictionary), pa.int8())
        pa.DictionaryArray.from_arrays(column.indices, places)
    elif column.type in _AS_BYTES:
        pa.Array.from_buffers(_AS_BYTES[column.type], len(column), column.buffers(), offset=column.offset).validate(
            full=True
        )
    else:
        column.validate(full=True)
