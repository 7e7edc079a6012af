"""Write DataFrames of a micro-batch into Delta tables: tasks write, the driver commits once."""

from __future__ import annotations

import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from querylang.errors import InputError, did_you_mean
from spark_backend.delta.package import refuse_missing_package
from spark_backend.delta.publishing import Transaction, publish_files
from spark_backend.delta.transactions import application
from spark_backend.errors import in_plain_words
from spark_backend.places.place import SHOWN, Place, UnknownScheme, place_of
from spark_backend.sinks.delta_files import DeltaWriter, Details, with_partitions
from spark_backend.sinks.formats import DAY, Sink
from spark_backend.wire.worker_calls import on_worker

_QUERY = "sql.streaming.queryId"
"""What names the checkpoint of a micro-batch in Spark: it stays the same when it restarts."""


def write_delta(frame: DataFrame, table: str | Path, partition_by: Sequence[str], batch: int | None) -> bool:
    """Append rows; False = the table has this micro-batch. Without rows nothing is committed.

    batch: number of the micro-batch; None = the frame is bounded, and always written
    """
    refuse_missing_package()
    path = _place(table)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    _refuse_partitions(path, schema, partition_by)
    identity = checkpoint_identity(frame, batch, "write_delta")
    stem = f"{identity}-{batch or 0:08d}-"
    written = b64encode(schema.serialize()).decode()
    run = on_worker("spark_backend.frames.delta_batch", "write_rows", str(path), stem, ",".join(partition_by), written)
    with in_plain_words({}):
        rows = frame.mapInArrow(run, "details string").collect()
    found = [Details.of_text(row["details"]) for row in rows]
    if not found:
        return True
    files, columns = [item.file for item in found], with_partitions(found[0].columns, partition_by, path)
    return publish_files(path, files, Transaction(application(identity), batch or 0), columns, partition_by)


def write_rows(
    path: str, stem: str, partition_by: str, schema: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: the data files of one task, as text for the driver.

    schema: of the rows, with times in UTC. Spark gives them in the session's zone: Delta refuses it
    """
    wanted = pa.ipc.read_schema(pa.py_buffer(b64decode(schema)))
    columns = tuple(name for name in partition_by.split(",") if name)
    writer = DeltaWriter(Sink("delta", place_of(path), partition_by=columns), f"{stem}{task_number():05d}")
    try:
        for batch in batches:
            if batch.num_rows:
                writer.write("", pa.Table.from_batches([batch]).cast(wanted))
        details = [draft.details for draft in writer.finish()]
    except BaseException:
        writer.abort()
        raise
    yield pa.RecordBatch.from_pydict({"details": pa.array(details, pa.string())})


def task_number() -> int:
    """The number of the task that runs here, from 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def checkpoint_identity(frame: DataFrame, batch: int | None, name: str) -> str:
    """Twelve digits that name the checkpoint; new ones for a bounded frame.

    name: of the method that users have called
    """
    if batch is None:
        return uuid.uuid4().hex[:12]
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if found is None:
        raise InputError(f"{name}: works in the function that `write` calls with a micro-batch, not behind it")
    return str(found).replace("-", "")[:12]


def _place(table: str | Path) -> Place:
    try:
        return place_of(str(table)).resolve()
    except UnknownScheme as error:
        raise InputError(f"{table}: Delta tables are written to folders, or to {SHOWN}") from error


def _refuse_partitions(path: Place, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if name == DAY and not {"time", "arrival"} & set(schema.names):
            raise InputError(f"{path}: 'partition_by': there is no column 'time' or 'arrival' that `{DAY}` could be of")
        if name != DAY and name not in schema.names:
            raise InputError(
                f"{path}: 'partition_by': there is no column '{name}'{did_you_mean(name, list(schema.names))}"
            )
        if name != DAY and not pa.types.is_string(schema.field(name).type):
            raise InputError(f"{path}: 'partition_by': the column '{name}' is not text")
