"""A broker of Kafka: what it has, as plain data, and how it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any, Protocol

from job_engine.clock import monotonic, wall_ns
from job_engine.errors import SourceProblem
from querylang.dataclass import dataclass, field
from runtime.instants import LATEST

# Which topics of a broker are meant.


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics a source reads; one of these.

    names: of topics, sorted
    pattern: a regular expression for whole names
    assigned: partitions by topic
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that have to exist."""
        return tuple(sorted(self.assigned)) or self.names

    def of(self, present: Iterable[str]) -> list[str]:
        """Those of the topics of a broker that the pattern chooses; Kafka's own are never."""
        assert self.pattern is not None
        chosen = re.compile(self.pattern)
        return sorted(name for name in present if chosen.fullmatch(name) and not name.startswith("__"))

    def partitions(self, topic: str, present: Collection[int]) -> list[int]:
        """The partitions of a topic that are read."""
        return sorted(self.assigned[topic]) if topic in self.assigned else sorted(present)


# What a broker has, as plain data, and what can be asked of it.


class BrokerError(SourceProblem):
    """A broker did not answer, or refused; the text says it for people.

    is_passing: whether it may work when it is asked again
    """

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


@dataclass(frozen=True, slots=True)
class PartitionListing:
    """A partition.

    first: its least offset
    until: the offset behind the last message that can be read
    end: that behind all messages, also those that wait for an open transaction; None = `until`
    is_settled: whether no message before the end waits for its transaction
    """

    first: int
    until: int
    is_settled: bool = True
    end: int | None = None

    @property
    def open(self) -> int:
        """How many offsets wait for an open transaction."""
        return 0 if self.end is None else max(0, self.end - self.until)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic.

    identity: a topic of the same name that is made later has another
    is_append_time: whether the broker's clock gives the timestamps, and not the producer's
    """

    identity: str
    is_append_time: bool
    partitions: Mapping[int, PartitionListing]


@dataclass(frozen=True, slots=True)
class Listing:
    """What a broker has for a source; `moment`: µs, the lister's clock before it was asked."""

    moment: int
    topics: Mapping[str, TopicListing]


class Broker(Protocol):
    """A broker that can be asked; each call raises BrokerError."""

    def listing(self, choice: TopicChoice) -> Listing:
        """The topics of a source. A topic that is missing there does not exist."""

    def arrival_of(self, topic: str, partition: int, offset: int) -> int | None:
        """The timestamp (µs) of the first message from an offset on; None = not known."""

    def offsets_at(self, partitions: Sequence[tuple[str, int]], moment: int) -> dict[tuple[str, int], int | None]:
        """By topic and partition: the first offset from a time (µs) on; None = there is none."""


# Kafka's client in Python, librdkafka: imported on first use.

QUIET = {"log_level": "0"}
"""What goes wrong is said by errors, and not by the client's own lines on stderr."""

_HINTS = {
    "_TRANSPORT": "the broker cannot be reached",
    "_ALL_BROKERS_DOWN": "no broker can be reached",
    "_TIMED_OUT": "the broker does not answer",
    "_RESOLVE": "the name of the broker is not known",
    "_AUTHENTICATION": "the broker refuses the login",
    "_SSL": "TLS fails",
}

