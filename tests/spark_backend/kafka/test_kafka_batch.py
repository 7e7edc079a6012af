"""A user's own program: topics written in the function of `ensue.streams`, once, whatever is repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ensue
from querylang.errors import InputError
from tests.support.kafka.broker import Broker

QUERY = """
event A { string k; float v; }
query Q { inputs { A() key k within 30 seconds; } find A as low -> A as high where high.v > low.v { print "up"; } }
"""
ROWS = [(0.0, "A", "x", 1.0, 0, 1), (10.0, "A", "x", 3.0, 0, 2), (90000.0, "A", "y", 2.0, 0, 3)]
MORE = [(90001.0, "A", "y", 5.0, 0, 4)]
SCHEMA = "at double, event string, k string, v double, partition int, offset int"


def test_a_micro_batch_that_is_repeated_is_in_each_topic_once(
    tmp_path: Path, broker: Broker, spark: SparkSession
) -> None:
    source, topics = tmp_path / "in", (broker.topic(), broker.topic())
    options = {"kafka.bootstrap.servers": broker.servers}
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(str(source))
    calls: list[tuple[int, bool, bool]] = []

    def take(batch: ensue.Batch) -> None:
        matches = batch.write_kafka(batch.matches["Q"], topics[0], options)
        outputs = batch.write_kafka(batch.outputs.select("text"), topics[1], options)
        calls.append((batch.id, matches, outputs))
        if len(calls) in (1, 3):
            raise OSError("the program ends here")

    def run() -> None:
        streams = ensue.streams(spark.readStream.schema(SCHEMA).parquet(str(source)), QUERY)
        streams.write(take, checkpoint=str(tmp_path / "state"), trigger="availableNow").awaitTermination()

    with pytest.raises(Exception, match="the program ends here"):
        run()
    run()
    spark.createDataFrame(MORE, SCHEMA).coalesce(1).write.mode("append").parquet(str(source))
    with pytest.raises(Exception, match="the program ends here"):
        run()
    run()
    assert calls == [(0, True, True), (0, False, False), (1, True, True), (1, False, False)]
    sent = broker.messages(topics[0])
    values = [json.loads(message.value()) for message in sent]
    assert [message.key() for message in sent] == [b"x", b"y"]
    assert [dict(message.headers())["ensue-id"].decode() for message in sent] == [row["match_id"] for row in values]
    assert [json.loads(message.value()) for message in broker.messages(topics[1])] == [{"text": "up"}] * 2


def test_mistakes_are_named_before_anything_is_sent(broker: Broker, spark: SparkSession) -> None:
    batch = ensue.batch(spark.createDataFrame(ROWS, SCHEMA), QUERY)
    matches, topic = batch.matches["Q"], broker.topic()
    options = {"kafka.bootstrap.servers": broker.servers}
    with pytest.raises(InputError, match=r"unknown option 'bootstrap.servers'; did you mean 'kafka.bootstrap.servers'"):
        batch.write_kafka(matches, "t1", {"bootstrap.servers": "x"})
    with pytest.raises(InputError, match=r"'kafka.bootstrap.servers' is missing"):
        batch.write_kafka(matches, "t2", {})
    with pytest.raises(InputError, match="no such topic: 't3'"):
        batch.write_kafka(matches, "t3", options)
    assert batch.write_kafka(matches, topic, options)
    with pytest.raises(InputError, match="has been written there already; write the union of both"):
        batch.write_kafka(matches, topic, options)
    assert len(broker.messages(topic)) == 1
