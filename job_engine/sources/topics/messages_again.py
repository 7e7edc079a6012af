"""The messages of topics that a job has read, to be read again."""

from __future__ import annotations

from dataclasses import replace

from job_engine.errors import Unreachable
from job_engine.kafka.asking import AskedBroker
from job_engine.kafka.listing import BrokerError
from job_engine.sources.again import Again, PieceAgain, PiecesAgain
from job_engine.sources.topics.consuming import consumed
from job_engine.sources.topics.kafka_source import KafkaSource
from job_engine.sources.topics.offsets import OffsetRange, TopicPosition, Topics, TopicsWork
from querylang.errors import InputError
from runtime.json_reader import shaped
from runtime.timestamps import format_time

MOST_MESSAGES = 200_000
"""Of a source in one piece."""


def message_pieces(source: KafkaSource, read: Topics, asked: Again) -> PiecesAgain:
    """The pieces of a source, and what is missing.

    Where there is a history table, messages count, too, that were there before the job began.
    Raises InputError if the brokers do not answer.
    """
    before = None if asked.before is None else shaped(asked.before, dict[str, TopicPosition])
    try:
        broker = AskedBroker(source.client)
        ranges, gaps = _ranges(source, broker, before, _from_the_first(read) if asked.has_table else read, asked.since)
    except BrokerError as error:
        raise (Unreachable if error.is_passing else InputError)(str(error)) from error
    return PiecesAgain(_pieces(source.name, ranges), gaps)


def _from_the_first(read: Topics) -> Topics:
    return {topic: replace(position, begun=dict.fromkeys(position.next, 0)) for topic, position in read.items()}


def _ranges(
    source: KafkaSource, broker: AskedBroker, before: Topics | None, read: Topics, since: int | None
) -> tuple[list[OffsetRange], list[str]]:
    listing = broker.listing(source.topics)
    ranges, gaps = [], []
    for topic, position in read.items():
        there = listing.topics.get(topic)
        if there is None or there.identity != position.identity:
            gaps.append(f"source '{source.name}': the topic '{topic}' was removed or made again")
            continue
        if position.begun is None and source.start != "earliest":
            gaps.append(
                f"source '{source.name}': an older release has not written down where it began to read '{topic}'"
            )
            continue
        known = before.get(topic) if before is not None else None
        places = [(topic, partition) for partition in position.next if partition in there.partitions]
        arrived = {} if since is None or known is not None else broker.offsets_at(places, since)
        for _, partition in places:
            until, first = position.next[partition], there.partitions[partition].first
            begun = 0 if position.begun is None else position.begun[partition]
            start = begun if known is None else known.next.get(partition, begun)
            if known is None and since is not None:
                offset = arrived[topic, partition]
                start = max(begun, until if offset is None else offset)
                if (offset is None and first >= until) or offset == first:
                    start = begun  # those that no longer exist may have arrived since then, too
            own = OffsetRange(source.name, topic, position.number, partition, start, max(start, until))
            if len(own) and start < first:
                own = replace(own, start=first, until=max(first, until))
                gaps.append(_gap(source, own, since))
            if len(own):
                ranges.append(own)
    return ranges, gaps


def _gap(source: KafkaSource, first: OffsetRange, since: int | None) -> str:
    """Messages before the first one that is there: nobody knows what they were."""
    where = f"source '{source.name}': {first.topic}/{first.partition}: the messages before offset {first.start} no longer exist"
    begins = "the beginning" if since is None else format_time(since)
    times = (
        [int(chunk.timestamps[0]) for chunk in consumed(source.client, replace(first, until=first.start + 1))]
        if len(first)
        else []
    )
    return f"{where}, from {begins} to {format_time(times[0])}" if times else where


def _pieces(source: str, ranges: list[OffsetRange]) -> list[PieceAgain]:
    """Pieces in which all partitions get on together."""
    most = max((len(item) for item in ranges), default=0)
    count = -(-sum(map(len, ranges)) // MOST_MESSAGES) if most else 0
    pieces = []
    for number in range(count):
        own = [
            replace(
                item,
                start=item.start + len(item) * number // count,
                until=item.start + len(item) * (number + 1) // count,
            )
            for item in ranges
        ]
        own = [item for item in own if len(item)]
        if own:
            pieces.append(PieceAgain(source, sum(map(len, own)), TopicsWork(tuple(own))))
    return pieces
