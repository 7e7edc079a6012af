"""Write DataFrames of a micro-batch as jobs do: tasks write drafts, the driver gets them."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from job_engine.delta_log import application
from job_engine.delta_package import refuse_missing_package
from job_engine.delta_publishing import Transaction, publish_files
from job_engine.errors import in_plain_words
from job_engine.kafka_broker import BrokerError
from job_engine.kafka_settings import PREFIX, PRODUCER_OPTIONS, WrongOption, client_options
from job_engine.place import SHOWN, Place, UnknownScheme, place_of
from job_engine.sinks.kinds import Draft, MicroBatch, Sink, writing
from job_engine.sinks.table.settings import DAY, TableSink
from job_engine.sinks.table.writing import Details, with_partitions
from job_engine.sinks.topics.publishing import TopicPublisher, refuse_unwritable
from job_engine.sinks.topics.settings import TopicSink
from querylang.errors import InputError, did_you_mean
from runtime.json_reader import json_of_text
from spark_backend.plain_errors import plain_error
from spark_backend.spark_operator import on_worker

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
    run = on_worker("spark_backend.batch_drafts", "write_rows", *arguments)
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


# Write DataFrames of a micro-batch into Delta tables: tasks write, the driver commits once.


def write_delta(frame: DataFrame, table: str | Path, partition_by: Sequence[str], batch: int | None) -> bool:
    """Append rows; False = the table has this micro-batch. Without rows nothing is committed.

    batch: number of the micro-batch; None = the frame is bounded, and always written
    """
    refuse_missing_package()
    path = _place(table)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    _refuse_partitions(path, schema, partition_by)
    own = micro_batch(frame, batch, "write_delta")
    sink = Sink("delta", TableSink(tuple(partition_by)), path)
    with in_plain_words({}, plain_error):
        found = [Details.of_text(draft.details) for draft in write_drafts(frame, sink, own)]
    if not found:
        return True
    files, columns = [item.file for item in found], with_partitions(found[0].columns, partition_by, path)
    return publish_files(path, files, Transaction(application(own.identity), own.number), columns, partition_by)


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


# Write DataFrames of a micro-batch into topics of Kafka: tasks encode, the driver sends once.

_publishers: dict[tuple[str, str, str], TopicPublisher] = {}
"""By checkpoint, topic and options: connecting takes longer than sending."""


def write_kafka(frame: DataFrame, topic: str, options: Mapping[str, str], batch: int | None) -> bool:
    """Send rows; False = the topic has this micro-batch.

    batch: number of the micro-batch; None = the frame is bounded, and always written
    """
    sink = TopicSink(topic, topic, client=_client(options))
    own = micro_batch(frame, batch, "write_kafka")
    key = (own.identity, topic, json.dumps(sink.client, sort_keys=True))
    try:
        publisher = _publishers.pop(key, None) or _opened(sink, own.identity)
        if publisher.published > own.number:
            _publishers[key] = publisher
            return False
        publisher.publish(own.number, write_drafts(frame, Sink("kafka", sink), own))
    except BrokerError as error:
        raise InputError(str(error)) from error
    if batch is None:
        publisher.close()
    else:
        _publishers[key] = publisher
    return True


def _opened(sink: TopicSink, identity: str) -> TopicPublisher:
    refuse_unwritable(sink)
    publisher = TopicPublisher(sink, identity)
    publisher.open()
    return publisher


def _client(options: Mapping[str, str]) -> dict[str, str]:
    for key in options:
        if key not in PRODUCER_OPTIONS:
            raise InputError(f"write_kafka: unknown option {key!r}{did_you_mean(key, PRODUCER_OPTIONS)}")
    if f"{PREFIX}bootstrap.servers" not in options:
        raise InputError(f"write_kafka: '{PREFIX}bootstrap.servers' is missing, such as 'localhost:9092'")
    try:
        return client_options({key: str(value) for key, value in options.items()}, Path.cwd())
    except WrongOption as error:
        raise InputError(f"write_kafka: '{error.key}': {error.message}") from error
