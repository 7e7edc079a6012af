"""What sources have that a job has not processed: files of folders, messages of topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_backend.places.place import Place
from spark_backend.sources.delta.commit_planner import CommitPlanner
from spark_backend.sources.delta.delta_source import DeltaSource
from spark_backend.sources.kafka.asking import AskedBroker
from spark_backend.sources.kafka.kafka_source import KafkaSource
from spark_backend.sources.kafka.offset_planner import OffsetPlanner
from spark_backend.sources.listing.after_reading import SettledFile, forget_settled
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.read_files import ReadFiles, what_was_read
from spark_backend.sources.listing.source_watch import watch_of


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """How many messages of a partition of a topic have not been processed."""

    topic: str
    partition: int
    messages: int


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """What a source has that has not been processed.

    files, bytes: of a folder; None = not a folder, or not known
    messages: of topics, all partitions together; None = not topics, or not known
    partitions: of topics
    problem: why it is not known; "" = it is
    """

    source: str
    files: int | None = None
    bytes: int | None = None
    messages: int | None = None
    partitions: tuple[PartitionBacklog, ...] = ()
    problem: str = ""


def processed_files(checkpoint: Place, sources: Sequence[ListedSource]) -> ReadFiles:
    """What committed micro-batches have read, without what was archived or deleted since.

    Raises DamagedManifest.
    """
    read = what_was_read(checkpoint)
    forget_settled(read, SettledFile.of(checkpoint).read(), sources)
    return read


def folder_backlog(source: ListedSource, read: ReadFiles) -> SourceBacklog:
    """The files that a job would read next if nothing limited it; raises OSError."""
    known = read.of(source.name)
    try:
        new = watch_of(source).new_files(known.__contains__, time.time_ns()).files
    except FileNotFoundError:
        return SourceBacklog(source.name, files=0, bytes=0)  # a control stream's folder is made by its job
    return SourceBacklog(source.name, files=len(new), bytes=sum(stamp.size for stamp in new.values()))


def topics_backlog(source: KafkaSource, read: ReadFiles) -> SourceBacklog:
    """What the job would read next if nothing limited it; what the broker has lost is not there."""
    everything = replace(source, max_offsets=None, min_partitions=None)
    planner = OffsetPlanner([everything], lambda it: AskedBroker(it.client), accepts_loss=True)
    next_ = planner.next({source.name: read.positions.get(source.name, {})}, lambda *_: None)
    waiting = {(item.topic, item.partition): len(item) for item in next_.ranges if not item.is_lost}
    partitions = tuple(
        PartitionBacklog(topic, partition, waiting.get((topic, partition), 0))
        for topic, position in sorted(next_.positions[source.name].items())
        for partition in sorted(position.next)
    )
    return SourceBacklog(source.name, messages=sum(waiting.values()), partitions=partitions)


def table_backlog(source: DeltaSource, read: ReadFiles) -> SourceBacklog:
    """The files of a table that a job would read next if nothing limited it."""
    if not source.folder:
        return SourceBacklog(source.name, problem="a catalog says where the table is, once the job has started")
    planner = CommitPlanner([replace(source, max_files=None, max_bytes=None)], accepts_loss=True)
    known = {source.name: read.tables[source.name]} if source.name in read.tables else {}
    files = [file for unit in planner.next(known, {}, lambda *_: None).units for file in unit.files]
    return SourceBacklog(source.name, files=len(files), bytes=sum(file.size for file in files))
