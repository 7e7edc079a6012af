"""What a login may not do, against a broker with SCRAM and rights for topics: a clear line each."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from job_engine.kafka_broker import AskedBroker, BrokerError, TopicChoice
from job_engine.sinks.topics import publishing
from job_engine.sinks.topics.publishing import TopicPublisher, may_not_write, refuse_unwritable, transactional_id
from job_engine.sinks.topics.settings import TopicSink
from job_engine.sources.topics.consuming import consumed
from job_engine.sources.topics.pieces import OffsetRange
from querylang.errors import InputError
from tests.support.kafka.broker import Broker
from tests.support.kafka.sink_messages import drafts, published

confluent_kafka: Any = pytest.importorskip("confluent_kafka", reason="the client of Kafka is not installed")


def login(broker: Broker, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.secure_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": "pass-word",
        "ssl.ca.location": str(broker.certificate),
    }


def test_a_login_by_scram_reads_and_writes_what_it_may_and_is_told_what_it_may_not(broker: Broker) -> None:
    broker.add_user("guest", "pass-word")
    client = login(broker, "guest")
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


@pytest.mark.parametrize("rights", ["READ", "WRITE"])
@pytest.mark.parametrize("order", ["messages", "progress", "progress without cause", "one message, then others"])
def test_the_first_cause_is_named_in_whatever_order_answers_come(
    broker: Broker, rights: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages_done, progress_done = Event(), Event()

    class Producer(confluent_kafka.Producer):  # type: ignore[misc]  # the package has no types
        def produce(self, *values: Any, **named: Any) -> None:
            super().produce(*values, **named)
            if order == "one message, then others":
                super().flush(10)
                messages_done.set()

        def flush(self, seconds: float) -> int:
            if order == "progress":
                assert progress_done.wait(20)
            found: int = super().flush(seconds)
            if found == 0:
                messages_done.set()
            return found

        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            is_late = order.startswith("progress without") and not progress_done.is_set()
            try:
                if order != "progress":
                    assert messages_done.wait(20)
                super().send_offsets_to_transaction(*arguments)
            except confluent_kafka.KafkaException:
                if is_late:  # as the client says it where the transaction fails while it asks
                    code = confluent_kafka.KafkaError._STATE
                    error = confluent_kafka.KafkaError(code, "Erroneous state", txn_requires_abort=True)
                    raise confluent_kafka.KafkaException(error) from None
                raise
            finally:
                progress_done.set()

    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    topic, user = broker.topic(), f"{rights.lower()}er"
    broker.add_user(user, "pass-word")
    broker.allow(user, topic, rights)
    sink = TopicSink("matches", topic, client=login(broker, user))
    publisher = TopicPublisher(sink, "0123456789ab")
    publisher.open()
    with pytest.raises(InputError) as caught:
        publisher.publish(0, drafts(sink, [1, 2, 3]))
    publisher.close()
    assert str(caught.value) == str(may_not_write(sink))


@pytest.mark.parametrize(("kind", "what"), [("TRANSACTIONAL_ID", "transactional id"), ("GROUP", "group")])
def test_a_login_is_told_which_name_of_a_sink_it_may_not_use(
    broker: Broker, kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "ANSWER_WITHIN", 1.0)  # the client does not say it before
    topic, identity = broker.topic(), kind.lower()
    broker.add_user("guest", "pass-word")
    broker.allow("another", transactional_id(identity, "matches"), "ALL", kind=kind)
    publisher = TopicPublisher(TopicSink("matches", topic, client=login(broker, "guest")), identity)
    with pytest.raises(InputError, match=f"no permission for the {what} 'ensue-{identity}-matches'"):
        publisher.open()
    publisher.close()
