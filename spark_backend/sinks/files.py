"""Sinks: files written by the workers, exactly once a micro-batch.

Takes tagged rows of one micro-batch; gives files in each sink's folder and, to the driver, what was written. A file's
name says which checkpoint, micro-batch and task wrote it, and it appears by a rename: a micro-batch that is repeated
after a crash writes the same files again, so nothing is lost and nothing stands twice. Readers need no list of valid
files: `pandas.read_parquet(folder)`, DuckDB and Spark read the folder as it is.

Matches of several queries go to one folder a query, named by it, inside the sink's folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import DataFrame

from spark_backend.wire.decode import table_of
from spark_backend.wire.file_layouts import flattened, json_rows
from spark_backend.wire.plan_text import on_worker
from spark_backend.wire.program import load_program
from spark_backend.wire.tagged_rows import Tag


class FileFormat(StrEnum):
    """The formats in which a sink can be written; the value is the file's suffix."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class FileSink:
    """A folder and the format of its files."""

    format: FileFormat
    path: str


SINK_OF = {
    Tag.MATCH: "matches",
    Tag.OUTPUT: "output",
    Tag.ERROR: "output",
    Tag.DISCARDED: "discarded",
    Tag.LEDGER: "ledger",
}
"""Which sink, by its name in a deployment file, takes which kind of tagged row."""

FOR_DRIVER = {Tag.LEDGER, Tag.METRIC, Tag.SOURCE, Tag.TIMELINE}
"""What the driver gets itself, not only as a count."""

WRITTEN_DDL = "kind string, query string, rows long, file string, data binary"
WRITTEN_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("query", pa.string()),
        ("rows", pa.int64()),
        ("file", pa.string()),
        ("data", pa.binary()),
    ]
)
"""What the driver gets: counts by kind and query, files written, and the accounts and metrics themselves."""


@dataclass(frozen=True, slots=True)
class Written:
    """One table of one task: `file` where it went to a sink; `data` of what is FOR_DRIVER."""

    tag: Tag
    query: str
    rows: int
    file: str | None
    data: bytes | None


def write_batch(
    tagged: DataFrame, program: str, sinks: Mapping[str, FileSink], identity: str, batch: int
) -> list[Written]:
    """Write all tables of a micro-batch, in one Spark job; `identity` names the checkpoint."""
    plain = json.dumps({name: asdict(sink) for name, sink in sinks.items()})
    run = on_worker("spark_backend.sinks.files", "write_tables", program, plain, batch_name(identity, batch))
    rows = tagged.mapInArrow(run, WRITTEN_DDL).collect()
    return [
        Written(Tag(row["kind"]), row["query"], row["rows"], row["file"], row["data"] and bytes(row["data"]))
        for row in rows
    ]


def batch_name(identity: str, batch: int) -> str:
    """The beginning of the names of all files of a micro-batch."""
    return f"{identity}-{batch:08d}-"


def folder_of(sink: FileSink, tag: Tag, query: str, queries: int) -> Path:
    """Where a table goes."""
    return Path(sink.path) / query if tag is Tag.MATCH and queries > 1 else Path(sink.path)


def remove_leftovers(sinks: Mapping[str, FileSink], identity: str, batch: int, written: list[Written]) -> None:
    """Remove files of this micro-batch that an interrupted attempt left and the repeated one did not write."""
    kept = {row.file for row in written}
    name = batch_name(identity, batch)
    for sink in sinks.values():
        for path in Path(sink.path).rglob(f"*{name}*"):
            if str(path) not in kept and path.name.lstrip(".").startswith(name):
                path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------- on workers


def write_tables(program: str, sinks: str, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over tagged rows: one file a kind, query and task."""
    from pyspark import TaskContext

    plan = load_program(program).plan()
    chosen = {key: FileSink(FileFormat(sink["format"]), sink["path"]) for key, sink in json.loads(sinks).items()}
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
    files = _Files(f"{name}{task:05d}", attempt)
    told: list[Written] = []
    with files:
        for row in _rows(batches):
            tag, query, data = Tag(row["kind"]), row["query"], row["data"]
            sink = chosen.get(SINK_OF.get(tag, ""))
            file = None
            if sink is not None:
                folder = folder_of(sink, tag, query, len(plan.queries))
                file = files.write(folder, sink.format, table_of(data, tag, query, plan))
            told.append(Written(tag, query, row["rows"], file, data if tag in FOR_DRIVER else None))
    yield _told(told)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _told(rows: list[Written]) -> pa.RecordBatch:
    columns = {
        "kind": [str(row.tag) for row in rows],
        "query": [row.query for row in rows],
        "rows": [row.rows for row in rows],
        "file": [row.file for row in rows],
        "data": [row.data for row in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=WRITTEN_SCHEMA)


class _Writer(Protocol):
    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Files:
    """The files that one task has open; they get their names together when all of them are complete."""

    def __init__(self, stem: str, attempt: int) -> None:
        self._stem = stem
        self._attempt = attempt
        self._open: dict[Path, tuple[Path, _Writer]] = {}

    def write(self, folder: Path, format_: FileFormat, table: pa.Table) -> str:
        """Add a table to the folder's file; gives the name that the file will have."""
        path = folder / f"{self._stem}.{format_}"
        if path not in self._open:
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{self._stem}.{self._attempt}.draft"
            self._open[path] = (draft, _writer(format_, draft, table.schema))
        self._open[path][1].write(table)
        return str(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path, (draft, writer) in self._open.items():
            writer.close()
            if kind is None:
                draft.replace(path)
            else:
                draft.unlink(missing_ok=True)


def _writer(format_: FileFormat, path: Path, schema: pa.Schema) -> _Writer:
    match format_:
        case FileFormat.PARQUET:
            return _Parquet(path, schema)
        case FileFormat.CSV:
            return _Csv(path)
        case FileFormat.JSON:
            return _Json(path)


class _Parquet:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pa.parquet.ParquetWriter(path, schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _Csv:
    """As `shapes.flattened` has it: `a.fields.v` is a column."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        flat = flattened(table)
        if self._writer is None:
            self._writer = pa.csv.CSVWriter(self._path, flat.schema)
        self._writer.write_table(flat)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Json:
    """JSON lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, table: pa.Table) -> None:
        for row in json_rows(table):
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()
