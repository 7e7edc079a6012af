"""Read messages: a range of a partition on a worker, on a driver what comes behind a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from job_engine.clock import monotonic
from job_engine.errors import USUAL, Outage, OutageTooLong
from job_engine.kafka_broker import (
    FORBIDDEN,
    PASSING,
    QUIET,
    BrokerError,
    Listing,
    TopicListing,
    broker_error,
    kafka_client,
    no_permission,
    servers,
)
from job_engine.sources.topics.pieces import OffsetRange
from job_engine.wire.packed_rows import pack, unpack
from querylang.dataclass import dataclass, field, replace
from querylang.printable import warn
from runtime.instants import LATEST, NO_TIME

CHUNK_MESSAGES = 200_000
CHUNK_BYTES = 32 << 20
"""About how much is decoded at once."""

_AT_ONCE = 10_000

_WAIT = 0.005
"""Seconds that the client waits for as many messages; where offsets have gaps, there are fewer."""

SILENCE = 5.0
"""Seconds without a message after which the broker counts as one that does not answer."""

_SETTINGS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    **QUIET,
}

_DEFAULTS = {
    "group.id": "ensue",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "5",
    "fetch.queue.backoff.ms": "5",
}
"""No group is joined and no offset is committed; the client wants a name anyway.

The broker waits only behind the last message: where the end of a range is the end of a transaction.
A client that has fetched as much as it may looks again at once: by itself it rests for a second,
also where it has been given another range meanwhile.
"""

_LAST_STAMP = LATEST // 1000
"""ms. A producer may write any number: one behind the year 9999 is not a time."""

_GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages in order of offset; `timestamps`: µs, negative = it has none."""

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    values: list[bytes | None]


class GoneMessages(Exception):
    """Messages of a range are not there any more; `first`: the least offset that is there."""

    def __init__(self, message: str, first: int) -> None:
        super().__init__(message, first)
        self.first = first


_consumers: dict[str, Any] = {}
"""By settings. A worker keeps its connections from task to task."""


