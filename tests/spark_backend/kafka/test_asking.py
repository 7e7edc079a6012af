"""A broker that has just started may answer without an offset: it is asked again, and nothing is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from job_engine.kafka_broker import AskedBroker, BrokerError, TopicChoice
from job_engine.sources.topics import running
from job_engine.sources.topics.pieces import TopicPosition
from job_engine.sources.topics.planning import TopicsMemory
from job_engine.sources.topics.settings import KafkaSource

kafka = pytest.importorskip("confluent_kafka")

PLACE = ("t", 0)
NO_OFFSET = kafka.OFFSET_INVALID


class Answer:
    """What the client has at once."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self, _: float) -> Any:
        return self.value


class Admin:
    """A broker with one partition; `offsets`: by question, what it says."""

    def __init__(self, **offsets: int) -> None:
        self.offsets = {"LATEST": 5, "EARLIEST": 0} | offsets

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={"t": None}, cluster_id="c")

    def describe_topics(self, names: Any, request_timeout: float) -> dict[str, Answer]:
        topic = SimpleNamespace(topic_id="a", partitions=[SimpleNamespace(id=0)])
        return {"t": Answer(topic)}

    def describe_configs(self, resources: Any, request_timeout: float) -> dict[Any, Answer]:
        return {resource: Answer({}) for resource in resources}

    def list_offsets(self, asked: Any, isolation_level: Any, request_timeout: float) -> dict[Any, Answer]:
        def offset(which: Any) -> int:
            name = {-1: "LATEST", -2: "EARLIEST"}.get(which._value, "TIME")
            return self.offsets[name]

        return {place: Answer(SimpleNamespace(offset=offset(which))) for place, which in asked.items()}


def asked(**offsets: int) -> AskedBroker:
    broker = AskedBroker({"bootstrap.servers": "127.0.0.1:1"})
    broker._admin = Admin(**offsets)
    return broker


@pytest.mark.parametrize("question", ["LATEST", "EARLIEST"])
def test_what_has_no_offset_is_no_listing(question: str) -> None:
    whole = asked().listing(TopicChoice(("t",)))
    assert (whole.topics["t"].partitions[0].first, whole.topics["t"].partitions[0].until) == (0, 5)
    with pytest.raises(BrokerError, match="the broker does not say the offsets of t/0") as found:
        asked(**{question: NO_OFFSET}).listing(TopicChoice(("t",)))
    assert found.value.is_passing


def test_no_message_from_a_time_on_is_an_answer_and_no_offset_is_none() -> None:
    assert asked(TIME=3).offsets_at([PLACE], 1_000) == {PLACE: 3}
    assert asked(TIME=kafka.OFFSET_END).offsets_at([PLACE], 1_000) == {PLACE: None}
    with pytest.raises(BrokerError):
        asked(TIME=NO_OFFSET).offsets_at([PLACE], 1_000)


def test_the_backlog_of_a_source_that_is_asked_again_for_long_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "AskedBroker", lambda _: asked(LATEST=NO_OFFSET))
    memory = TopicsMemory("s", {"t": TopicPosition(0, "a", {0: 5}, {})})
    source = KafkaSource("s", TopicChoice(("t",)), {}, retry=600.0)
    with pytest.raises(BrokerError, match="does not say the offsets"):
        running.RUNNING.backlog(source, memory, None)
