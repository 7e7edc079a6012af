"""Write a micro-batch of tagged rows to all sinks, and report to the driver what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from querylang.plan.model import Plan
from spark_backend.sinks.formats import Sink, TaskWriter, sink_format
from spark_backend.sinks.path_names import match_folder
from spark_backend.wire.decode import table_of
from spark_backend.wire.program import load_program
from spark_backend.wire.tagged_rows import Tag
from spark_backend.wire.worker_calls import on_worker

SINK_OF = {
    Tag.MATCH: "matches",
    Tag.OUTPUT: "output",
    Tag.ERROR: "output",
    Tag.DISCARDED: "discarded",
    Tag.LEDGER: "ledger",
}
"""The sink that each kind of tagged row goes to, by its name in a deployment file."""

FOR_DRIVER = {Tag.LEDGER, Tag.METRIC, Tag.SOURCE, Tag.TIMELINE, Tag.REPORT}
"""Kinds whose tables are sent to the driver; of the others it gets the number of rows."""

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


@dataclass(frozen=True, slots=True)
class Written:
    """One table of one task.

    tag, query, rows: its kind, its query's title and its number of rows
    file: where its sink put it; None = it has no sink
    data: the table itself, if its kind is FOR_DRIVER
    """

    tag: Tag
    query: str
    rows: int
    file: str | None
    data: bytes | None


def write_batch(tagged: DataFrame, program: str, sinks: Mapping[str, Sink], identity: str, batch: int) -> list[Written]:
    """Write all tables of a micro-batch in one Spark job; `identity` names the checkpoint."""
    plain = json.dumps({name: sink.to_plain() for name, sink in sinks.items()})
    run = on_worker("spark_backend.sinks.micro_batch", "write_tables", program, plain, batch_name(identity, batch))
    rows = tagged.mapInArrow(run, WRITTEN_DDL).collect()
    return [
        Written(Tag(row["kind"]), row["query"], row["rows"], row["file"], row["data"] and bytes(row["data"]))
        for row in rows
    ]


def batch_name(identity: str, batch: int) -> str:
    """The name of a micro-batch in its sinks: file names start with it."""
    return f"{identity}-{batch:08d}-"


def remove_leftovers(sinks: Mapping[str, Sink], identity: str, batch: int, written: list[Written]) -> None:
    """Remove what an interrupted attempt at this micro-batch wrote and the repeated one did not."""
    kept = {row.file for row in written if row.file is not None}
    for sink in sinks.values():
        sink_format(sink.format).remove_leftovers(sink.path.resolve(), batch_name(identity, batch), kept)


def write_tables(program: str, sinks: str, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over tagged rows, on workers: see `write_batch`."""
    from pyspark import TaskContext

    plan = load_program(program).plan()
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
    writers: dict[str, TaskWriter] = {
        word: sink_format(plain["format"]).open(Sink.from_plain(plain), name, task, attempt)
        for word, plain in json.loads(sinks).items()
    }
    try:
        written = [_write(row, writers, plan) for batch in batches for row in batch.to_pylist()]
        for writer in writers.values():
            writer.commit()
    except BaseException:
        for writer in writers.values():
            writer.abort()
        raise
    yield _as_batch(written)


def _write(row: Mapping[str, Any], writers: Mapping[str, TaskWriter], plan: Plan) -> Written:
    tag, query, data = Tag(row["kind"]), row["query"], row["data"]
    writer = writers.get(SINK_OF.get(tag, ""))
    file = None
    if writer is not None:
        part = match_folder(plan.query(query)) if tag is Tag.MATCH else ""
        file = writer.write(part, table_of(data, tag, query, plan))
    return Written(tag, query, row["rows"], file, data if tag in FOR_DRIVER else None)


def _as_batch(rows: list[Written]) -> pa.RecordBatch:
    columns = {
        "kind": [str(row.tag) for row in rows],
        "query": [row.query for row in rows],
        "rows": [row.rows for row in rows],
        "file": [row.file for row in rows],
        "data": [row.data for row in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=WRITTEN_SCHEMA)
