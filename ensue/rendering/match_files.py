"""Matches as a file, written in pieces: Parquet, CSV or JSON lines, as the file's name says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ensue.rendering.csv_matches import csv_matches
from ensue.rendering.left_over import held, remove_left_over
from ensue.rendering.match_tables import own_matches
from job_engine.durable_files import RESULT, new_file
from querylang.errors import InputError
from querylang.paths import exists, is_folder
from querylang.plan.model import Plan
from querylang.printable import json_text
from runtime.replay.order import matches_in_order
from runtime.results.for_users import RowOf, parquet_settings, plain_matches, public, without_empty_structs
from runtime.results.schemas import Results, match_schema
from runtime.threads import thread_count


class MatchFile(Protocol):
    """A file that is being written."""

    def write(self, results: Results) -> None:
        """Append the matches of a call of the engine; they are in order."""

    def close(self) -> None:
        """Write the end of the file."""


class _Parquet:
    """The matches as the engine has them: a struct for the key and for each event.

    Parquet has no structs without fields: a query without keys has no `key`, one without names no
    `members`, and an event without fields no `fields`.
    """

    def __init__(self, file: BinaryIO, plan: Plan, _row_of: RowOf) -> None:
        nothing = public(match_schema(plan, plan.queries[0]).empty_table())
        self._schema = without_empty_structs(nothing).schema
        self._writer = pa.parquet.ParquetWriter(file, self._schema, **parquet_settings(self._schema))
        self._plan = plan

    def write(self, results: Results) -> None:
        table = _in_one(self._plan, results)
        if table is not None:
            self._writer.write_table(without_empty_structs(table))

    def close(self) -> None:
        self._writer.close()


class _Csv:
    """A column for each field of each event."""

    def __init__(self, file: BinaryIO, plan: Plan, row_of: RowOf) -> None:
        self._plan, self._row_of = plan, row_of
        nothing = csv_matches(public(match_schema(plan, plan.queries[0]).empty_table()), row_of)
        self._writer = pa.csv.CSVWriter(file, nothing.schema)

    def write(self, results: Results) -> None:
        table = _in_one(self._plan, results)
        if table is not None:
            self._writer.write_table(csv_matches(table, self._row_of))

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    """The objects of `--format matches`, one a line."""

    def __init__(self, file: BinaryIO, plan: Plan, row_of: RowOf) -> None:
        self._file, self._plan, self._row_of = file, plan, row_of

    def write(self, results: Results) -> None:
        plain = {name: plain_matches(table, self._row_of) for name, table in results.matches.items()}
        lines = [f"{json_text(plain[name][row])}\n" for name, row in matches_in_order(self._plan, results)]
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """Every line is complete."""


class _Beside:
    """Writes the matches of one call while the next ones are found."""

    def __init__(self, file: MatchFile) -> None:
        self._file, self._pool = file, ThreadPoolExecutor(1)
        self._written: Future[None] | None = None

    def write(self, results: Results) -> None:
        self._wait()
        self._written = self._pool.submit(self._file.write, results)

    def close(self) -> None:
        try:
            self._wait()
        finally:
            self._pool.shutdown()
            self._file.close()

    def _wait(self) -> None:
        """Raises what the last writing has raised, once."""
        written, self._written = self._written, None
        if written is not None:
            written.result()


_FORMATS: Mapping[str, Callable[[BinaryIO, Plan, RowOf], MatchFile]] = {
    ".parquet": _Parquet,
    ".csv": _Csv,
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
}


def refuse_bad_path(path: Path) -> None:
    """Raise InputError for a path that cannot become a file of matches."""
    if path.suffix.lower() not in _FORMATS:
        found = f"unknown format {path.suffix}" if path.suffix else "no suffix that names a format"
        raise InputError(f"{path}: {found}; matches are written as {' '.join(_FORMATS)}")
    if exists(path):
        raise InputError(f"{path}: exists already; matches are written to a new file")
    if not is_folder(path.parent):
        raise InputError(f"{path}: there is no folder {path.parent}")


def refuse_several_queries(path: Path, plan: Plan) -> None:
    """Raise InputError if the format has one set of columns, and the queries have several."""
    if path.suffix.lower() in {".jsonl", ".ndjson"}:
        return
    names = list(dict.fromkeys(query.name for query in plan.queries))
    if len(names) != 1:
        found = f"{len(names)} queries ({', '.join(names[:5])}) have" if names else "no query has"
        raise InputError(f"{path}: {found} matches of their own columns; write them as .jsonl, or replay one query")


@contextmanager
def match_file(path: Path, plan: Plan, row_of: RowOf) -> Iterator[MatchFile]:
    """A new file of matches. It appears when it is complete, and not at all if something fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        remove_left_over(path)
        with new_file(draft, RESULT) as file, held(draft):
            writer = _FORMATS[path.suffix.lower()](file, plan, row_of)
            writer = writer if thread_count() == 1 else _Beside(writer)
            try:
                yield writer
            finally:
                writer.close()
        refuse_bad_path(path)  # somebody else may have made one meanwhile
        draft.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _in_one(plan: Plan, results: Results) -> pa.Table | None:
    """The matches of all instances of a query, in order; None = there are none."""
    return own_matches(plan, results, plan.queries[0].name) if results.matches else None
