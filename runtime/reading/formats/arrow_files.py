"""Arrow files and Feather files: Arrow's own format, as a file or as a stream, in parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from querylang.errors import InputError
from runtime.reading.formats.asked import Asked
from runtime.reading.formats.long_rows import without_long_rows
from runtime.reading.formats.raw_table import RawTable, of_columns, refuse_repeated

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
