"""Arrow tables as pandas DataFrames, with types that have a missing value.

pandas' own types have none for integers, truth values and text: a column would change its type
with its first missing value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ensue.rendering.match_tables import matches_paths, matches_table
from querylang.plan.model import METADATA, Plan
from runtime.results.for_users import column_cells, row_is_offset
from runtime.results.schemas import TIMESTAMP, TOLD, Results

_NULLABLE = {
    pa.int64(): pd.Int64Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype("pyarrow"),
}

_TYPES: dict[pa.DataType, Any] = _NULLABLE | {TIMESTAMP: pd.DatetimeTZDtype("us", "UTC")}

_BY_NUMBER = {type_.id: type_ for type_ in _TYPES}
"""By Arrow's number of a type: a type is slow to look up."""

_TEXTS = TOLD[METADATA]
"""Texts by name, which a column of Python's dictionaries holds."""

_FEW = 100
"""Rows. Of a smaller table, columns of one type are converted together: each conversion costs."""


def frame_of(table: pa.Table) -> pd.DataFrame:
    """A DataFrame with nullable types; lists, structs and dictionaries are Python's."""
    frame = _small_frame(table) if 0 < len(table) <= _FEW else None
    if frame is not None:
        return frame
    nested = {field.name for field in table.schema if pa.types.is_nested(field.type)}
    frame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame.assign(**{name: pd.Series(column_cells(table.column(name)), dtype=object) for name in nested})


def _small_frame(table: pa.Table) -> pd.DataFrame | None:
    """None = a column is of another type."""
    types = table.schema.types
    chunks: dict[int, list[pa.Array]] = {}
    texts: list[Any] = []
    for type_, column in zip(types, table.itercolumns(), strict=True):
        if type_ == _TEXTS:
            texts.append(_objects(column.to_pylist()))
            continue
        if type_ != _BY_NUMBER.get(type_.id):
            return None
        chunks.setdefault(type_.id, []).extend(column.chunks)
    parts = {number: _converted(number, its_chunks, len(table)) for number, its_chunks in chunks.items()}
    parts[_TEXTS.id] = iter(texts)
    columns = [next(parts[type_.id]) for type_ in types]
    return _frame(columns, pd.Index(table.column_names), len(table))


def _converted(number: int, chunks: list[pa.Array], rows: int) -> Iterator[Any]:
    """The columns of one type, one after another and each with so many rows, as pandas has them."""
    values = _TYPES[_BY_NUMBER[number]].__from_arrow__(pa.concat_arrays(chunks))
    return (values[start : start + rows] for start in range(0, len(values), rows))


def _objects(cells: Sequence[Sequence[tuple[str, str]] | None]) -> Any:
    """A column of dictionaries."""
    column = np.empty(len(cells), object)
    column[:] = [None if cell is None else dict(cell) for cell in cells]
    return column


def _frame(columns: list[Any], names: pd.Index[str], rows: int) -> pd.DataFrame:
    """What `DataFrame` would check, column by column, is known here."""
    index = pd.RangeIndex(rows)
    make: Callable[..., pd.DataFrame] = pd.DataFrame._from_arrays  # type: ignore[attr-defined]  # noqa: SLF001
    return make(columns, columns=names, index=index, verify_integrity=False)


class RowFrames:
    """Makes DataFrames of few rows from the values of their cells, as `frame_of` of a table.

    is_possible: whether it can, with columns of these types
    """

    def __init__(self, schema: pa.Schema) -> None:
        types = schema.types
        self.is_possible = all(type_ in (_BY_NUMBER.get(type_.id), _TEXTS) for type_ in types)
        self._names = pd.Index(schema.names)
        self._numbers = [type_.id for type_ in types]
        self._places = {
            number: [place for place, other in enumerate(self._numbers) if other == number]
            for number in dict.fromkeys(self._numbers)
        }

    def of(self, columns: Sequence[Sequence[Any]]) -> pd.DataFrame:
        """A DataFrame.

        columns: by column its cells, at least one; times in µs
        """
        rows = len(columns[0])
        parts: dict[int, Iterator[Any]] = {}
        for number, places in self._places.items():
            if number == _TEXTS.id:
                parts[number] = iter([_objects(columns[place]) for place in places])
                continue
            values = [value for place in places for value in columns[place]]
            parts[number] = _converted(number, [pa.array(values, _BY_NUMBER[number])], rows)
        # A view, because users may name the columns of theirs.
        return _frame([next(parts[number]) for number in self._numbers], self._names.view(), rows)


# Few matches as a DataFrame, without Arrow tables between: those cost more than the matches.


class MatchFrames:
    """Makes the DataFrames of a plan's matches, as `matches_table` has them."""

    def __init__(self, plan: Plan) -> None:
        self._frames = RowFrames(matches_table(plan, Results(), row_is_offset).schema)
        self._has_routes = any(query.routes for query in plan.queries)  # what is routed is in no row
        self._paths = matches_paths(plan)

    def of(self, matches: Sequence[Mapping[str, Any]]) -> pd.DataFrame | None:
        """None = some column is of another type than most.

        matches: at least one, in order; with the columns of `match_schema`, times in µs
        """
        if self._has_routes or not self._frames.is_possible:
            return None
        return self._frames.of([[_cell(match, path) for match in matches] for path in self._paths])


def _cell(match: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = match
    for name in path:
        if value is None:
            return None
        value = value[name]
    return value
