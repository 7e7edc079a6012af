"""Kafka's client in Python, librdkafka: imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from job_engine.kafka.listing import BrokerError

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
