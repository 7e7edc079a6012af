"""The data files that a task writes for Delta tables: one per table and partition."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from job_engine.arrow_files import parquet_writer
from job_engine.chance import new_name
from job_engine.delta_publishing import DataFile, file_statistics
from job_engine.durable_files import complete, make_folder, sync
from job_engine.errors import writing_to
from job_engine.place import Place, writable
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Sink
from job_engine.sinks.table.settings import DAY, TableSink
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from runtime.column_types import has_column
from runtime.json_reader import json_of_text
from runtime.json_shapes import Count
from runtime.results.for_users import parquet_settings

_TIMES = ("time", "arrival")
"""What a day is of: matches and outputs have the first column, discarded records the second."""

Values = tuple[str | None, ...]
"""Those of the partition columns, as the log has them."""


@dataclass(frozen=True, slots=True)
class Details:
    """What the driver has to know of a data file.

    table: the folder of its table
    schema: its columns as text: nobody has to read the file for them, which may be in a store
    """

    table: str
    schema: str
    file: DataFile

    @property
    def columns(self) -> pa.Schema:
        """Its columns."""
        return pa.ipc.read_schema(pa.py_buffer(b64decode(self.schema)))

    def to_text(self) -> str:
        """As JSON text."""
        file = self.file
        return json.dumps([self.table, self.schema, file.path, file.size, dict(file.partition), file.statistics])

    @staticmethod
    def of_text(text: str) -> Details:
        """The inverse of `to_text`."""
        table, schema, path, size, partition, statistics = json_of_text(
            text, tuple[str, str, str, Count, dict[str, str | None], str]
        )
        return Details(table, schema, DataFile(path, size, partition, statistics))


def with_partitions(schema: pa.Schema, partition_by: Sequence[str], path: Place) -> pa.Schema:
    """The schema of a table: that of its data files, and the columns that its partitions have.

    path: of the table, for messages. Raises InputError for a name that is used twice.
    """
    if DAY in partition_by and DAY in schema.names:
        raise InputError(f"{path}: 'partition_by: {DAY}' makes a column '{DAY}', and the results have one")
    columns = [name for name in partition_by if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, pa.date32() if name == DAY else pa.string()) for name in columns)])


@dataclass(slots=True)
class _OpenFile:
    """A data file; nobody sees it before it is in the log.

    local: the file that is written: itself, or one that is copied to its store
    """

    table: Place
    path: str
    partition: Mapping[str, str | None]
    local: Path | None = None
    writer: Any = field(default=None)
    schema: Any = field(default=None)
    footers: list[pq.FileMetaData] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return self.table / self.path

    def write(self, rows: pa.Table) -> None:
        if self.writer is None:
            make_folder(self.place.parent)
            self.schema = rows.schema
            settings = parquet_settings(rows.schema)
            self.local = writable(self.place)
            self.writer = parquet_writer(self.local, rows.schema, metadata_collector=self.footers, **settings)
        self.writer.write_table(rows)

    def close(self) -> Draft:
        """What the driver has to know of it; `complete` makes it survive."""
        assert self.local is not None, "a data file without rows"
        self.writer.close()
        statistics = file_statistics(self.footers[0], self.schema)
        file = DataFile(self.path, self.local.stat().st_size, self.partition, statistics)
        return Draft(
            str(self.place), str(self.place), Details(str(self.table), _schema_text(self.schema), file).to_text()
        )

    def abort(self) -> None:
        if self.writer is not None:
            with suppress(OSError, RuntimeError, pa.ArrowException):  # a full disk refuses the end of a file, too
                self.writer.close()
        if self.local is not None:
            self.local.unlink(missing_ok=True)


class DeltaWriter:
    """The data files of one task.

    stem: what their names begin with. They end in something new: a commit may have the names of
        an earlier attempt
    """

    def __init__(self, base: Place, own: TableSink, stem: str) -> None:
        self._base = base
        self._partition_by = own.partition_by
        self._stem = stem
        self._open: dict[tuple[str, Values, str], _OpenFile] = {}

    def write(self, part: str, table: pa.Table) -> str:
        """Add a table to the files of its partitions; gives the name of one of them."""
        with writing_to(self._base / part):
            files = [self._written(part, values, rows) for values, rows in _partitions(table, self._partition_by)]
        return str(files[0].place)

    def _written(self, part: str, values: Values, rows: pa.Table) -> _OpenFile:
        key = (part, values, _schema_text(rows.schema))  # the columns of a replaced text may be others
        if key not in self._open:
            partition = dict(zip(self._partition_by, values, strict=True))
            day = partition.get(DAY)
            folder = "" if day is None else f"{DAY}={day}/"
            path = f"{folder}{self._stem}-{new_name(8)}.parquet"
            self._open[key] = _OpenFile(self._base / part, path, partition)
        file = self._open[key]
        file.write(rows)
        return file

    def finish(self) -> tuple[Draft, ...]:
        """Close the files; they are on the disk when this returns."""
        with writing_to(self._base):
            files = list(self._open.values())
            drafts = tuple(file.close() for file in files)
            complete([(file.local, file.place) for file in files if file.local is not None])
            for folder in dict.fromkeys(file.place.parent for file in files):
                sync(folder)
        return drafts

    def abort(self) -> None:
        """Close the files and remove them."""
        for file in self._open.values():
            file.abort()


def _schema_text(schema: pa.Schema) -> str:
    return b64encode(schema.remove_metadata().serialize()).decode()


def _partitions(table: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """The rows of each partition, without the columns that are its values."""
    if not partition_by:
        yield (), table
        return
    columns = [_values(table, name) for name in partition_by]
    left = table.drop_columns([name for name in partition_by if has_column(table, name)])
    codes = np.column_stack([column.indices.fill_null(-1).to_numpy(zero_copy_only=False) for column in columns])
    present, inverse = np.unique(codes, axis=0, return_inverse=True)
    for number, row in enumerate(present.tolist()):
        values = tuple(
            None if code < 0 else column.dictionary[code].as_py() for code, column in zip(row, columns, strict=True)
        )
        yield values, left.filter(pa.array(inverse.reshape(-1) == number))


def _values(table: pa.Table, name: str) -> pa.DictionaryArray:
    """The values of a partition column as text, which is how the log has them."""
    if name == DAY:
        time = next(table.column(column) for column in _TIMES if has_column(table, column))
        texts = pc.strftime(pc.floor_temporal(time, unit="day"), "%Y-%m-%d")
    else:
        texts = table.column(name)
    return texts.combine_chunks().dictionary_encode()


class Writing(kinds.Writing):
    """Tasks write data files; see `kinds.Writing`."""

    own = TableSink

    def open(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> DeltaWriter:  # noqa: ARG002
        """A writer of data files. Their names are new: a commit may have the older ones."""
        own: TableSink = sink.own
        return DeltaWriter(sink.folder, own, f"{batch.name}{task:05d}")


WRITING = Writing()
