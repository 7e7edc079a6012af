"""Ask brokers before a job starts: once, or as long as `retry` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from job_engine.document.setting_values import Stream
from job_engine.errors import Unreachable
from job_engine.kafka.asking import AskedBroker
from job_engine.kafka.client import servers
from job_engine.kafka.listing import BrokerError
from job_engine.kafka.topic_choice import TopicChoice
from job_engine.retrying import Outage, OutageTooLong
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from querylang.printable import warn

Found = TypeVar("Found")


def first_answer(
    name: str, client: Mapping[str, str], retry: float | None, ask: Callable[[AskedBroker], Found]
) -> Found:
    """What a broker answers; raises InputError, and Unreachable where it does not answer.

    name: what messages begin with, such as `source 'cards'`
    """
    outage = Outage(retry or 0.0, lambda line: warn(f"{name}: {line}"))
    while True:
        try:
            found = ask(AskedBroker(client))
        except BrokerError as error:
            if not error.is_passing:
                raise InputError(f"{name}: {error}") from error
            try:
                outage.wait(str(error))
            except OutageTooLong as problem:
                raise Unreachable(f"{name}: {problem}") from error
        else:
            outage.over(f"Kafka at {servers(client)}")
            return found


_DEFAULT_PORT = "9092"


@dataclass(frozen=True, slots=True)
class TopicsAt:
    """Topics of a broker as a `Stream`; `client`: options of librdkafka, which may be secret."""

    client: Mapping[str, str] = field(repr=False)
    choice: TopicChoice
    retry: float | None = None

    def shared(self, written: Stream, *, asks: bool) -> Sequence[str]:
        """As `Stream.shared`; a broker is asked for its cluster."""
        if not isinstance(written, TopicsAt):
            return []
        topics = [topic for topic in written.choice.named if self._has(topic)]
        is_same = topics and (
            _addresses(self.client) & _addresses(written.client) or (asks and self._is_cluster_of(written))
        )
        return [f"the topic '{topic}'" for topic in topics] if is_same else []

    def _has(self, topic: str) -> bool:
        return topic in self.choice.named or (self.choice.pattern is not None and bool(self.choice.of([topic])))

    def _is_cluster_of(self, other: TopicsAt) -> bool:
        """Whether both are of one cluster, whatever addresses lead there."""
        first, second = (
            first_answer("the topics", item.client, item.retry, lambda broker: broker.cluster())
            for item in (self, other)
        )
        return bool(first) and first == second


def _addresses(client: Mapping[str, str]) -> frozenset[str]:
    """Host and port of each broker that is named, in lower case."""
    found = []
    for text in client.get("bootstrap.servers", "").split(","):
        address = text.strip().rpartition("://")[2].lower()
        is_whole = address.rpartition(":")[2].isdecimal() and not address.endswith("]")
        found.append(address if is_whole else f"{address}:{_DEFAULT_PORT}")
    return frozenset(found)
