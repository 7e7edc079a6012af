"""What the lister and workers have to know of a Kafka source, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from job_engine.kafka.topic_choice import TopicChoice
from job_engine.sources.topics.avro.avro_form import AvroForm

SECOND = 1_000_000
"""µs."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A source of messages.

    name: of the source
    topics: which ones are read
    client: options of librdkafka; they may be secret
    start: where a new job begins: `earliest`, `latest`, or a time, µs
    skew: µs that the clock of a broker may be behind the lister's
    max_offsets: most of a micro-batch; None = all
    min_partitions: least number of tasks, if there are so many messages; None = no such number
    is_control: whether its messages are control events
    retry: seconds that a broker which does not answer is asked again; None = as is usual
    ahead: µs that timestamps may be later than a micro-batch's listing; None = no limit
    avro: how messages in Avro are written; None = they are JSON
    """

    name: str
    topics: TopicChoice
    client: Mapping[str, str] = field(repr=False)
    start: str | int = "earliest"
    skew: int = SECOND
    max_offsets: int | None = None
    min_partitions: int | None = None
    is_control: bool = False
    retry: float | None = None
    ahead: int | None = None
    avro: AvroForm | None = None
