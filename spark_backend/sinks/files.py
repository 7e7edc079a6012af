"""Files as sinks, exactly once per micro-batch.

A file's name says which checkpoint, micro-batch and task wrote it. The driver makes it visible by
renaming it once all tasks of the micro-batch have ended. So a micro-batch that is repeated after a
crash writes the same files again: nothing is lost and nothing is doubled. Readers need no list of
valid files: pandas, DuckDB and Spark read the folder.

Matches go to one folder per query inside the sink's folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from spark_backend.durable_files import make_folder, rename, sync
from spark_backend.errors import unwritable
from spark_backend.sinks.formats import Draft, Formulas, Result, Sink, SinkFormat
from spark_backend.sinks.parquet_layout import parquet_settings
from spark_backend.wire.file_layouts import flattened, json_rows, without_formulas

_NAME = re.compile(r"(?P<identity>[0-9a-f]{12})-(?P<batch>[0-9]{8,18})-[0-9]{5,}\.(?:parquet|json|csv)")
"""The name of a file of results: `batch_name` of `micro_batch`, the task, the suffix."""


class _File(Protocol):
    """A file that is open for writing."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Parquet:
    """The schema is that of the first table."""

    def __init__(self, path: Path, _formulas: Formulas) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._path, table.schema, **parquet_settings(table.schema))
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Csv:
    """Flattened: `a.fields.v` is a column."""

    def __init__(self, path: Path, formulas: Formulas) -> None:
        self._path = path
        self._escapes = formulas is Formulas.ESCAPE
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        flat = flattened(table)
        if self._escapes:
            flat = without_formulas(flat)
        if self._writer is None:
            self._writer = pa.csv.CSVWriter(self._path, flat.schema)
        self._writer.write_table(flat)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Json:
    """JSON lines."""

    def __init__(self, path: Path, _formulas: Formulas) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, table: pa.Table) -> None:
        for row in json_rows(table):
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class FolderOfFiles:
    """Folders of files of one format.

    suffix: how the names of its files end
    open_file: opens a file of the format
    """

    suffix: str
    open_file: Callable[[Path, Formulas], _File]

    def open(self, sink: Sink, batch: str, task: int, attempt: int) -> FileWriter:
        """A writer of one file per part; see `SinkFormat`."""
        return FileWriter(self, sink, f"{batch}{task:05d}", attempt)

    def results(self, path: Path) -> Iterator[Result]:
        """The results in a folder, by the names of files; see `SinkFormat`."""
        for folder, _, names in os.walk(path):
            for name in names:
                found = _NAME.fullmatch(name)
                if found is not None:
                    yield Result(found["identity"], int(found["batch"]), str(Path(folder, name)))

    def publish(self, sink: Sink, drafts: Sequence[Draft]) -> None:
        """Rename the drafts; they are on the disk when this returns."""
        try:
            rename([(Path(draft.path), Path(draft.place)) for draft in drafts])
        except OSError as error:
            raise unwritable(sink.path, error) from error

    def remove_leftovers(self, path: Path, batch: str, written: Collection[str]) -> None:
        """Remove the micro-batch's files but those written now, and the checkpoint's drafts."""
        for file in path.rglob(f"{batch}*"):
            if str(file) not in written:
                file.unlink(missing_ok=True)
        for draft in path.rglob(f".{batch.partition('-')[0]}-*.draft"):
            draft.unlink(missing_ok=True)


class FileWriter:
    """The files of one task, as drafts."""

    def __init__(self, files: FolderOfFiles, sink: Sink, stem: str, attempt: int) -> None:
        self._files = files
        self._base = sink.path
        self._formulas = sink.formulas
        self._stem = stem
        self._attempt = attempt
        self._open: dict[Path, tuple[Path, _File]] = {}

    def write(self, part: str, table: pa.Table) -> str:
        """Add a table to the part's file; gives the name that the file will have."""
        folder = self._base / part
        try:
            return self._write(folder, table)
        except OSError as error:
            raise unwritable(folder, error) from error

    def _write(self, folder: Path, table: pa.Table) -> str:
        path = folder / f"{self._stem}{self._files.suffix}"
        if path not in self._open:
            make_folder(folder)
            draft = folder / f".{self._stem}.{self._attempt}.draft"
            self._open[path] = (draft, self._files.open_file(draft, self._formulas))
        self._open[path][1].write(table)
        return str(path)

    def finish(self) -> tuple[Draft, ...]:
        """Close the files; they are on the disk when this returns."""
        try:
            for draft, file in self._open.values():
                file.close()
                sync(draft)
        except OSError as error:
            raise unwritable(self._base, error) from error
        return tuple(Draft(str(draft), str(path)) for path, (draft, _) in self._open.items())

    def abort(self) -> None:
        """Close the files and remove them."""
        for draft, file in self._open.values():
            with suppress(OSError, pa.ArrowException):  # a full disk refuses the end of a file, too
                file.close()
            draft.unlink(missing_ok=True)


FORMATS: Mapping[str, SinkFormat] = {
    "parquet": FolderOfFiles(".parquet", _Parquet),
    "json": FolderOfFiles(".json", _Json),
    "csv": FolderOfFiles(".csv", _Csv),
}
