"""What a driver asks of topics, before a job starts and beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from job_engine.clock import wall_ns
from job_engine.errors import Unreachable
from job_engine.kafka_broker import AskedBroker, BrokerError, Listing, TopicChoice
from job_engine.kafka_settings import first_answer
from job_engine.place import Place
from job_engine.sources.kinds import SourceRunning
from job_engine.sources.source import Again, PartitionBacklog, PieceAgain, PiecesAgain, Source, SourceBacklog
from job_engine.sources.topics.avro.registry import SchemaRegistry
from job_engine.sources.topics.consuming import consumed
from job_engine.sources.topics.pieces import (
    OffsetRange,
    TopicPosition,
    Topics,
    TopicsMemory,
    TopicsWork,
    topics_to_plain,
)
from job_engine.sources.topics.planning import OffsetPlanner, OpenTransaction
from job_engine.sources.topics.settings import AvroForm, KafkaSource
from querylang.errors import InputError, counted, did_you_mean
from querylang.printable import warn
from runtime.json_reader import shaped
from runtime.timestamps import format_time

# The messages of topics that a job has read, to be read again.

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
    latest = None if source.ahead is None else wall_ns() // 1000 + source.ahead
    return PiecesAgain(_pieces(source.name, [replace(item, latest=latest) for item in ranges]), gaps)


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
    is_known = bool(times) and times[0] >= 0
    return f"{where}, from {begins} to {format_time(times[0])}" if is_known else where


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


# Ask for what messages in Avro need before a job starts: the package, and the schema registry.


def check_schemas(name: str, form: AvroForm, retry: float | None) -> None:
    """Raise InputError for what is missing, and Unreachable where a registry does not answer.

    name: what messages begin with, such as `source 'cards'`
    retry: seconds that it is asked again; None = it is asked once
    """
    try:
        import fastavro  # noqa: F401 # whether it is there
    except ImportError as error:
        raise InputError(f"{name}: Avro needs the package fastavro: pip install 'ensue[kafka]'") from error
    if form.registry is None:
        return
    try:
        SchemaRegistry(form.registry, retry or 0.0, lambda line: warn(f"{name}: {line}")).check()
    except Unreachable as error:
        raise Unreachable(f"{name}: {error}") from error
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


class RunningTopics(SourceRunning):
    """Topics of Kafka; see `SourceRunning`."""

    def refuse_unreadable(self, source: Source) -> None:
        """As `SourceRunning.refuse_unreadable`: a broker is asked by `notes`."""

    def notes(self, source: Source, *, is_new: bool) -> Iterator[str]:
        """As `SourceRunning.notes`; raises InputError also where a broker cannot be reached.

        What a later run finds missing is lost, which the lister reports.
        """
        own: KafkaSource = source.own

        def ask(broker: AskedBroker) -> Listing:
            listing = broker.listing(own.topics)
            missing = [name for name in own.topics.named if name not in listing.topics]
            if missing and is_new:
                present = broker.listing(TopicChoice(pattern=".*")).topics
                raise InputError(
                    f"source '{source.name}': no such topic: '{missing[0]}'{did_you_mean(missing[0], present)}"
                )
            return listing

        listing = first_answer(f"source '{source.name}'", own.client, own.retry, ask)
        if own.avro is not None:
            check_schemas(f"source '{source.name}'", own.avro, own.retry)
        if not listing.topics:
            yield f"source '{source.name}': no topic fits the pattern {own.topics.pattern!r} yet"
        if not own.is_control:
            yield from _kinds(source, listing)

    def backlog(self, own: KafkaSource, memory: TopicsMemory, checkpoint: Place) -> SourceBacklog:  # noqa: ARG002
        """As `SourceRunning.backlog`; what the broker has lost is not there."""
        everything = replace(own, max_offsets=None, min_partitions=None, retry=None)
        planner = OffsetPlanner([everything], lambda it: AskedBroker(it.client), accepts_loss=True)
        next_ = planner.next({own.name: memory.position}, lambda *_: None)
        waiting = {(item.topic, item.partition): len(item) for item in next_.ranges if not item.is_lost}
        opened = {(item.topic, item.partition): item for item in planner.opened(own)}
        partitions = tuple(
            PartitionBacklog(topic, partition, waiting.get(name, 0) + (held.count if held else 0), *_held(held))
            for topic, position in sorted(next_.positions[own.name].items())
            for partition in sorted(position.next)
            for name in ((topic, partition),)
            for held in (opened.get(name),)
        )
        return SourceBacklog(own.name, messages=sum(item.messages for item in partitions), partitions=partitions)

    def done(self, memory: TopicsMemory) -> dict[str, Any]:
        """As `SourceRunning.done`: its position."""
        return topics_to_plain(memory.position)

    def again(self, own: KafkaSource, memory: TopicsMemory, asked: Again) -> PiecesAgain:
        """As `SourceRunning.again`."""
        return message_pieces(own, memory.position, asked) if memory.position else PiecesAgain()


RUNNING = RunningTopics()


def _held(held: OpenTransaction | None) -> tuple[int, int | None]:
    return (0, None) if held is None else (held.count, held.since)


def _kinds(source: Source, listing: Listing) -> Iterator[str]:
    for name, topic in sorted(listing.topics.items()):
        begins = f"source '{source.name}': topic '{name}' has {counted(len(topic.partitions), 'partition')}"
        if topic.is_append_time:
            yield f"{begins}; its timestampType is LogAppendTime, so time advances without messages"
        else:
            idle = "" if source.idle is not None else "; a silent partition holds time back (`idle`)"
            yield f"{begins}; its timestampType is CreateTime, the clock of the producers{idle}"
