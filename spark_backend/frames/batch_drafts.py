"""Write DataFrames of a micro-batch as jobs do: tasks write drafts, the driver gets them."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from job_engine.sinks.kinds import Draft, MicroBatch, Sink, writing
from querylang.errors import InputError
from runtime.json_reader import json_of_text
from spark_backend.stream.worker_calls import on_worker

_QUERY = "sql.streaming.queryId"
"""What names the checkpoint of a micro-batch in Spark: it stays the same when it restarts."""

_DRAFTS = pa.schema([("path", pa.string()), ("place", pa.string()), ("details", pa.string()), ("data", pa.binary())])


def micro_batch(frame: DataFrame, number: int | None, name: str) -> MicroBatch:
    """The micro-batch that a frame is of; one of a new checkpoint for a bounded frame.

    number: None = the frame is bounded
    name: of the method that users have called
    """
    if number is None:
        return MicroBatch(uuid.uuid4().hex[:12], 0)
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if found is None:
        raise InputError(f"{name}: works in the function that `write` calls with a micro-batch, not behind it")
    return MicroBatch(str(found).replace("-", "")[:12], number)


def write_drafts(frame: DataFrame, sink: Sink, batch: MicroBatch) -> list[Draft]:
    """The drafts of all tasks, in the order of their places."""
    # Spark gives workers times in the session's zone: Delta refuses it
    schema = b64encode(to_arrow_schema(frame.schema, timezone="UTC").serialize()).decode()
    arguments = json.dumps(sink.to_plain()), batch.identity, batch.number, schema
    run = on_worker("spark_backend.frames.batch_drafts", "write_rows", *arguments)
    rows = frame.mapInArrow(run, "path string, place string, details string, data binary").collect()
    drafts = [Draft(**row.asDict()) for row in rows]
    return sorted(drafts, key=lambda draft: draft.place)


def write_rows(
    sink: str, identity: str, number: int, schema: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: the drafts of one task.

    schema: of the rows, with times in UTC
    """
    from pyspark import TaskContext

    wanted = pa.ipc.read_schema(pa.py_buffer(b64decode(schema)))
    own, context = Sink.from_plain(json_of_text(sink, dict[str, Any])), TaskContext.get()
    task = 0 if context is None else context.partitionId()
    writer = writing(own).open(own, MicroBatch(identity, number), task, 0)
    try:
        for batch in batches:
            if batch.num_rows:
                writer.write("", pa.Table.from_batches([batch]).cast(wanted))
        drafts = writer.finish()
    except BaseException:
        writer.abort()
        raise
    yield pa.RecordBatch.from_pylist(
        [{"path": draft.path, "place": draft.place, "details": draft.details, "data": draft.data} for draft in drafts],
        schema=_DRAFTS,
    )
