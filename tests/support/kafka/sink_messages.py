"""Messages of a sink, drafted and published as a job does."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from job_engine.sinks.kinds import Draft
from job_engine.sinks.topics.publishing import TopicPublisher
from job_engine.sinks.topics.settings import TopicSink
from job_engine.sinks.topics.writing import MessageWriter

BATCH = "0123456789ab-00000004-"


def drafts(sink: TopicSink, values: Sequence[object], task: int = 0) -> list[Draft]:
    writer = MessageWriter(sink, f"{BATCH}{task:05d}")
    writer.write("Q", pa.table({"match_id": [f"m{number}" for number in range(len(values))], "v": values}))
    return list(writer.finish())


def published(sink: TopicSink, batch: int, found: list[Draft]) -> TopicPublisher:
    publisher = TopicPublisher(sink, "0123456789ab")
    publisher.open()
    publisher.publish(batch, found)
    return publisher
