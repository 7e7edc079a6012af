"""What a source has that a job has not processed."""

from __future__ import annotations

from dataclasses import dataclass


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
    messages: of a log such as topics, all partitions together; None = not a log, or not known
    partitions: of topics
    problem: why it is not known; "" = it is
    """

    source: str
    files: int | None = None
    bytes: int | None = None
    messages: int | None = None
    partitions: tuple[PartitionBacklog, ...] = ()
    problem: str = ""
