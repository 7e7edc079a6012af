"""Tables of results as files and messages can hold them, and one table for all queries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from job_engine.delta_log import is_table
from job_engine.place import Place
from job_engine.sinks.kinds import Layout, Sink, publishing
from job_engine.sinks.names import RESULT_FILE
from querylang.errors import InputError
from runtime.column_types import has_column, one_chunk
from runtime.instants import EARLIEST, LATEST
from runtime.json_reader import json_of_text
from runtime.results.for_users import COMMON, Plain, column_cells, plain_value
from runtime.results.schemas import TIMESTAMP

# Rewrite tables of results so that Parquet, CSV or JSON can hold them.

_FORMULA = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"


def flattened(table: pa.Table) -> pa.Table:
    """For CSV: fields of structs become columns `column.field`, lists and maps become JSON text."""
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return pa.table([_text_of_nested(column) for column in table.columns], names=table.column_names)


def _text_of_nested(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_nested(column.type):
        return column
    texts = [None if cell is None else _json(plain_value(cell)) for cell in column_cells(column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def without_formulas(table: pa.Table) -> pa.Table:
    """For CSV that spreadsheets open: text that begins like a formula gets a `'` before it.

    Names of columns too. What begins so: `= + - @`, a tab, a line end, and their wide forms.
    """

    def escaped(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        is_text = pa.types.is_string(text.type) or pa.types.is_large_string(text.type)
        return pc.replace_substring_regex(text, _FORMULA, r"'\0") if is_text else text

    names = escaped(pa.array(table.column_names, pa.string())).to_pylist()
    return pa.table([escaped(column) for column in table.columns], names=names)


def json_rows(table: pa.Table) -> list[Plain]:
    """For JSON: values as in `runtime.results.for_users`, times as ISO 8601 text."""
    columns = [_with_text_times(one_chunk(column)) for column in table.columns]
    rows: list[Plain] = pa.table(columns, names=table.column_names).to_pylist(maps_as_pydicts="lossy")
    return [_plain(row) for row in rows]


def _plain(row: dict[str, Any]) -> Plain:
    return {name: plain_value(value) for name, value in row.items()}


def json_texts(table: pa.Table) -> list[str]:
    """`json_rows`, each as JSON text: made by column, as objects cost ten times as much."""
    columns = [_texts(one_chunk(column)) for column in table.columns]
    return _objects(table.column_names, columns, len(table))


def plain_texts(column: pa.Array) -> list[str] | None:
    """The cells of a column of texts or integers as text; None = it has others, or nulls."""
    kind = column.type
    if column.null_count or not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return None
    return [str(value) for value in column.to_pylist()]


def _objects(names: Sequence[str], columns: Sequence[Sequence[str]], count: int) -> list[str]:
    """JSON objects, of the texts of their values by column."""
    if not names:
        return ["{}"] * count
    form = ", ".join(f"{_TEXT(name)}: ".replace("%", "%%") + "%s" for name in names)
    return [f"{{{form}}}" % row for row in zip(*columns, strict=True)]


def _texts(column: pa.Array) -> list[str]:
    """The JSON texts of a column's cells."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [_texts(part) for part in column.flatten()]
        return _or_null(column, _objects([field.name for field in kind], fields, len(column)))
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        each = iter(_texts(column.flatten()))
        counts = column.value_lengths().fill_null(0).to_pylist()
        return _or_null(column, [f"[{', '.join(islice(each, count))}]" for count in counts])
    if pa.types.is_timestamp(kind):
        return _time_texts(column)
    if pa.types.is_integer(kind):
        return _or_null(column, list(map(str, column.to_pylist())))
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        return ["null" if value is None else repr(value) for value in column.to_pylist()]
    if pa.types.is_boolean(kind):
        return [_BOOLEANS[value] for value in column.to_pylist()]
    if pa.types.is_string(column.type):
        return ["null" if value is None else _TEXT(value) for value in column.to_pylist()]
    return [_json(plain_value(value)) for value in column_cells(column)]


def _time_texts(column: pa.Array) -> list[str]:
    """As of `_with_text_times`; numpy writes a time in a fifth of the time."""
    if column.type == TIMESTAMP:
        micros = column.cast(pa.int64()).fill_null(0).to_numpy()
        if not len(micros) or (micros.min() >= EARLIEST and micros.max() <= LATEST):
            texts = np.datetime_as_string(micros.view("M8[us]")).tolist()
            return _or_null(column, [f'"{text}Z"' for text in texts])
    return ["null" if value is None else _TEXT(value) for value in _with_text_times(column).to_pylist()]


_TEXT = json.encoder.encode_basestring
_BOOLEANS = {True: "true", False: "false", None: "null"}


def _or_null(column: pa.Array, texts: list[str]) -> list[str]:
    if not column.null_count:
        return texts
    return [text if there else "null" for text, there in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _with_text_times(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return pa.compute.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_struct(column.type) and column.type.num_fields:
        names = [field.name for field in column.type]
        fields = [_with_text_times(part) for part in column.flatten()]
        return pa.StructArray.from_arrays(fields, names, mask=column.is_null())
    if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
        counts = column.value_lengths().fill_null(0).to_numpy()
        ends = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        return pa.ListArray.from_arrays(ends, _with_text_times(column.flatten()), mask=column.is_null())
    return column


# Matches of all queries in one table: what queries have in common as columns, the rest as JSON.
#
# For jobs with so many queries that a folder or table for each would be too many.

KEY, MEMBERS = "key", "members"
"""The columns of JSON: the key, and what the query's own table would have besides."""


def one_table(matches: pa.Table) -> pa.Table:
    """Matches of a query, as its own table has them, as rows of the table of all queries."""
    own = [name for name in matches.column_names if name not in (*COMMON, KEY)]
    columns = {name: matches.column(name) for name in COMMON}
    keys = json_rows(matches.select([KEY])) if has_column(matches, KEY) else [{KEY: {}}] * len(matches)
    columns[KEY] = pa.array([_text(row[KEY]) for row in keys], pa.string())
    columns[MEMBERS] = pa.array(json_texts(matches.select(own)), pa.string())
    return pa.table(columns)


def row_of_query(row: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse for one row: with the columns of the query's own table, its values as in JSON."""
    key = json_of_text(row[KEY], dict[str, Any])
    own: dict[str, Any] = {name: row[name] for name in COMMON}
    return own | ({KEY: key} if key else {}) | json_of_text(row[MEMBERS], dict[str, Any])


def is_in_one(sinks: Mapping[str, Sink], name: str) -> bool:
    """Whether a sink has one table for all queries."""
    return name in sinks and sinks[name].layout is Layout.ONE


def one_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the table of all queries; `schema`: of any query's own table."""
    return one_table(schema.empty_table()).schema


def refuse_other_layout(sink: Sink) -> None:
    """Raise InputError if the sink of matches has results of the other layout: readers would get
    both. Writes nothing."""
    if sink.place is None:
        return
    if sink.layout is Layout.ONE:
        other = publishing(sink).table_of_one_query(sink)
        if other is not None:
            raise InputError(
                f"{other}: has matches of one query; 'layout: one' needs another folder, or 'layout: query'"
            )
    elif is_table(sink.place) or any(RESULT_FILE.fullmatch(name) for name in _files_in(sink.place)):
        raise InputError(f"{sink.place}: has matches of all queries; choose another folder, or 'layout: one'")


def _files_in(folder: Place) -> list[str]:
    return [item.name for item in folder.iterdir() if item.is_file()] if folder.is_dir() else []


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
