"""Read messages of one partition on a worker, from an offset up to another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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
    broker_error,
    kafka_client,
    no_permission,
    servers,
)
from job_engine.sources.topics.pieces import OffsetRange
from querylang.dataclass import dataclass
from querylang.printable import warn
from runtime.instants import LATEST

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

_DEFAULTS = {"group.id": "ensue", "isolation.level": "read_committed", "fetch.wait.max.ms": "5"}
"""No group is joined and no offset is committed; the client wants a name anyway.

The broker waits only behind the last message: where the end of a range is the end of a transaction.
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


def _chunk(messages: list[Any]) -> Chunk:
    count = len(messages)
    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, count)
    return Chunk(
        np.fromiter((message.offset() for message in messages), np.int64, count),
        np.where((stamps >= 0) & (stamps <= _LAST_STAMP), stamps, -1) * 1000,
        [message.value() for message in messages],
    )
