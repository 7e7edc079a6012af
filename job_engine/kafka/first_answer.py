"""Ask brokers before a job starts: once, or as long as `retry` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from job_engine.errors import Unreachable
from job_engine.kafka.asking import AskedBroker
from job_engine.kafka.client import servers
from job_engine.kafka.listing import BrokerError
from job_engine.kafka.topic_choice import TopicsAt
from job_engine.retrying import Outage, OutageTooLong
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


def is_same_cluster(one: TopicsAt, other: TopicsAt) -> bool:
    """Whether both are topics of one cluster, whatever addresses lead there; asks brokers."""
    first, second = (
        first_answer("the topics", item.client, item.retry, lambda broker: broker.cluster()) for item in (one, other)
    )
    return bool(first) and first == second
