"""Write DataFrames of a micro-batch into topics of Kafka: tasks encode, the driver sends once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from job_engine.kafka.client_options import PREFIX, PRODUCER_OPTIONS, WrongOption, client_options
from job_engine.kafka.listing import BrokerError
from job_engine.sinks.kinds import Sink
from job_engine.sinks.topics.publishing import TopicPublisher, refuse_unwritable
from job_engine.sinks.topics.settings import TopicSink
from querylang.errors import InputError, did_you_mean
from spark_backend.frames.batch_drafts import micro_batch, write_drafts

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
