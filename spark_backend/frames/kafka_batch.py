"""Write DataFrames of a micro-batch into topics of Kafka: tasks encode, the driver sends once."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from querylang.errors import InputError, did_you_mean
from runtime.json_reader import json_of_text
from spark_backend.frames.delta_batch import checkpoint_identity, task_number
from spark_backend.sinks.formats import Draft, Sink
from spark_backend.sinks.kafka.kafka_sink import KafkaSink
from spark_backend.sinks.kafka.message_drafts import MessageWriter
from spark_backend.sinks.kafka.publishing import TopicPublisher
from spark_backend.sinks.kafka.topics import TOPICS
from spark_backend.sources.kafka.client_options import PREFIX, PRODUCER_OPTIONS, WrongOption, client_options
from spark_backend.sources.kafka.listing import BrokerError
from spark_backend.wire.worker_calls import on_worker

_publishers: dict[tuple[str, str, str], TopicPublisher] = {}
"""By checkpoint, topic and options: connecting takes longer than sending."""


def write_kafka(frame: DataFrame, topic: str, options: Mapping[str, str], batch: int | None) -> bool:
    """Send rows; False = the topic has this micro-batch.

    batch: number of the micro-batch; None = the frame is bounded, and always written
    """
    sink = KafkaSink(topic, topic, client=_client(options))
    identity = checkpoint_identity(frame, batch, "write_kafka")
    key = (identity, topic, json.dumps(sink.client, sort_keys=True))
    try:
        publisher = _publishers.pop(key, None) or _opened(sink, identity)
        if publisher.published > (batch or 0):
            _publishers[key] = publisher
            return False
        publisher.publish(batch or 0, _drafts(frame, sink, f"{identity}-{batch or 0:08d}-"))
    except BrokerError as error:
        raise InputError(str(error)) from error
    if batch is None:
        publisher.close()
    else:
        _publishers[key] = publisher
    return True


def _opened(sink: KafkaSink, identity: str) -> TopicPublisher:
    TOPICS.refuse_unwritable(Sink("kafka", Path(), kafka=sink), {})
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


def _drafts(frame: DataFrame, sink: KafkaSink, stem: str) -> list[Draft]:
    """The messages of all tasks, in their order."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    written = b64encode(schema.serialize()).decode()
    run = on_worker("spark_backend.frames.kafka_batch", "write_rows", json.dumps(sink.to_plain()), stem, written)
    rows = frame.mapInArrow(run, "place string, data binary").collect()
    return [Draft("", row["place"], data=bytes(row["data"])) for row in sorted(rows, key=lambda row: row["place"])]


def write_rows(sink: str, stem: str, schema: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`, on workers: the messages of one task.

    schema: of the rows, with times in UTC
    """
    wanted = pa.ipc.read_schema(pa.py_buffer(b64decode(schema)))
    writer = MessageWriter(KafkaSink.from_plain(json_of_text(sink, dict[str, object])), f"{stem}{task_number():05d}")
    try:
        for batch in batches:
            if batch.num_rows:
                writer.write("", pa.Table.from_batches([batch]).cast(wanted))
        drafts = writer.finish()
    except BaseException:
        writer.abort()
        raise
    columns = {"place": pa.array([draft.place for draft in drafts], pa.string())}
    yield pa.RecordBatch.from_pydict(columns | {"data": pa.array([draft.data for draft in drafts], pa.binary())})
