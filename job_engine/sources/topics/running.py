"""What a driver asks of topics, before a job starts and beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from job_engine.kafka.asking import AskedBroker
from job_engine.kafka.first_answer import first_answer
from job_engine.kafka.listing import Listing
from job_engine.kafka.topic_choice import TopicChoice
from job_engine.places.place import Place
from job_engine.sources.again import Again, PiecesAgain
from job_engine.sources.backlog import PartitionBacklog, SourceBacklog
from job_engine.sources.kinds import SourceRunning
from job_engine.sources.source import Source
from job_engine.sources.topics.avro.schema_check import check_schemas
from job_engine.sources.topics.kafka_source import KafkaSource
from job_engine.sources.topics.messages_again import message_pieces
from job_engine.sources.topics.offset_planner import OffsetPlanner
from job_engine.sources.topics.offsets import TopicsMemory, topics_to_plain
from querylang.errors import InputError, counted, did_you_mean


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
        everything = replace(own, max_offsets=None, min_partitions=None)
        planner = OffsetPlanner([everything], lambda it: AskedBroker(it.client), accepts_loss=True)
        next_ = planner.next({own.name: memory.position}, lambda *_: None)
        waiting = {(item.topic, item.partition): len(item) for item in next_.ranges if not item.is_lost}
        partitions = tuple(
            PartitionBacklog(topic, partition, waiting.get((topic, partition), 0))
            for topic, position in sorted(next_.positions[own.name].items())
            for partition in sorted(position.next)
        )
        return SourceBacklog(own.name, messages=sum(waiting.values()), partitions=partitions)

    def done(self, memory: TopicsMemory) -> dict[str, Any]:
        """As `SourceRunning.done`: its position."""
        return topics_to_plain(memory.position)

    def again(self, own: KafkaSource, memory: TopicsMemory, asked: Again) -> PiecesAgain:
        """As `SourceRunning.again`."""
        return message_pieces(own, memory.position, asked) if memory.position else PiecesAgain()


RUNNING = RunningTopics()


def _kinds(source: Source, listing: Listing) -> Iterator[str]:
    for name, topic in sorted(listing.topics.items()):
        begins = f"source '{source.name}': topic '{name}' has {counted(len(topic.partitions), 'partition')}"
        if topic.is_append_time:
            yield f"{begins}; its timestampType is LogAppendTime, so time advances without messages"
        else:
            idle = "" if source.idle is not None else "; a silent partition holds time back (`idle`)"
            yield f"{begins}; its timestampType is CreateTime, the clock of the producers{idle}"