def consumed(
    client: Mapping[str, str],
    wanted: OffsetRange,
    patience: float = USUAL,
    tell: Callable[[str], None] = warn,
    now: Callable[[], float] = monotonic,
) -> Iterator[Chunk]:
    """The messages of a range. Gaps are normal; what is missing at the end is not.

    patience: seconds that a broker which does not answer is asked again; then the micro-batch
        fails, and is repeated by the next run
    tell: takes a line when the broker does not answer, and when it answers again
    now: the clock, in seconds from any beginning

    Raises GoneMessages and BrokerError.
    """
    package, key = kafka_client(), json.dumps(client, sort_keys=True)
    consumer = _consumers.pop(key, None) or _new_consumer(client)
    try:
        consumer.assign([package.TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        outage = Outage(patience, lambda line: tell(f"{wanted.topic}/{wanted.partition}: {line}"), now)
        yield from _Reading(client, consumer, wanted, outage, now).chunks()
        consumer.unassign()
    except BaseException as error:
        consumer.close()
        if isinstance(error, package.KafkaException):
            raise broker_error(client, error.args[0]) from error
        raise
    _consumers[key] = consumer


def _new_consumer(client: Mapping[str, str]) -> Any:
    package = kafka_client()
    try:
        return package.Consumer({**_DEFAULTS, **client, **_SETTINGS})
    except package.KafkaException as error:
        raise broker_error(client, error.args[0]) from error


class _Reading:
    """One range that is being read; `next`: the offset up to which it was."""

    def __init__(
        self, client: Mapping[str, str], consumer: Any, wanted: OffsetRange, outage: Outage, now: Callable[[], float]
    ) -> None:
        self.client = client
        self.consumer = consumer
        self.wanted = wanted
        self.outage = outage
        self.now = now
        self.next = wanted.start
        self.problem: BrokerError | None = None

    def chunks(self) -> Iterator[Chunk]:
        messages: list[Any] = []
        size, last = 0, self.now()
        while self.next < self.wanted.until:
            before = self.next
            count = min(_AT_ONCE, self.wanted.until - self.next)
            for message in self.consumer.consume(count, timeout=_WAIT):
                if self._is_wanted(message):
                    messages.append(message)
                    size += len(message)
            if self.next > before:
                last, self.problem = self.now(), None
                self.outage.over(self._where)
            elif self.now() - last >= SILENCE:
                self._note_silence()
            if len(messages) >= CHUNK_MESSAGES or size >= CHUNK_BYTES:
                yield _chunk(messages)
                messages, size = [], 0
        if messages:
            yield _chunk(messages)

    def _is_wanted(self, message: Any) -> bool:
        error = message.error()
        if error is not None:
            self._take(error, message)
            return False
        offset: int = message.offset()
        is_wanted = self.next <= offset < self.wanted.until
        self.next = max(self.next, offset + 1)
        return is_wanted

    def _take(self, error: Any, message: Any) -> None:
        """What the client says beside messages: the end of the partition, and errors."""
        name = error.name()
        if name == "_PARTITION_EOF":
            self.next = max(self.next, message.offset())
        elif name in _GONE:
            raise self._gone()
        elif name == FORBIDDEN:
            raise no_permission(self.client, self.wanted.topic, "read")
        elif name in PASSING or name == "GROUP_AUTHORIZATION_FAILED":  # the group is only a name
            self.problem = broker_error(self.client, error)
        else:
            raise broker_error(self.client, error)

    def _gone(self) -> GoneMessages | BrokerError:
        place = kafka_client().TopicPartition(self.wanted.topic, self.wanted.partition)
        try:
            first, behind = self.consumer.get_watermark_offsets(place, timeout=10)
        except kafka_client().KafkaException as error:
            return broker_error(self.client, error.args[0])
        if min(first, behind) < 0:
            return BrokerError(f"{self._where}: the broker does not say what offsets there are", is_passing=True)
        known = first if self.next < first else behind
        there = f"the first one is {first}" if first < behind else f"there is no message before {behind}"
        return GoneMessages(f"the offsets from {self.next} on no longer exist; {there}", known)

    @property
    def _where(self) -> str:
        return f"Kafka at {servers(self.client)}"

    def _note_silence(self) -> None:
        """No message comes, although there are some; raises BrokerError after the last attempt."""
        reason = f"{self._where}: the broker sends no message" if self.problem is None else str(self.problem)
        try:
            self.outage.note(reason)
        except OutageTooLong as end:
            wanted = self.wanted
            raise BrokerError(
                f"{wanted.topic}/{wanted.partition}: cannot be read from offset {self.next} to {wanted.until - 1}:"
                f" {end}. Run the job again: it continues where it stopped",
                is_passing=True,
            ) from end


def _chunk(messages: Sequence[Any]) -> Chunk:
    count = len(messages)
    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, count)
    return Chunk(
        np.fromiter((message.offset() for message in messages), np.int64, count),
        np.where((stamps >= 0) & (stamps <= _LAST_STAMP), stamps, -1) * 1000,
        [message.value() for message in messages],
    )


# Messages that come behind what is planned, taken by the driver itself.
#
# Then it need not ask what there is, and the worker that reads them need not fetch them. What is
# planned of them is a range of offsets as any other, which a worker can fetch again.

MOST_TAKEN = 10_000
"""Messages that wait for their micro-batch, at most: as many as one worker reads. Where there are
more, workers fetch them."""

LISTED = 1.0
"""Seconds. So often the broker is asked anyway: for new partitions, and whether all has come."""

_FOLLOWING = {
    "fetch.wait.max.ms": "500",  # the broker answers as soon as there is a message
    "queued.min.messages": str(MOST_TAKEN),
    "queued.max.messages.kbytes": "16384",
}

Partition = tuple[str, int]
"""A topic and a number."""

Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class TakenMessages:
    """All messages from an offset up to another one, as a driver has taken them."""

    topic: str
    partition: int
    start: int
    until: int
    chunk: Chunk

    def has(self, wanted: OffsetRange) -> bool:
        """Whether a range is a part of it."""
        is_same = (self.topic, self.partition) == (wanted.topic, wanted.partition)
        return is_same and self.start <= wanted.start and wanted.until <= self.until

    def chunks(self, wanted: OffsetRange) -> Iterator[Chunk]:
        """The messages of a range that is a part of it."""
        first, last = np.searchsorted(self.chunk.offsets, (wanted.start, wanted.until)).tolist()
        if first < last:
            chunk = self.chunk
            yield Chunk(chunk.offsets[first:last], chunk.timestamps[first:last], chunk.values[first:last])

    def to_bytes(self) -> bytes:
        """As a frame can hold it."""
        header = {"topic": self.topic, "partition": self.partition, "start": self.start, "until": self.until}
        values = self.chunk.values
        lengths = np.array([-1 if value is None else len(value) for value in values], np.int64)
        arrays = (own.tobytes() for own in (self.chunk.offsets, self.chunk.timestamps, lengths))
        return pack("messages", 1, header, [*arrays, b"".join(value or b"" for value in values)])

    @staticmethod
    def of_bytes(data: bytes) -> TakenMessages:
        """The inverse of `to_bytes`."""
        header, (*arrays, content) = unpack("messages", 1, data)
        offsets, timestamps, lengths = (np.frombuffer(own, np.int64) for own in arrays)
        ends = np.maximum(lengths, 0).cumsum().tolist()
        values = [
            None if length < 0 else bytes(content[end - length : end])
            for length, end in zip(lengths.tolist(), ends, strict=True)
        ]
        return TakenMessages(**header, chunk=Chunk(offsets, timestamps, values))


@dataclass(slots=True)
class _Followed:
    """A partition: its messages from `first` up to `next` are there."""

    first: int
    next: int
    messages: list[Any] = field(default_factory=list)

    def forget(self, before: int) -> None:
        self.first = max(self.first, before)
        if self.messages and self.messages[0].offset() < before:
            self.messages = [message for message in self.messages if message.offset() >= before]

    @property
    def until(self) -> int:
        """Up to where a micro-batch of it reads: marks of transactions alone are not worth one."""
        return self.next if self.messages else self.first


class Follower:
    """Takes the messages of partitions as they come.

    It waits for nothing, and raises nothing: where something is wrong it follows no partition any
    more, and whoever asks the broker then learns what it is.

    client: options of librdkafka
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._consumer: Any = None
        self._own: dict[Partition, _Followed] = {}

    @property
    def follows(self) -> bool:
        """Whether it follows any."""
        return self._consumer is not None

    def follow(self, places: Offsets) -> None:
        """Follow these partitions, each from an offset on; those that it follows continue."""
        package = kafka_client()
        new = {name: _Followed(offset, offset) for name, offset in places.items() if name not in self._own}
        if not new:
            return
        self._own |= new
        try:
            if self._consumer is None:
                self._consumer = package.Consumer({**_DEFAULTS, **_FOLLOWING, **self._client, **_SETTINGS})
            self._consumer.assign([package.TopicPartition(*name, own.next) for name, own in self._own.items()])
        except package.KafkaException:
            self.stop()

    def take(self, places: Offsets) -> Mapping[Partition, _Followed] | None:
        """What has come of partitions from these offsets on; None = it does not follow these."""
        is_followed = self._own.keys() == places.keys() and all(
            own.first <= places[name] <= own.next for name, own in self._own.items()
        )
        if self._consumer is None or not is_followed:
            self.stop()
            return None
        for name, own in self._own.items():
            own.forget(places[name])
        room = MOST_TAKEN - sum(len(own.messages) for own in self._own.values())
        try:
            for message in self._consumer.consume(room, timeout=0) if room > 0 else ():
                self._add(message)
        except kafka_client().KafkaException:
            self.stop()
            return None
        return self._own

    def _add(self, message: Any) -> None:
        error, offset = message.error(), message.offset()
        if error is not None and error.name() != "_PARTITION_EOF":
            raise kafka_client().KafkaException(error)
        own = self._own[message.topic(), message.partition()]
        if error is None and offset >= own.next:
            own.messages.append(message)
            own.next = offset + 1
        own.next = max(own.next, offset)

    def taken(self, wanted: OffsetRange) -> TakenMessages | None:
        """The messages of a range; None = they are not all there."""
        own = self._own.get((wanted.topic, wanted.partition))
        if own is None or wanted.is_lost or not own.first <= wanted.start <= wanted.until <= own.next:
            return None
        messages = [message for message in own.messages if wanted.start <= message.offset() < wanted.until]
        return TakenMessages(wanted.topic, wanted.partition, wanted.start, wanted.until, _chunk(messages))

    def stop(self) -> None:
        """Follow nothing."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._own = None, {}


class FollowedTopics:
    """What there is of a source: what has come, and every now and then what the broker says.

    ask: the broker's listing; raises BrokerError
    now: the lister's clock, ns since 1970
    most: partitions that may be followed, as `PlannedRun` says it
    clock: seconds from any beginning; it never goes back
    """

    def __init__(
        self,
        client: Mapping[str, str],
        ask: Callable[[], Listing],
        now: Callable[[], int],
        most: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._follower = Follower(client)
        self._ask = ask
        self._now = now
        self._most = most
        self._clock = clock
        self._asked = Listing(NO_TIME, {})
        self._asked_at = self._rests_until = -inf

    @property
    def follows(self) -> bool:
        """As of `Follower`."""
        return self._follower.follows

    def listing(self, planned: Offsets) -> Listing:
        """As `ask`, up to the messages that have come; `planned`: up to where is planned."""
        began, moment, before = self._clock(), self._now() // 1000, _ends(self._asked)
        has_followed = self._follower.follows
        has_come = self._follower.take({name: planned[name] for name in before if name in planned})
        if has_come is not None and began < self._asked_at + LISTED:
            return _up_to(self._asked, moment, {name: own.until for name, own in has_come.items()})
        self._asked, self._asked_at = self._ask(), began
        if has_come is not None and self._has_enough(has_come, before):
            ends = _ends(self._asked)
            until = {name: min(own.next, ends.get(name, own.next)) for name, own in has_come.items()}
            return _up_to(self._asked, self._asked.moment, until)
        if has_followed:
            self._follower.stop()
            self._rests_until = began + LISTED
        return self._asked

    def _has_enough(self, has_come: Mapping[Partition, _Followed], before: Offsets) -> bool:
        """Whether all has come that was there long ago, `before`, and not much is left."""
        left = sum(max(0, end - has_come[name].next) for name, end in _ends(self._asked).items() if name in has_come)
        return left <= MOST_TAKEN and all(own.next >= before[name] for name, own in has_come.items())

    def follow(self, planned: Offsets) -> None:
        """Take what comes behind these offsets from now on, unless much is there already.

        Where the broker's clock gives the timestamps, time advances with each of its answers.
        """
        ends = _ends(self._asked)
        has_clock = any(topic.is_append_time for topic in self._asked.topics.values())
        places = {name: planned[name] for name in ends if name in planned}
        left = sum(end - places[name] for name, end in ends.items() if name in places)
        is_allowed = not has_clock and (self._most is None or len(ends) <= self._most)
        if is_allowed and left <= MOST_TAKEN and self._asked_at >= self._rests_until:
            self._follower.follow(places)

    def taken(self, wanted: OffsetRange) -> TakenMessages | None:
        """As `Follower.taken`."""
        return self._follower.taken(wanted)

    def close(self) -> None:
        """End the connection."""
        self._follower.stop()


def _ends(listing: Listing) -> Offsets:
    return {
        (name, number): item.until
        for name, topic in listing.topics.items()
        for number, item in topic.partitions.items()
    }


def _up_to(listing: Listing, moment: int, until: Offsets) -> Listing:
    """A listing of a moment in which partitions end where their messages have come."""

    def ended(name: str, topic: TopicListing) -> TopicListing:
        partitions = {
            number: item if end == item.until else replace(item, until=end, is_settled=False)
            for number, item in topic.partitions.items()
            for end in (until.get((name, number), item.until),)
        }
        return replace(topic, partitions=partitions)

    return Listing(moment, {name: ended(name, topic) for name, topic in listing.topics.items()})
