"""What workers do with topics."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from job_engine.sources.kinds import SourceReading, TaskRun
from job_engine.sources.topics.kafka_source import KafkaSource
from job_engine.sources.topics.offsets import TopicsNews, TopicsWork
from job_engine.sources.topics.range_reading import RangeReader, progress_of
from job_engine.wire.packed_rows import pack_progress


class TopicsReading(SourceReading):
    """Topics of Kafka; see `SourceReading`."""

    def packed(self, own: KafkaSource, work: TopicsWork, run: TaskRun) -> Iterator[pa.RecordBatch]:
        """As `SourceReading.packed`."""
        reader = RangeReader(run.program, own, run.reading, run.accepts_loss, run.marks)
        for wanted in work.ranges:
            yield from reader.packed(wanted)

    def news(self, own: KafkaSource, news: TopicsNews, run: TaskRun) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """As `SourceReading.news`: how far partitions are read without a message."""
        yield pack_progress(run.program.buckets, [progress_of(item, run.reading) for item in news.advances])


READING = TopicsReading()
