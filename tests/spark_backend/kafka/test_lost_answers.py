"""What Kafka's client owes and never gives."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from job_engine import kafka_broker
from job_engine.kafka_broker import AskedBroker, BrokerError, TopicChoice


def test_an_answer_that_never_comes_holds_no_job_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client may lose a request; the next one is a new client's."""
    clients: list[object] = []

    class Client:
        def list_topics(self, timeout: float) -> None:
            """It answers."""

        def describe_topics(self, topics: object, **_: object) -> dict[str, Future[object]]:
            return {"t": Future()}

    def new_client(_: AskedBroker) -> Client:
        client = Client()
        clients.append(client)
        return client

    monkeypatch.setattr(AskedBroker, "_new_client", new_client)
    monkeypatch.setattr(kafka_broker, "ANSWER_WITHIN", 0.01)
    broker = AskedBroker({"bootstrap.servers": "127.0.0.1:1"})
    for number in (2, 3):
        with pytest.raises(BrokerError, match=r"^Kafka at 127\.0\.0\.1:1: the client gives no answer$") as caught:
            broker.listing(TopicChoice(names=("t",)))
        assert caught.value.is_passing
        assert len(clients) == number
