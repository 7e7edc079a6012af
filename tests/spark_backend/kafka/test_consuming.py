"""A broker that sends nothing for a while is reported, and so is its return; what comes behind a plan is taken."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.kafka_broker import BrokerError, Listing, PartitionListing, TopicListing
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

    def error(self) -> SimpleNamespace | None:
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


# Messages that a driver takes as they come.


class Followed:
    """A topic `t` with one partition, its client and the clock of its lister; `come`: its messages and ends by offset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int | None = None, **topic: bool) -> None:
        client = {"Consumer": lambda _: self, "KafkaException": RuntimeError, "TopicPartition": lambda *place: place}
        monkeypatch.setattr(consuming, "kafka_client", lambda: SimpleNamespace(**client))
        self.topic = topic
        self.micros = self.asked = 0
        self.end = 3
        self.come: list[Arriving] = []
        self.assigned: list[object] = []
        self.wall = 0
        self.topics = consuming.FollowedTopics(
            CLIENT, self.listing, lambda: self.wall * 1000, most, lambda: self.micros / 1_000_000
        )

    def listing(self) -> Listing:
        self.asked += 1
        partitions = {0: PartitionListing(0, self.end)}
        return Listing(self.wall, {"t": TopicListing("id", self.topic.get("is_append_time", False), partitions)})

    def assign(self, places: object) -> None:
        self.assigned.append(places)

    def consume(self, _: int, timeout: float) -> list[Arriving]:
        assert timeout == 0, "nobody waits"
        come, self.come = self.come, []
        return come

    def close(self) -> None: ...

    def until(self, planned: int, after: int = 10_000) -> int:
        """Up to where the next micro-batch reads, which is asked for so many µs later."""
        self.micros += after
        self.wall -= after  # somebody sets the clock back all the time
        until = self.topics.listing({("t", 0): planned}).topics["t"].partitions[0].until
        self.topics.follow({("t", 0): until})
        return until


class Arriving(Message):
    """A message of a followed partition, or what the client says at an offset: the name of an error."""

    def __init__(self, offset: int, error: str | None = None) -> None:
        super().__init__(offset)
        self._error = error

    def error(self) -> SimpleNamespace | None:
        return None if self._error is None else SimpleNamespace(name=lambda: self._error)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0


def test_what_comes_is_planned_and_taken_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    assert broker.until(0) == 3
    broker.come = [Arriving(3), Arriving(5)]
    assert broker.until(3) == 6
    taken = broker.topics.taken(OffsetRange("s", "t", 0, 0, 3, 6))
    assert taken is not None
    assert [chunk.offsets.tolist() for chunk in taken.chunks(OffsetRange("s", "t", 0, 0, 3, 6))] == [[3, 5]]
    assert broker.topics.taken(OffsetRange("s", "t", 0, 0, 0, 3)) is None
    assert (broker.asked, broker.assigned) == (1, [[("t", 0, 3)]])


def test_a_broker_is_asked_every_second_for_what_no_message_says(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    assert [(broker.until(3, 400_000), broker.asked) for _ in range(6)] == [
        *[(3, 1)] * 2,
        *[(3, 2)] * 3,
        (3, 3),
    ]


def test_messages_that_have_not_come_yet_wait_for_the_next_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    broker.end, broker.come = 9, [Arriving(3)]
    assert (broker.until(3, 1_000_000), broker.asked) == (4, 2)


def test_messages_that_do_not_come_for_a_second_are_planned_as_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    broker.end = 9
    assert [broker.until(3, 1_000_000), broker.until(3, 1_000_000)] == [3, 9]
    assert broker.topics.taken(OffsetRange("s", "t", 0, 0, 3, 9)) is None
    assert [broker.until(9), broker.asked] == [9, 4]  # nothing is followed for a second


def test_what_workers_fetch_together_is_planned_as_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    broker.end, broker.come = 90_000, [Arriving(3)]
    assert broker.until(3, 1_000_000) == 90_000


def test_nothing_is_followed_while_much_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.end = 90_000
    broker.topics.listing({("t", 0): 0})
    broker.topics.follow({("t", 0): 50_000})
    assert broker.assigned == []


def test_an_error_of_a_followed_partition_is_left_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    broker.end, broker.come = 7, [Arriving(3), Arriving(3, "_AUTO_OFFSET_RESET")]
    assert (broker.until(3), broker.asked) == (7, 2)


def test_time_of_a_broker_is_asked_for_in_each_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch, is_append_time=True)
    assert [(broker.until(0), broker.asked), (broker.until(3), broker.asked)] == [(3, 1), (3, 2)]


def test_more_partitions_than_may_be_followed_are_asked_for_in_each_micro_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [_asked_twice(monkeypatch, most) for most in (None, 1, 0)] == [1, 1, 2]


def _asked_twice(monkeypatch: pytest.MonkeyPatch, most: int | None) -> int:
    broker = Followed(monkeypatch, most)
    broker.until(0)
    broker.until(3)
    return broker.asked


def test_marks_of_transactions_are_planned_with_messages_or_as_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    broker.end, broker.come = 4, [Arriving(4, "_PARTITION_EOF")]
    assert [broker.until(3), broker.until(3, 1_000_000)] == [3, 4]
    broker.come = [Arriving(4), Arriving(6, "_PARTITION_EOF")]
    assert broker.until(4) == 6


def test_a_partition_that_was_cut_back_is_seen_as_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Followed(monkeypatch)
    broker.until(0)
    broker.end = 1
    assert broker.until(3, 1_000_000) == 1


def test_taken_messages_travel_as_bytes() -> None:
    chunk = consuming.Chunk(np.array([3, 5, 8]), np.array([-1, 7, 9]), [b"a", None, b""])
    found = consuming.TakenMessages.of_bytes(consuming.TakenMessages("t", 1, 3, 9, chunk).to_bytes())
    assert (found.topic, found.partition, found.start, found.until, found.chunk.values) == ("t", 1, 3, 9, chunk.values)
    assert [found.chunk.offsets.tolist(), found.chunk.timestamps.tolist()] == [[3, 5, 8], [-1, 7, 9]]
    assert [found.has(OffsetRange("s", "t", 0, 1, 4, until)) for until in (9, 10)] == [True, False]
    assert [part.values for part in found.chunks(OffsetRange("s", "t", 0, 1, 4, 8))] == [[None]]
