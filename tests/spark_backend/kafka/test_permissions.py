"""What a login may not do, against a broker with SCRAM and rights for topics: a clear line each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from job_engine.kafka.asking import AskedBroker
from job_engine.kafka.listing import BrokerError
from job_engine.kafka.topic_choice import TopicChoice
from job_engine.sinks.topics.publishing import refuse_unwritable
from job_engine.sinks.topics.settings import TopicSink
from job_engine.sources.topics.consuming import consumed
from job_engine.sources.topics.pieces import OffsetRange
from querylang.errors import InputError
from tests.support.kafka.broker import Broker
from tests.support.kafka.sink_messages import drafts, published


def test_a_login_by_scram_reads_and_writes_what_it_may_and_is_told_what_it_may_not(broker: Broker) -> None:
    broker.add_user("guest", "pass-word")
    client = {
        "bootstrap.servers": broker.secure_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "guest",
        "sasl.password": "pass-word",
        "ssl.ca.location": str(broker.certificate),
    }
    topics = {rights: broker.topic() for rights in ("", "DESCRIBE", "READ", "READ WRITE", "WRITE")}
    for rights, topic in topics.items():
        broker.produce(topic, [(0, 1, b"{}")])
        broker.allow("guest" if rights else "another", topic, *(rights or "READ").split())

    def said(call: Callable[[], object]) -> str:
        with pytest.raises((BrokerError, InputError)) as caught:
            call()
        assert "pass-word" not in str(caught.value)
        return str(caught.value).replace(f"Kafka at {broker.secure_servers}: ", "")

    def listed(topic: str, **settings: str) -> object:
        return AskedBroker(client | settings).listing(TopicChoice((topic,))).topics[topic]

    def read(topic: str) -> list[bytes | None]:
        ranges = consumed(client, OffsetRange("s", topic, 0, 0, 0, 1), 10.0)
        return [value for chunk in ranges for value in chunk.values]

    def write(topic: str) -> None:
        sink = TopicSink("matches", topic, client=client)
        published(sink, 0, drafts(sink, [1])).close()

    def sink_to(topic: str) -> TopicSink:
        return TopicSink("matches", topic, client=client)

    assert said(lambda: listed(topics[""])) == f"no permission to describe the topic '{topics['']}'"
    assert said(lambda: read(topics["DESCRIBE"])) == f"no permission to read the topic '{topics['DESCRIBE']}'"
    assert "the broker refuses the login" in said(lambda: listed(topics["READ"], **{"sasl.password": "wrong"}))
    assert read(topics["READ"]) == [b"{}"]
    for rights in ("READ", "WRITE"):
        line = f"sink 'matches': no permission to write to the topic '{topics[rights]}', or to read it: both are needed"
        assert said(lambda topic=topics[rights]: write(topic)).startswith(line)  # type: ignore[misc]
        assert said(lambda topic=topics[rights]: refuse_unwritable(sink_to(topic))).startswith(line)  # type: ignore[misc]
    refuse_unwritable(sink_to(topics["READ WRITE"]))
    write(topics["READ WRITE"])
    assert len(broker.messages(topics["READ WRITE"])) == 2
