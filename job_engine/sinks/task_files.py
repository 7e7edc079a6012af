"""The files that the buckets of one task share: a file per part of a sink, and not one per bucket.

Spark does not say when a task has called its last bucket. But where all buckets have a step, they
are called in order of their labels, so the one with the largest label finishes the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from job_engine.sinks.kinds import Draft, MicroBatch, Sink, TaskWriter, writing

Sinks = Mapping[str, Sink]
"""By the name that a deployment file uses."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a task of a micro-batch.

    task: its number among the tasks of the micro-batch
    number: names it among all attempts
    is_repeated: whether an earlier attempt has failed
    """

    batch: MicroBatch
    task: int
    number: int
    is_repeated: bool = False


@dataclass(slots=True)
class TaskFiles:
    """Open files by sink, and whether they are finished."""

    attempt: Attempt
    sinks: Sinks
    writers: Mapping[str, TaskWriter]
    is_finished: bool = field(default=False)

    @staticmethod
    def open(sinks: Sinks, attempt: Attempt, number: int | None = None) -> TaskFiles:
        """Nothing is written yet; `number`: in the names of files, None = that of the task."""
        own = attempt.task if number is None else number
        writers = {word: writing(sink).open(sink, attempt.batch, own, attempt.number) for word, sink in sinks.items()}
        return TaskFiles(attempt, sinks, writers)

    def finish(self) -> list[tuple[str, Draft]]:
        """Complete the files; gives them with the names of their sinks."""
        self.is_finished = True
        return [(word, draft) for word, writer in self.writers.items() for draft in writer.finish()]

    def abort(self) -> None:
        """Remove the files."""
        self.is_finished = True
        for writer in self.writers.values():
            writer.abort()


_of_this_process: TaskFiles | None = None
"""A Python worker runs one task at a time."""


def shared_files(sinks: Sinks, attempt: Attempt) -> TaskFiles:
    """The files of a task; those that an attempt before it left open are removed."""
    global _of_this_process  # noqa: PLW0603 # Spark calls us once per bucket, and keeps nothing in between
    files = _of_this_process
    if files is None or files.attempt != attempt:
        if files is not None and not files.is_finished:
            files.abort()
        files = _of_this_process = TaskFiles.open(sinks, attempt)
    return files
