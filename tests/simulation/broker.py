"""A broker of Kafka in a simulated world: topics with transactions, and the classes of its client in Python.

It is a machine of its own, so what it has taken survives whatever happens to the process of a job. Calls are struck as
those of the disk are: the broker is away for some time, or does what it is asked to and its answer is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec

from job_engine.sinks.topics import publishing
from job_engine.sources.topics import consuming
from job_engine.sources.topics.consuming import Follower, TakenMessages
from job_engine.sources.topics.pieces import OffsetRange
from job_engine.sources.topics.reading import RangeReader
from job_engine.threads import begun
from tests.simulation.disk import Disk
from tests.simulation.faults import CRASHES, Fault

Found = TypeVar("Found")

ABSENCES = (0.3, 3.0, 20.0, 400.0)
"""Seconds that the broker is away: the longest ends the transactions that are open."""


class Fate(StrEnum):
    """What becomes of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    """Messages that are seen together, and the offsets that a group has from then on; `begun`: the world's time."""

    begun: float
    fate: Fate = Fate.OPEN
    partitions: list[Partition] = field(default_factory=list)
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a partition has at one offset; `value`: None = the mark of a transaction's end."""

    offset: int
    stamp: int
    value: bytes | None
    key: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    transaction: Transaction | None = None


@dataclass(slots=True, eq=False)
class Partition:
    """A log; `first`: the least offset that retention has left, `gone`: what was before.

    made: the world's time; -inf = before it began
    is_known: a job has it on record: before that it may begin where the log begins
    is_open: it was read, and the job has not ended by itself since: what was read may be read again
    read_to: the offset behind the last one that was read
    done_to: the offset behind the last one that no job reads again
    """

    log: list[Stored] = field(default_factory=list)
    gone: list[Stored] = field(default_factory=list)
    first: int = 0
    end: int = 0
    is_known: bool = False
    is_open: bool = False
    made: float = -inf
    read_to: int = 0
    done_to: int = 0

    def add(self, stamp: int, value: bytes | None, **more: Any) -> Stored:
        """Write one more."""
        stored = Stored(self.end, stamp, value, **more)
        self.log.append(stored)
        self.end += 1
        return stored

    def note_read(self, until: int) -> None:
        """A job has read its messages up to an offset."""
        self.is_open = True
        self.read_to = max(self.read_to, until)

    @property
    def settled(self) -> int:
        """The offset behind the last one that no open transaction holds back."""
        return next((own.offset for own in self.log if own.transaction and own.transaction.fate is Fate.OPEN), self.end)

    def until(self, *, is_committed: bool) -> int:
        """The offset behind the last one that a reader gets."""
        return self.settled if is_committed else self.end

    def seen(self, begin: int, *, is_committed: bool) -> Iterator[Stored]:
        """The messages that a reader gets from an offset on."""
        until = self.until(is_committed=is_committed)
        for own in self.log[max(0, begin - self.end + len(self.log)) :]:
            is_aborted = own.transaction is not None and own.transaction.fate is Fate.ABORTED
            if begin <= own.offset < until and own.value is not None and not (is_aborted and is_committed):
                yield own

    def ever(self) -> Iterator[Stored]:
        """The messages that a reader of what is committed could get, also those that it has deleted."""
        for own in (*self.gone, *self.log):
            if own.value is not None and (own.transaction is None or own.transaction.fate is Fate.COMMITTED):
                yield own

    def forget(self, before: int) -> None:
        """Let retention remove what is before an offset."""
        self.gone += [own for own in self.log if own.offset < before]
        self.log = [own for own in self.log if own.offset >= before]
        self.first = max(self.first, before)


