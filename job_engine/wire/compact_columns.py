"""Tables of records as Arrow IPC bytes; columns with one value are sent once, in the schema.

A source's name, its partition or a null text are usually the same for a whole batch.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from runtime.arrow_types import has_column
from runtime.columns.arrivals import MOVED_FIELD, SHAPE_FIELDS, SYSTEM_FIELDS
from runtime.json_reader import json_of_text
from runtime.json_shapes import Count

_CONSTANTS = b"ensue.constants"
_OPTIONAL = (*SHAPE_FIELDS, MOVED_FIELD)
"""System columns that are sent only if a batch has them."""


def split_constants(table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """The columns that vary, and the values of the system columns that do not.

    Fields that are null throughout are dropped. `_offset` always stays: without a column a table
    would have no rows.
    """
    constants: dict[str, Any] = {}
    for field in (*SYSTEM_FIELDS, *_OPTIONAL):
        if field.name != "_offset" and has_column(table, field.name) and _is_constant(table.column(field.name)):
            constants[field.name] = table.column(field.name)[0].as_py()
    empty = {name for name in table.column_names if table.column(name).null_count == len(table)}
    kept = [name for name in table.column_names if name not in constants and name not in empty]
    return table.select(kept).combine_chunks(), constants


def _is_constant(column: pa.ChunkedArray) -> bool:
    if column.null_count:
        return column.null_count == len(column)
    first = column[0]
    return column[-1] == first and bool(pc.all(pc.equal(column, first)).as_py())


def to_bytes(table: pa.Table, constants: dict[str, Any]) -> bytes:
    """An Arrow IPC stream with the constants as metadata of its schema."""
    metadata = {_CONSTANTS: json.dumps({"rows": table.num_rows, "values": constants})}
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata(metadata)
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return sink.getvalue().to_pybytes()


class _Stored(TypedDict):
    rows: Count
    values: dict[str, Any]


def from_bytes(data: memoryview, schema: pa.Schema) -> pa.Table:
    """The table with all columns of `schema`, and the optional ones that were sent."""
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    stored = json_of_text(table.schema.metadata[_CONSTANTS], _Stored)
    rows, values = stored["rows"], stored["values"]
    names = set(table.column_names)
    optional = [field for field in _OPTIONAL if field.name in names or field.name in values]
    schema, columns = pa.schema([*schema, *optional]), []
    for field in schema:
        if field.name in names:
            columns.append(table.column(field.name))
        elif values.get(field.name) is not None:
            columns.append(pa.repeat(pa.scalar(values[field.name], field.type), rows))
        else:
            columns.append(pa.nulls(rows, field.type))
    return pa.table(columns, schema=schema)
