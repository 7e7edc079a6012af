"""A partition whose broker sends nothing for a while is reported, and so is the end of the silence."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.kafka_broker import BrokerError
from job_engine.sources.topics import consuming
from job_engine.sources.topics.consuming import consumed
from job_engine.sources.topics.pieces import OffsetRange
from querylang.errors import InputError
from tests.support.kafka.broker import Broker
from tests.support.kafka.topic_job import TopicJob
from tests.support.local_jobs import run
from tests.support.sensors import streamed

pytest.importorskip("confluent_kafka")

WANTED = OffsetRange("s", "t", 0, 3, 0, 2)
CLIENT = {"bootstrap.servers": "somewhere:9092"}


class SilentBroker:
    """A client's consumer: brings its messages one by one, each after so many seconds of a clock of its own."""

    def __init__(self, *after: float) -> None:
        self.time = 0.0
        self.arrivals = list(after)
        self.sent = 0
        self.is_closed = False

    def now(self) -> float:
        return self.time

    def consume(self, _: int, timeout: float) -> list[object]:
        self.time += timeout
        if self.sent < len(self.arrivals) and self.time >= self.arrivals[self.sent]:
            offset, self.sent = self.sent, self.sent + 1
            return [Message(offset)]
        return []

    def assign(self, _: object) -> None: ...

    def unassign(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 5000

    def value(self) -> bytes:
        return b"{}"

    def __len__(self) -> int:
        return 2


def read(broker: SilentBroker, monkeypatch: pytest.MonkeyPatch, patience: float = 60.0) -> tuple[list[int], list[str]]:
    client = {"Consumer": lambda _: broker, "KafkaException": RuntimeError, "TopicPartition": lambda *place: place}
    monkeypatch.setattr(consuming, "kafka_client", lambda: SimpleNamespace(**client))
    monkeypatch.setattr(consuming, "_consumers", {})
    lines: list[str] = []
    chunks = list(consumed(CLIENT, WANTED, patience, lines.append, broker.now))
    return [offset for chunk in chunks for offset in chunk.offsets.tolist()], lines


def test_a_broker_that_sends_at_once_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(SilentBroker(0.0, 4.0), monkeypatch) == ([0, 1], [])


def test_a_broker_that_is_silent_is_told_of_once_and_so_is_its_return(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(SilentBroker(0.0, 30.0), monkeypatch) == (
        [0, 1],
        [
            "t/3: Kafka at somewhere:9092: the broker sends no message; it is asked again for 60 s",
            "t/3: Kafka at somewhere:9092 answers again, after 25 s",
        ],
    )


def test_a_broker_that_stays_silent_ends_the_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SilentBroker(1.0, 1000.0)
    with pytest.raises(BrokerError) as caught:
        read(broker, monkeypatch, patience=20.0)
    assert str(caught.value) == (
        "t/3: cannot be read from offset 1 to 1: Kafka at somewhere:9092: the broker sends no message for 20 s."
        " Run the job again: it continues where it stopped"
    )
    assert caught.value.is_passing
    assert 26 <= broker.time < 27
    assert broker.is_closed


def test_a_timestamp_that_no_time_has_counts_as_none_for_that_message_alone(broker: Broker) -> None:
    topic = broker.topic(message_timestamp_after_max_ms=str(2**63 - 1))
    last = 253_402_300_799_999
    broker.produce(topic, [(0, stamp, b"{}") for stamp in (5, last, last + 1, 2**62, 6)])
    client = {"bootstrap.servers": broker.servers}
    chunks = list(consumed(client, OffsetRange("s", topic, 0, 0, 0, 5)))
    assert [time for chunk in chunks for time in chunk.timestamps.tolist()] == [5000, last * 1000, -1000, -1000, 6000]


def test_a_timestamp_of_the_far_future_moves_no_clock_of_a_job(tmp_path: Path, broker: Broker) -> None:
    job = TopicJob(tmp_path, broker)
    broker.change(job.topic, message_timestamp_after_max_ms=str(2**63 - 1))
    value = b'{"sensor": "far", "value": 1.0, "ts": 1.0}'
    now = int(time.time() * 1000)
    broker.produce(job.topic, [(0, stamp, value) for stamp in (2**62, now + 2 * 86_400_000)])
    run(job.path)
    ledger = JobFolder(tmp_path / "state").ledger.total()
    assert sum(count for (query, _, what), count in ledger.items() if (query, what) == ("Rise", "ahead")) == 1
    assert streamed(tmp_path) == job.expected()


def test_a_topic_that_is_read_and_written_at_other_addresses_is_refused_at_the_start(
    tmp_path: Path, broker: Broker
) -> None:
    job = TopicJob(tmp_path, broker)
    other = broker.servers.replace("127.0.0.1", "localhost")
    assert other != broker.servers
    written = f'topic: {job.output}, options: {{kafka.bootstrap.servers: "{broker.servers}"}}'
    text = job.path.read_text().replace(written, f'topic: {job.topic}, options: {{kafka.bootstrap.servers: "{other}"}}')
    job.path.write_text(text)
    with pytest.raises(InputError, match=f"the topic '{job.topic}' is read by the source 'readings' and written by"):
        run(job.path)
    assert not (tmp_path / "state").exists()