class Broker:
    """The topics of a world and who writes to them."""

    def __init__(self, disk: Disk, chooser: random.Random) -> None:
        self.disk, self.chooser = disk, chooser
        self.topics: dict[str, list[Partition]] = {}
        self.groups: dict[str, dict[tuple[str, int], int]] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, tuple[Transaction, float]] = {}
        """By transactional id: its open transaction, and the seconds that it may take."""
        self.lost: set[tuple[str, int, int]] = set()
        """Topics, partitions and offsets that a job has reported as lost."""
        self._back = 0.0
        self.has_just_begun = False

    @property
    def now(self) -> float:
        """Seconds of the world."""
        return self.disk.scheduler.now

    def called(self, seconds: float, do: Callable[[], Found]) -> Found:
        """Ask the broker, which has so long to answer; raises KafkaException."""
        scheduler = self.disk.scheduler
        scheduler.step()
        fault = self.disk.faults.draw("broker")
        if fault is Fault.AWAY:
            self._back = self.now + self.chooser.choice(ABSENCES)
            self.has_just_begun = True
        if fault is Fault.LATE:
            scheduler.wait(lambda: False, self.chooser.uniform(0, 2) * max(seconds, 0.01))
        if self.now < self._back:
            scheduler.wait(lambda: self.now >= self._back, max(seconds, 0.001))
            if self.now < self._back:
                raise failed(KafkaError._TIMED_OUT if seconds else KafkaError._TRANSPORT, is_retriable=True)
        self._end_late()
        if fault in (Fault.KILL_BEFORE, Fault.POWER_BEFORE):
            self.disk.crash(fault)
        found = do()
        if fault is Fault.LOST:
            scheduler.wait(lambda: False, max(seconds, 0.001))
            raise failed(KafkaError._TIMED_OUT, is_retriable=True)
        if fault in CRASHES:
            self.disk.crash(fault)
        return found

    def is_away(self) -> bool:
        """Whether nobody reaches it."""
        return self.now < self._back

    def come_back(self) -> None:
        """Whoever reaches it from now on is answered."""
        self._back, self.has_just_begun = self.now, False

    def _end_late(self) -> None:
        for name, (transaction, seconds) in list(self.open.items()):
            if self.now - transaction.begun > seconds:
                self.epochs[name] += 1
                self.end(name, Fate.ABORTED)

    def end(self, name: str, fate: Fate) -> None:
        """End the open transaction of a transactional id, if there is one."""
        transaction, _ = self.open.pop(name, (None, 0.0))
        if transaction is None:
            return
        transaction.fate = fate
        for partition in transaction.partitions:
            partition.add(0, None)
        if fate is Fate.COMMITTED:
            for group, offsets in transaction.offsets.items():
                self.groups.setdefault(group, {}).update(offsets)


def failed(code: int, *, is_fatal: bool = False, is_retriable: bool = False) -> KafkaException:
    """An error as the client raises it."""
    return KafkaException(KafkaError(code, None, is_fatal, is_retriable, False))