PASSING = frozenset(
    {
        *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_TIMED_OUT_QUEUE", "_WAIT_COORD"),
        *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE"),
        *("OFFSET_NOT_AVAILABLE", "NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", "KAFKA_STORAGE_ERROR"),
        *("REPLICA_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "_WAIT_CACHE"),
        *("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "UNSTABLE_OFFSET_COMMIT", "_MSG_TIMED_OUT"),
        *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    }
)
"""Names of errors after which the same may work."""

FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
"""The name of the error of a topic that may not be used."""

_OF_CONSUMERS = ("group.id", "isolation.level", "check.crcs", "fetch.", "max.partition.")
_OF_PRODUCERS = ("acks", "batch.", "compression.", "linger.", "message.", "transaction", "partitioner", "queue.")


def common_options(client: Mapping[str, str]) -> dict[str, str]:
    """The options that every client has, without those of consumers and producers."""
    return {key: value for key, value in client.items() if not key.startswith((*_OF_CONSUMERS, *_OF_PRODUCERS))}


def is_passing(error: Any) -> bool:
    """Whether the same may work when it is done again; `error`: a KafkaError."""
    return error.name() in PASSING or bool(error.retriable())


def kafka_client() -> ModuleType:
    """The package; raises BrokerError if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise BrokerError(
            "Kafka needs the package confluent-kafka: pip install 'ensue[kafka]'", is_passing=False
        ) from error
    return confluent_kafka


def servers(client: Mapping[str, str]) -> str:
    """The addresses of the brokers."""
    return client.get("bootstrap.servers", "")


def no_permission(client: Mapping[str, str], topic: str, what: str) -> BrokerError:
    """What to raise where a topic may not be used; `what`: `read` or `describe`."""
    return BrokerError(f"Kafka at {servers(client)}: no permission to {what} the topic '{topic}'", is_passing=False)


def broker_error(client: Mapping[str, str], error: object) -> BrokerError:
    """An error of the client in words for people; `error`: a KafkaError."""
    name, text = str(error.name()), str(error.str())  # type: ignore[attr-defined] # the package has no types here
    hint = _HINTS.get(name)
    reason = text if hint is None else f"{hint} ({text})"
    return BrokerError(f"Kafka at {servers(client)}: {reason}", is_passing=name in PASSING)


# Ask a broker what topics, partitions and offsets there are.

ANSWER_WITHIN = 10.0
"""Seconds that a broker may take to answer."""

AT_ONCE = 0.5
"""Seconds that it may take for what is good to know, and not needed."""

_NO_MESSAGE = -1
"""The offset of the first message from a time on, where there is none."""

_ATTEMPTS = 2
"""So often a broker that cannot be reached is tried at the start, a second each."""


class AskedBroker:
    """A broker, asked by Kafka's client.

    client: options of librdkafka
    """

    def __init__(self, client: Mapping[str, str], now: Callable[[], int] = wall_ns) -> None:
        kafka_client()
        self._client = client
        self._now = now
        self._is_committed = client.get("isolation.level", "read_committed") == "read_committed"
        self._append_times: dict[str, bool] = {}
        self._reason: Any = None
        self._has_answered = False
        self._last_chosen: list[tuple[str, int]] = []
        self._admin = self._new_client()

    def _new_client(self) -> Any:
        from confluent_kafka import KafkaException, admin

        try:
            return admin.AdminClient({**common_options(self._client), **QUIET, "error_cb": self._take})
        except KafkaException as error:
            raise broker_error(self._client, error.args[0]) from error

    def _take(self, error: object) -> None:
        """What the client says of connections; an answer that does not come gives no reason."""
        self._reason = error

    def _connect(self) -> None:
        """Wait for the first answer, but not where no broker can be reached."""
        from confluent_kafka import KafkaException

        deadline = monotonic() + ANSWER_WITHIN
        for attempt in count(1):
            try:
                self._admin.list_topics(timeout=1)
            except KafkaException:
                self._admin.poll(0)
                is_hopeless = self._reason is not None and attempt >= _ATTEMPTS
                if is_hopeless or monotonic() > deadline:
                    raise
            else:
                self._has_answered = True
                return

    def listing(self, choice: TopicChoice) -> Listing:
        """The topics of a source. A topic that is missing there does not exist."""
        moment = self._now() // 1000
        with self._errors():
            if not self._has_answered:
                self._connect()
            names = list(choice.named) or choice.of(self._admin.list_topics(timeout=ANSWER_WITHIN).topics)
            asked = self._described(names)
            before, self._last_chosen = self._last_chosen, []  # a broker that is away is asked one thing
            offsets = self._offsets(before)  # answered together with the descriptions
            described = asked()
            chosen = [
                (name, partition) for name, topic in described.items() for partition in _partitions(choice, name, topic)
            ]
            self._learn_append_times([name for name in described if name not in self._append_times])
            if chosen != before:
                offsets = self._offsets(chosen)
            listings = offsets()
            self._last_chosen = chosen
        topics = {
            name: TopicListing(
                str(topic.topic_id),
                self._append_times[name],
                {partition: listings[known, partition] for known, partition in chosen if known == name},
            )
            for name, topic in described.items()
        }
        return Listing(moment, topics)

    def offsets_at(self, partitions: Sequence[tuple[str, int]], moment: int) -> dict[tuple[str, int], int | None]:
        """By topic and partition: the first offset from a time (µs) on; None = there is none."""
        from confluent_kafka.admin import OffsetSpec

        with self._errors():
            spec = OffsetSpec.for_timestamp(-(-moment // 1000))
            found = self._asked(partitions, spec, is_committed=True, least=_NO_MESSAGE)()
        return {name: None if offset == _NO_MESSAGE else offset for name, offset in found.items()}

    def arrival_of(self, topic: str, partition: int, offset: int) -> int | None:
        """The timestamp (µs) of the first message from an offset on, committed or not.

        None = there is none, or the broker does not say it at once.
        """
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        own = {"group.id": "ensue", "enable.auto.commit": "false", "isolation.level": "read_uncommitted"}
        try:
            consumer = Consumer({**common_options(self._client), **own, **QUIET})
            try:
                consumer.assign([TopicPartition(topic, partition, offset)])
                message = consumer.poll(AT_ONCE)
            finally:
                consumer.close()
        except KafkaException:
            return None
        if message is None or message.error() is not None:
            return None
        stamp: int = message.timestamp()[1]
        return stamp * 1000 if 0 < stamp <= LATEST // 1000 else None

    def cluster(self) -> str | None:
        """What identifies the cluster; None = the broker does not say it."""
        with self._errors():
            if not self._has_answered:
                self._connect()
            found: str | None = self._admin.list_topics(timeout=ANSWER_WITHIN).cluster_id
        return found

    def rights(self, topic: str) -> frozenset[str] | None:
        """What the login may do with a topic that exists, such as `READ`; None = unknown."""
        from confluent_kafka import TopicCollection

        with self._errors():
            asked = self._admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True, request_timeout=ANSWER_WITHIN
            )
            allowed = _taken(asked[topic]).authorized_operations
        return None if allowed is None else frozenset(operation.name for operation in allowed)

    def _described(self, names: Sequence[str]) -> Callable[[], dict[str, Any]]:
        """By name of a topic that exists: what it is. Asks now; gives the answer when called."""
        from confluent_kafka import KafkaException, TopicCollection

        answers = {}
        if names:
            answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_WITHIN)

        def answered() -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, answer in answers.items():
                try:
                    found[name] = _taken(answer)
                except KafkaException as error:
                    if error.args[0].name() == FORBIDDEN:
                        raise no_permission(self._client, name, "describe") from error
                    if error.args[0].name() not in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID"):
                        raise
            return {name: found[name] for name in names if name in found}

        return answered

    def _offsets(self, partitions: Sequence[tuple[str, int]]) -> Callable[[], dict[tuple[str, int], PartitionListing]]:
        """What partitions have. Asks now; gives the answer when called."""
        from confluent_kafka.admin import OffsetSpec

        settling = partitions if self._is_committed else ()
        until = self._asked(partitions, OffsetSpec.latest(), is_committed=self._is_committed)
        ends = self._asked(settling, OffsetSpec.latest(), is_committed=False)
        first = self._asked(partitions, OffsetSpec.earliest(), is_committed=False)

        def answered() -> dict[tuple[str, int], PartitionListing]:
            behind, all_ends, begin = until(), ends(), first()
            return {
                name: PartitionListing(begin[name], behind[name], behind[name] == end, end)
                for name in partitions
                for end in (all_ends.get(name, behind[name]),)
            }

        return answered

    def _asked(
        self, partitions: Sequence[tuple[str, int]], which: object, *, is_committed: bool, least: int = 0
    ) -> Callable[[], dict[tuple[str, int], int]]:
        """Offsets of partitions. Asks now; gives the answer when called.

        A broker that has just started may answer without an offset, which the client gives as a
        number below `least`: it is asked again.
        """
        from confluent_kafka import IsolationLevel, TopicPartition

        if not partitions:
            return dict
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, number): which for topic, number in partitions}
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_WITHIN)

        def answered() -> dict[tuple[str, int], int]:
            found = {(place.topic, place.partition): _taken(answer).offset for place, answer in answers.items()}
            for (topic, partition), offset in found.items():
                if offset < least:
                    raise BrokerError(
                        f"Kafka at {servers(self._client)}: the broker does not say the offsets of {topic}/{partition}",
                        is_passing=True,
                    )
            return found

        return answered

    def _learn_append_times(self, names: Sequence[str]) -> None:
        """Which topics have timestamps of the broker; where that may not be asked, none has."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        if not names:
            return
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._admin.describe_configs(resources, request_timeout=ANSWER_WITHIN)
        for resource, answer in answers.items():
            try:
                entry = _taken(answer).get("message.timestamp.type")
            except KafkaException as error:
                if not error.args[0].name().endswith("AUTHORIZATION_FAILED"):
                    raise
                entry = None
            self._append_times[resource.name] = entry is not None and entry.value == "LogAppendTime"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        self._reason = None
        try:
            yield
        except KafkaException as error:
            self._admin.poll(0)
            is_late = error.args[0].name() in ("_TIMED_OUT", "_TRANSPORT") and self._reason is not None
            raise broker_error(self._client, self._reason if is_late else error.args[0]) from error
        except TimeoutError as error:
            self._has_answered = False
            self._admin = self._new_client()
            raise BrokerError(
                f"Kafka at {servers(self._client)}: the client gives no answer", is_passing=True
            ) from error


def _taken(answer: Any) -> Any:
    """An answer of the client, which gives up after `ANSWER_WITHIN` by itself.

    One that never comes is a fault of the client, and holds no job for ever. Raises KafkaException
    and TimeoutError.
    """
    return answer.result(2 * ANSWER_WITHIN)


def _partitions(choice: TopicChoice, name: str, topic: Any) -> list[int]:
    present = [item.id for item in topic.partitions]
    chosen = choice.partitions(name, present)
    missing = [str(number) for number in chosen if number not in present]
    if missing:
        raise BrokerError(f"the topic {name!r} has no partition {', '.join(missing)}", is_passing=False)
    return chosen
