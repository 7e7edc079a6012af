"""Ask the brokers of a deployment's sources before it starts: what is wrong is said at once."""

from __future__ import annotations

from collections.abc import Iterator

from querylang.errors import InputError, counted, did_you_mean
from spark_backend.job.checkpoint.checkpoint_record import all_sources
from spark_backend.settings.deployment import Deployment, Source
from spark_backend.sources.kafka.asking import AskedBroker
from spark_backend.sources.kafka.avro.schema_check import check_schemas
from spark_backend.sources.kafka.first_answer import first_answer
from spark_backend.sources.kafka.kafka_source import KafkaSource, TopicChoice
from spark_backend.sources.kafka.listing import Listing


def topic_notes(deployment: Deployment, *, is_new: bool) -> list[str]:
    """What users should know of the topics, a line each.

    is_new: whether the job is; what a later run finds missing is lost, which the lister reports

    Raises InputError where a broker cannot be reached, and for a new job's missing topics.
    """
    kafka = [(source, source.kafka) for source in all_sources(deployment) if source.kafka is not None]
    return [line for source, own in kafka for line in _notes(source, own, is_new=is_new)]


def _notes(source: Source, kafka: KafkaSource, *, is_new: bool) -> Iterator[str]:
    def ask(broker: AskedBroker) -> Listing:
        listing = broker.listing(kafka.topics)
        missing = [name for name in kafka.topics.named if name not in listing.topics]
        if missing and is_new:
            present = broker.listing(TopicChoice(pattern=".*")).topics
            raise InputError(
                f"source '{source.name}': no such topic: '{missing[0]}'{did_you_mean(missing[0], present)}"
            )
        return listing

    listing = first_answer(f"source '{source.name}'", kafka.client, kafka.retry, ask)
    if kafka.avro is not None:
        check_schemas(f"source '{source.name}'", kafka.avro, kafka.retry)
    if not listing.topics:
        yield f"source '{source.name}': no topic fits the pattern {kafka.topics.pattern!r} yet"
    if not kafka.is_control:
        yield from _kinds(source, listing)


def _kinds(source: Source, listing: Listing) -> Iterator[str]:
    for name, topic in sorted(listing.topics.items()):
        begins = f"source '{source.name}': topic '{name}' has {counted(len(topic.partitions), 'partition')}"
        if topic.is_append_time:
            yield f"{begins}; its timestampType is LogAppendTime, so time advances without messages"
        else:
            idle = "" if source.idle is not None else "; a silent partition holds time back (`idle`)"
            yield f"{begins}; its timestampType is CreateTime, the clock of the producers{idle}"