class _Answer:
    """The answer to what an administrator asks."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def result(self, timeout: float | None = None) -> Any:
        assert timeout is None or timeout > 0
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


class Message:
    """As the client gives it; `place`: None = an error of no partition."""

    def __init__(
        self, place: tuple[str, int] | None, offset: int, stored: Stored | None, error: KafkaError | None = None
    ) -> None:
        self._place, self._offset, self._stored, self._error = place, offset, stored, error

    def topic(self) -> str | None:
        return None if self._place is None else self._place[0]

    def partition(self) -> int:
        return -1 if self._place is None else self._place[1]

    def error(self) -> KafkaError | None:
        return self._error

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return None if self._stored is None else self._stored.value

    def timestamp(self) -> tuple[int, int]:
        return (1, -1 if self._stored is None else self._stored.stamp)

    def __len__(self) -> int:
        return len(self.value() or b"")


def client_classes(broker: Broker) -> tuple[type[Any], type[Any], type[Any]]:
    """What stands for the client's Producer, Consumer and AdminClient."""

    def described() -> Any:
        return SimpleNamespace(topics=dict.fromkeys(broker.topics), cluster_id="simulated")

    class Producer:
        def __init__(self, settings: Mapping[str, Any], **_: Any) -> None:
            self._name = settings["transactional.id"]
            self._seconds = int(settings["transaction.timeout.ms"]) / 1000
            self._queue: list[tuple[str, str, str | None, tuple[tuple[str, bytes], ...]]] = []
            self._transaction: Transaction | None = None
            self._epoch = -1

        def _ask(self, seconds: float, do: Callable[[], Found]) -> Found:
            def asked() -> Found:
                if broker.epochs[self._name] != self._epoch:
                    raise failed(KafkaError._FENCED, is_fatal=True)
                return do()

            return broker.called(seconds, asked)

        def _opened(self) -> Transaction:
            """The transaction that is open, which the broker learns of with its first message."""
            assert self._transaction is not None, "a transaction has begun"
            if self._name not in broker.open and self._transaction.fate is Fate.OPEN:
                self._transaction.begun = broker.now
                broker.open[self._name] = self._transaction, self._seconds
            return self._transaction

        def init_transactions(self, seconds: float) -> None:
            def do() -> None:
                self._epoch = broker.epochs[self._name] = broker.epochs.get(self._name, -1) + 1
                broker.end(self._name, Fate.ABORTED)

            broker.called(seconds, do)

        def begin_transaction(self) -> None:
            if self._transaction is not None and self._transaction is broker.open.get(self._name, (None,))[0]:
                raise failed(KafkaError._STATE)
            self._transaction, self._queue = Transaction(broker.now), []

        def produce(self, topic: str, value: str, key: str | None, headers: Sequence[tuple[str, bytes]]) -> None:
            self._queue.append((topic, value, key, tuple(headers)))

        def __len__(self) -> int:
            return len(self._queue)

        def poll(self, seconds: float) -> int:
            return 0

        def flush(self, seconds: float) -> int:
            def do() -> None:
                transaction = self._opened()
                for topic, value, key, headers in self._queue[: broker.chooser.choice((1, 5, 1000))]:
                    partition = broker.chooser.choice(broker.topics[topic])
                    if partition not in transaction.partitions:
                        transaction.partitions.append(partition)
                    more = {"key": key, "headers": headers, "transaction": transaction}
                    partition.add(int(broker.now * 1000), value.encode(), **more)
                    del self._queue[0]

            try:
                self._ask(seconds, do)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
            return len(self._queue)

        def send_offsets_to_transaction(self, places: Sequence[TopicPartition], group: str, seconds: float) -> None:
            def do() -> None:
                offsets = self._opened().offsets.setdefault(group, {})
                offsets.update({(place.topic, place.partition): place.offset for place in places})

            self._ask(seconds, do)

        def commit_transaction(self, seconds: float) -> None:
            def do() -> None:
                assert self._transaction is not None, "a transaction has begun"
                assert self._transaction.fate is not Fate.ABORTED, "an aborted one is not committed"
                broker.end(self._name, Fate.COMMITTED)

            self._ask(seconds, do)

        def abort_transaction(self, seconds: float) -> None:
            self._queue = []
            self._ask(seconds, lambda: broker.end(self._name, Fate.ABORTED))

        def list_topics(self, timeout: float) -> Any:
            return broker.called(timeout, described)

    class Consumer:
        def __init__(self, settings: Mapping[str, Any], **_: Any) -> None:
            self._group = settings["group.id"]
            self._is_committed = settings.get("isolation.level", "read_committed") == "read_committed"
            self._follows = "queued.min.messages" in settings
            self._next: dict[tuple[str, int], int] = {}
            self._told_ends: dict[tuple[str, int], int] = {}

        def assign(self, places: Sequence[TopicPartition]) -> None:
            self._next, self._told_ends = {(place.topic, place.partition): place.offset for place in places}, {}

        def unassign(self) -> None:
            self._next = {}

        def close(self) -> None:
            self._next = {}

        def consumer_group_metadata(self) -> str:
            return str(self._group)

        def consume(self, count: int, timeout: float) -> list[Message]:
            def do() -> list[Message]:
                return [message for place in self._next for message in self._messages(place, count)]

            next_, told = dict(self._next), dict(self._told_ends)
            try:
                return broker.called(timeout, do)
            except KafkaException as error:
                self._next, self._told_ends = next_, told  # a client asks again for an answer that was lost
                is_said = error.args[0].name() == "_TRANSPORT"
                return [Message(None, 0, None, error.args[0])] if is_said else []

        def _messages(self, place: tuple[str, int], count: int) -> list[Message]:
            partition, start = broker.topics[place[0]][place[1]], self._next[place]
            if start < partition.first:
                return [Message(place, start, None, KafkaError(KafkaError._AUTO_OFFSET_RESET))]
            most = min(count, broker.chooser.choice((1, 3, 10_000)))
            found = [Message(place, own.offset, own) for own in partition.seen(start, is_committed=self._is_committed)]
            chosen = found[:most]
            if chosen:
                self._next[place] = chosen[-1].offset() + 1
                if not self._follows:
                    partition.note_read(self._next[place])
            end = partition.until(is_committed=self._is_committed)
            if len(chosen) == len(found) and self._told_ends.get(place) != end:
                self._next[place] = self._told_ends[place] = end
                chosen.append(Message(place, end, None, KafkaError(KafkaError._PARTITION_EOF)))
            return chosen

        def poll(self, seconds: float) -> Message | None:
            if not self._next or not seconds:
                return None
            found = self.consume(1, seconds)
            return found[0] if found else None

        def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
            partition = broker.topics[place.topic][place.partition]
            return broker.called(timeout, lambda: (partition.first, partition.until(is_committed=self._is_committed)))

        def committed(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
            def do() -> list[TopicPartition]:
                own = broker.groups.get(self._group, {})
                return [
                    TopicPartition(place.topic, place.partition, own.get((place.topic, place.partition), -1001))
                    for place in places
                ]

            return broker.called(timeout, do)

    class Admin:
        def __init__(self, settings: Mapping[str, Any]) -> None:
            self._tell = settings["error_cb"]

        def poll(self, _: float) -> int:
            if broker.is_away():
                self._tell(KafkaError(KafkaError._TRANSPORT))
            return 0

        def list_topics(self, timeout: float) -> Any:
            return broker.called(timeout, described)

        def describe_topics(self, names: Any, request_timeout: float, **_: Any) -> dict[str, _Answer]:
            def described(name: str) -> Any:
                if name not in broker.topics:
                    return failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
                partitions = [SimpleNamespace(id=number) for number in range(len(broker.topics[name]))]
                return SimpleNamespace(topic_id=f"id of {name}", partitions=partitions, authorized_operations=None)

            return self._answered(names.topic_names, request_timeout, described)

        def list_offsets(
            self, asked: Mapping[TopicPartition, Any], isolation_level: IsolationLevel, request_timeout: float
        ) -> dict[TopicPartition, _Answer]:
            is_committed = isolation_level is IsolationLevel.READ_COMMITTED

            def offset(place: TopicPartition) -> Any:
                partition, which = broker.topics[place.topic][place.partition], asked[place]
                if isinstance(which, type(OffsetSpec.latest())):
                    return SimpleNamespace(offset=partition.until(is_committed=is_committed))
                if isinstance(which, type(OffsetSpec.earliest())):
                    return SimpleNamespace(offset=partition.first)
                seen = partition.seen(partition.first, is_committed=is_committed)
                return SimpleNamespace(offset=next((own.offset for own in seen if own.stamp >= which.timestamp), -1))

            def known(place: TopicPartition) -> Any:
                # a broker that has just begun may answer without an offset, once
                has_none, broker.has_just_begun = broker.has_just_begun, False
                return SimpleNamespace(offset=OFFSET_INVALID) if has_none else offset(place)

            return self._answered(asked, request_timeout, known)

        def describe_configs(
            self, resources: Sequence[ConfigResource], request_timeout: float
        ) -> dict[ConfigResource, _Answer]:
            return self._answered(resources, request_timeout, lambda _: {})

        def _answered(self, asked: Any, seconds: float, answer: Callable[[Any], Any]) -> dict[Any, _Answer]:
            try:
                return broker.called(seconds, lambda: {item: _Answer(answer(item)) for item in asked})
            except KafkaException as error:
                return {item: _Answer(error) for item in asked}

    return Producer, Consumer, Admin


@contextmanager
def simulated_broker(broker: Broker) -> Iterator[None]:
    """Let a job of this world ask the broker; what a process before it has kept is lost."""
    producer, consumer, admin = client_classes(broker)
    consuming._consumers.clear()
    publishing.PUBLISHING._publishers.clear()

    def at_once(function: Callable[[Any], Any], items: Sequence[Any], _: int) -> list[Any]:
        answers = [begun(lambda item=item: function(item), "at once") for item in items]  # type: ignore[misc]
        return [answer.result() for answer in answers]

    told, given = RangeReader._lost, Follower.taken

    def taken(follower: Follower, wanted: OffsetRange) -> TakenMessages | None:
        found = given(follower, wanted)  # what has only come is not read yet
        if found is not None and found.chunk.values:
            broker.topics[wanted.topic][wanted.partition].note_read(wanted.until)
        return found

    def lost(reader: RangeReader, gone: OffsetRange) -> Any:
        broker.lost.update((gone.topic, gone.partition, offset) for offset in range(gone.start, gone.until))
        return told(reader, gone)

    with ExitStack() as stack:
        for module, name, value in (
            (RangeReader, "_lost", lost),
            (Follower, "taken", taken),
            (confluent_kafka, "Producer", producer),
            (confluent_kafka, "Consumer", consumer),
            (confluent_kafka.admin, "AdminClient", admin),
            (publishing, "in_threads", at_once),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
