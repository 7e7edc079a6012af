"""Messages of sinks: what they are, and that a real broker has each once, whatever is killed between two steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest

from job_engine.errors import Unreachable
from job_engine.sinks.kinds import Sink
from job_engine.sinks.names import by_channel, channel_sink
from job_engine.sinks.topics import publishing
from job_engine.sinks.topics.publishing import TopicPublisher
from job_engine.sinks.topics.settings import TopicSink
from job_engine.sinks.topics.writing import ID, each_message, messages_of
from querylang.errors import InputError
from runtime.results.schemas import OUTPUT_SCHEMA
from tests.support.kafka.broker import Broker
from tests.support.kafka.sink_messages import drafts, published
from tests.support.maven import ROOT

SECOND = 1_000_000


def output(kind: str, match: str | None, channel: str | None = None, value: float = 1.0) -> dict[str, object]:
    event = json.dumps({"type": "Alert", "fields": {"v": value}}) if kind == "send" else None
    return {
        "kind": kind,
        "channel": channel,
        "text": None if event else "text",
        "event": event,
        "query": "Q",
        "instance": "",
        "key": '{"card": "7"}',
        "time": SECOND,
        "match_id": match,
    }


def outputs(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=OUTPUT_SCHEMA).drop_columns(["_step", "_rank"])


def identities(table: pa.Table) -> list[str]:
    return [dict(headers)[ID].decode() for _, _, headers in each_message(table)]


def test_outputs_are_numbered_within_their_match_kind_and_channel() -> None:
    table = outputs(
        output("print", "m1"),
        output("send", "m1", "alerts"),
        output("print", "m1"),
        output("send", "m1", "alerts"),
        output("send", "m1", "others"),
        output("print", "m2"),
        output("error", None),
    )
    found = identities(messages_of(table, "task-", 10))
    assert found == [
        *("m1/print/1", "m1/send/alerts/1", "m1/print/2", "m1/send/alerts/2", "m1/send/others/1"),
        *("m2/print/1", "task-16"),
    ]


def test_discarded_records_are_identified_by_their_coordinates() -> None:
    rows = {"query": ["Q", "", "Q"], "source": ["t", "t", "f.csv"], "partition": [3, 3, None], "offset": [7, 7, None]}
    assert identities(messages_of(pa.table(rows), "task-")) == ["t/3/7/Q", "t/3/7", "task-2"]


@pytest.mark.parametrize(
    ("key", "message_key"),
    [({"card": "7"}, "7"), ({"n": 7}, "7"), ({"a": "é", "n": None}, '{"a": "é", "n": null}'), (None, None)],
)
def test_the_key_is_the_value_of_one_field_or_an_object_of_several(key: Any, message_key: str | None) -> None:
    columns = {"match_id": ["m"]} | ({} if key is None else {"key": [key]})
    ((found, value, _),) = each_message(messages_of(pa.table(columns), "task-"))
    assert found == message_key
    assert json.loads(value) == {"match_id": "m"} | ({} if key is None else {"key": key})


def test_a_channel_has_the_event_as_it_was_sent() -> None:
    table = outputs(output("send", "m1", "alerts", 2.5))
    ((key, value, headers),) = each_message(messages_of(table, "task-", is_channel=True))
    assert (key, json.loads(value)) == ("7", {"v": 2.5})
    assert dict(headers) == {
        ID: b"m1/send/alerts/1",
        "ensue-event": b"Alert",
        "ensue-query": b"Q",
        "ensue-time": b"1970-01-01T00:00:01.000000Z",
        "ensue-match": b"m1",
    }


def test_what_is_sent_to_a_channel_goes_there_and_the_rest_to_the_output() -> None:
    rows = [output("send", "m", "alerts"), output("send", "m", "b"), output("log", "m", "alerts"), output("print", "m")]
    found = {name: part.num_rows for name, part in by_channel(outputs(*rows), ["matches", channel_sink("alerts")])}
    assert found == {"output": 3, "channel.alerts": 1}
    assert [name for name, _ in by_channel(outputs(*rows), ["output"])] == ["output"]
    assert "client" not in Sink("kafka", TopicSink("matches", "t", client={"a": "b"})).to_plain()["own"]


def sink_of(broker: Broker, topic: str, **settings: str) -> TopicSink:
    return TopicSink("matches", topic, client={"bootstrap.servers": broker.servers, **settings})


KILLED = """
import os, signal, sys
import confluent_kafka
from tests.support.kafka.sink_messages import drafts, published
from job_engine.sinks.topics.settings import TopicSink

where, servers, topic = sys.argv[1:]

class Producer(confluent_kafka.Producer):
    def _dying(name):
        def call(self, *arguments):
            if where == "before " + name:
                self.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            found = getattr(super(Producer, self), name)(*arguments)
            if where == "after " + name:
                os.kill(os.getpid(), signal.SIGKILL)
            return found
        return call

    send_offsets_to_transaction = _dying("send_offsets_to_transaction")
    commit_transaction = _dying("commit_transaction")

