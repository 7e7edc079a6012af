"""Files of results, as tasks write them: one per part of a sink.

A file's name says which checkpoint, micro-batch and task wrote it. Matches go to one folder per
query inside the sink's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from job_engine.arrow_files import csv_writer, parquet_writer
from job_engine.durable_files import NewFolders, complete
from job_engine.errors import writing_to
from job_engine.place import Place, writable
from job_engine.sinks import kinds
from job_engine.sinks.folder.settings import FolderSink, Formulas
from job_engine.sinks.kinds import Draft, MicroBatch, Sink
from job_engine.sinks.tables import flattened, json_texts, without_formulas
from runtime.results.for_users import parquet_settings


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
            self._writer = parquet_writer(self._path, table.schema, **parquet_settings(table.schema))
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Csv:
    """Flattened: `a.fields.v` is a column."""

    def __init__(self, path: Path, formulas: Formulas) -> None:
        self._path = path
        self._escapes = formulas == Formulas.ESCAPE
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        flat = flattened(table)
        if self._escapes:
            flat = without_formulas(flat)
        if self._writer is None:
            self._writer = csv_writer(self._path, flat.schema)
        self._writer.write_table(flat)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Json:
    """JSON lines."""

    def __init__(self, path: Path, _formulas: Formulas) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, table: pa.Table) -> None:
        self._file.writelines(f"{text}\n" for text in json_texts(table))

    def close(self) -> None:
        self._file.close()


_FILES: Mapping[str, Callable[[Path, Formulas], _File]] = {"parquet": _Parquet, "json": _Json, "csv": _Csv}
"""By format, which is how names end, too."""


class FileWriter:
    """The files of one task, as drafts: one per part, and one more where columns differ.

    Columns differ when a query has been replaced, as long as its old text gives matches, too.
    """

    def __init__(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> None:
        own: FolderSink = sink.own
        self._suffix = f".{sink.format}"
        self._open_file = _FILES[sink.format]
        self._formulas = own.formulas
        self._base = sink.folder
        self._batch = batch.name
        self._task = f"{task:05d}"
        self._attempt = attempt
        self._folders = NewFolders()
        self._open: dict[Place, tuple[Place, Path, pa.Schema, _File]] = {}

    def write(self, part: str, table: pa.Table) -> str:
        """Add a table to the part's file; gives the name that the file will have."""
        folder = self._base / part
        path = self._path(folder, table.schema)
        with writing_to(folder):
            if path not in self._open:
                self._folders.make(folder)
                draft = folder / f".{path.name.removesuffix(self._suffix)}.{self._attempt}.draft"
                file = writable(draft)
                self._open[path] = (draft, file, table.schema, self._open_file(file, self._formulas))
            self._open[path][-1].write(table)
        return str(path)

    def _path(self, folder: Place, schema: pa.Schema) -> Place:
        """A file with these columns, or one that is not open yet.

        No task has a number with more zeros.
        """
        names = (f"{self._batch}{'0' * zeros}{self._task}{self._suffix}" for zeros in count())
        paths = (folder / name for name in names)
        return next(path for path in paths if path not in self._open or self._open[path][2].equals(schema))

    def finish(self) -> tuple[Draft, ...]:
        """Close the files; they are on the disk when this returns."""
        with writing_to(self._base):
            for *_, opened in self._open.values():
                opened.close()
            self._folders.sync()
            complete([(file, draft) for draft, file, *_ in self._open.values()])
        return tuple(Draft(str(draft), str(path)) for path, (draft, *_) in self._open.items())

    def abort(self) -> None:
        """Close the files and remove them."""
        for _, file, _, opened in self._open.values():
            with suppress(OSError, pa.ArrowException):  # a full disk refuses the end of a file, too
                opened.close()
            file.unlink(missing_ok=True)


class Writing(kinds.Writing):
    """Tasks write drafts beside the files; see `kinds.Writing`."""

    own = FolderSink

    def open(self, sink: Sink, batch: MicroBatch, task: int, attempt: int) -> FileWriter:
        """A writer of one file per part."""
        return FileWriter(sink, batch, task, attempt)


WRITING = Writing()
