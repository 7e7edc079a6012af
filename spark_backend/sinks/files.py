"""Files as sinks, exactly once per micro-batch.

A file's name says which checkpoint, micro-batch and task wrote it. The driver makes it visible by
renaming it once all tasks of the micro-batch have ended. So a micro-batch that is repeated after a
crash writes the same files again: nothing is lost and nothing is doubled. Readers need no list of
valid files: pandas, DuckDB and Spark read the folder.

Matches go to one folder per query inside the sink's folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from querylang.errors import InputError
from runtime.results.parquet_layout import parquet_settings
from spark_backend.delta.commit_log import is_table
from spark_backend.durable_files import complete, make_folder, rename
from spark_backend.errors import unwritable
from spark_backend.places.place import Place, files_below, in_same_system, writable
from spark_backend.sinks.file_names import RESULT_FILE
from spark_backend.sinks.formats import Draft, Formulas, Result, Sink, SinkFormat
from spark_backend.wire.file_layouts import flattened, json_rows, without_formulas


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

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:
        """Refuse folders of Delta tables: nobody who reads these would see the files."""
        for part in parts:
            if is_table(sink.path / part):
                raise InputError(f"{sink.path / part}: is a Delta table; set `format: delta`, or choose another folder")

    def open(self, sink: Sink, batch: str, task: int, attempt: int) -> FileWriter:
        """A writer of one file per part; see `SinkFormat`."""
        return FileWriter(self, sink, batch, f"{task:05d}", attempt)

    def results(self, sink: Sink) -> Iterator[Result]:
        """The results in a folder, by the names of files; see `SinkFormat`."""
        for file in files_below(sink.path):
            found = RESULT_FILE.fullmatch(file.name)
            if found is not None:
                yield Result(found["identity"], int(found["batch"]), str(file))

    def publish(self, batch: str, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:  # noqa: ARG002
        """Rename the drafts; they are on the disk when this returns."""
        for sink, own in drafts:
            place = partial(in_same_system, sink.path)
            try:
                rename([(place(draft.path), place(draft.place)) for draft in own])
            except OSError as error:
                raise unwritable(sink.path, error) from error

    def remove_leftovers(self, sink: Sink, batch: str, written: Collection[str]) -> None:
        """Remove the micro-batch's files but those written now, and the checkpoint's drafts."""
        drafts = f".{batch.partition('-')[0]}-"
        for file in list(files_below(sink.path.resolve())):
            is_draft = file.name.startswith(drafts) and file.name.endswith(".draft")
            if is_draft or (file.name.startswith(batch) and str(file) not in written):
                file.unlink(missing_ok=True)


class FileWriter:
    """The files of one task, as drafts: one per part, and one more where columns differ.

    Columns differ when a query has been replaced, as long as its old text gives matches, too.
    """

    def __init__(self, files: FolderOfFiles, sink: Sink, batch: str, task: str, attempt: int) -> None:
        self._files = files
        self._base = sink.path
        self._formulas = sink.formulas
        self._batch = batch
        self._task = task
        self._attempt = attempt
        self._open: dict[Place, tuple[Place, Path, pa.Schema, _File]] = {}

    def write(self, part: str, table: pa.Table) -> str:
        """Add a table to the part's file; gives the name that the file will have."""
        folder = self._base / part
        try:
            return self._write(folder, table)
        except OSError as error:
            raise unwritable(folder, error) from error

    def _write(self, folder: Place, table: pa.Table) -> str:
        path = self._path(folder, table.schema)
        if path not in self._open:
            make_folder(folder)
            draft = folder / f".{path.name.removesuffix(self._files.suffix)}.{self._attempt}.draft"
            file = writable(draft)
            self._open[path] = (draft, file, table.schema, self._files.open_file(file, self._formulas))
        self._open[path][-1].write(table)
        return str(path)

    def _path(self, folder: Place, schema: pa.Schema) -> Place:
        """A file with these columns, or one that is not open yet.

        No task has a number with more zeros.
        """
        names = (f"{self._batch}{'0' * zeros}{self._task}{self._files.suffix}" for zeros in count())
        paths = (folder / name for name in names)
        return next(path for path in paths if path not in self._open or self._open[path][2].equals(schema))

    def finish(self) -> tuple[Draft, ...]:
        """Close the files; they are on the disk when this returns."""
        try:
            for *_, opened in self._open.values():
                opened.close()
            complete([(file, draft) for draft, file, *_ in self._open.values()])
        except OSError as error:
            raise unwritable(self._base, error) from error
        return tuple(Draft(str(draft), str(path)) for path, (draft, *_) in self._open.items())

    def abort(self) -> None:
        """Close the files and remove them."""
        for _, file, _, opened in self._open.values():
            with suppress(OSError, pa.ArrowException):  # a full disk refuses the end of a file, too
                opened.close()
            file.unlink(missing_ok=True)


FORMATS: Mapping[str, SinkFormat] = {
    "parquet": FolderOfFiles(".parquet", _Parquet),
    "json": FolderOfFiles(".json", _Json),
    "csv": FolderOfFiles(".csv", _Csv),
}