confluent_kafka.Producer = Producer
sink = TopicSink("matches", topic, client={"bootstrap.servers": servers})
published(sink, 4, drafts(sink, [1, 2, 3]))
"""


@pytest.mark.parametrize(
    "where", ["before send_offsets_to_transaction", "before commit_transaction", "after commit_transaction"]
)
def test_a_kill_between_any_two_steps_leaves_each_message_once(broker: Broker, where: str) -> None:
    topic = broker.topic()
    command = [sys.executable, "-c", KILLED, where, broker.servers, topic]
    done = subprocess.run(command, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == -9
    sink = sink_of(broker, topic)
    publisher = published(sink, 4, drafts(sink, [1, 2, 3]))
    publisher.publish(5, drafts(sink, [4]))
    found = broker.messages(topic)
    assert [json.loads(message.value())["v"] for message in found] == [1, 2, 3, 4]
    assert [dict(message.headers())[ID] for message in found] == [b"m0", b"m1", b"m2", b"m0"]


def test_a_fatal_error_that_the_client_loses_is_one(broker: Broker) -> None:
    def lost() -> int:
        raise SystemError("returned NULL without setting an exception")

    publisher = published(sink_of(broker, broker.topic()), 0, [])
    with pytest.raises(Exception, match="fatal error") as caught:
        publisher._served(lost)
    assert caught.value.args[0].fatal()
    publisher.close()


def test_a_second_run_takes_over_and_the_first_cannot_write_any_more(broker: Broker) -> None:
    topic = broker.topic()
    sink = sink_of(broker, topic)
    first = published(sink, 0, drafts(sink, [1]))
    second = published(sink, 1, drafts(sink, [2]))
    with pytest.raises(InputError, match=f"sink 'matches': another run of this job has begun to write to .*'{topic}'"):
        first.publish(1, drafts(sink, [2]))
    second.publish(2, drafts(sink, [3]))
    assert [json.loads(message.value())["v"] for message in broker.messages(topic)] == [1, 2, 3]


def test_a_message_that_is_too_long_is_named_and_is_written_once_it_fits(broker: Broker) -> None:
    topic = broker.topic(max_message_bytes="2000")
    sink = sink_of(broker, topic, **{"compression.type": "none"})
    long = drafts(sink, ["a", "x" * 3000, "c"])
    with pytest.raises(InputError, match=rf"a message of \d+ bytes is longer than the topic '{topic}' takes .*-id m1"):
        published(sink, 0, long)
    assert broker.messages(topic) == []
    broker.change(topic, max_message_bytes="4000")
    published(sink, 0, long)
    assert len(broker.messages(topic)) == 3


def test_a_broker_that_goes_and_comes_loses_and_doubles_nothing(broker: Broker) -> None:
    topic = broker.topic(2)
    sink, said = sink_of(broker, topic), list[str]()
    publisher = TopicPublisher(sink, "0123456789ab", said.append)
    publisher.open()
    publisher.publish(0, drafts(sink, list(range(10))))
    broker.stop()
    starter = threading.Timer(3.0, broker.start)
    starter.start()
    publisher.publish(1, drafts(sink, list(range(10, 20))))
    starter.join()
    found = broker.messages(topic)
    assert sorted(json.loads(message.value())["v"] for message in found) == list(range(20))
    assert len(said) == 2, said
    assert said[0].startswith(f"sink 'matches': Kafka at {broker.servers}: ")
    assert said[0].endswith("; it is asked again for 60 s")
    assert "answers again, after" in said[1]


def test_a_topic_that_is_deleted_while_a_job_runs_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "STALLED", 2)
    sink = sink_of(broker, broker.topic())
    publisher = published(sink, 0, drafts(sink, [1]))
    broker.delete_topic(sink.topic)
    with pytest.raises(InputError, match=f"sink 'matches': .*the topic '{sink.topic}' does not exist any more"):
        publisher.publish(1, drafts(sink, [2]))
    publisher.close()


def test_a_broker_without_a_transaction_coordinator_is_named_as_that(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer

    class Alone:
        """A client of one broker that would need three for the topic of transactions."""

        def __init__(self, settings: dict[str, Any], **_: object) -> None:
            del settings["transactional.id"]
            self._client = Producer(settings)

        def init_transactions(self, _: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        def list_topics(self, timeout: float) -> Any:
            found = self._client.list_topics(timeout=timeout)
            found.topics.pop("__transaction_state", None)
            return found

        def poll(self, seconds: float) -> int:
            return int(self._client.poll(seconds))

    monkeypatch.setattr("confluent_kafka.Producer", Alone)
    told: list[str] = []
    sink = TopicSink("output", broker.topic(), client={"bootstrap.servers": broker.servers}, retry=0.0)
    with pytest.raises(
        Unreachable, match=r"cannot make the topic `__transaction_state` .*: there is no transaction coordinator"
    ):
        TopicPublisher(sink, "0", told.append).open()
