"""Compact the files of a job's sinks, whether it runs or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_engine.durable_files import sync
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.places.place import Place
from job_engine.settings.deployment_file import load_deployment
from job_engine.sinks.kinds import Compacted, Compaction, publishing
from job_engine.sources.listing.batch_log import driver_files, last_batch
from querylang.errors import InputError

TARGET = 128 << 20
"""Bytes of a compacted file: large enough for readers, small enough to be written in seconds."""

KEPT_RUNNING = 100
"""The newest micro-batches, which stay as they are: a checkpoint can go back so far."""

KEPT_STOPPED = 2
"""As many as may be repeated after a power cut, or because a log of the driver was damaged."""


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction has done.

    sinks: by name, those whose files were looked at
    others: names of sinks that are not files, and the format of each
    kept: number of the newest micro-batches that stay as they are
    ways: what else compacts the others, in words; "" = nothing does
    """

    sinks: Mapping[str, Compacted]
    others: Mapping[str, str]
    kept: int
    ways: Mapping[str, str]

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "sinks": {
                name: {"replaced": done.replaced, "written": done.written, "files": done.left}
                for name, done in self.sinks.items()
            },
            "others": dict(self.others),
            "kept_micro_batches": self.kept,
        }


def compact_job(
    path: Path | str, target: int = TARGET, tell: Callable[[str, Compacted], None] = lambda _name, _done: None
) -> CompactReport:
    """Let many small files of a job's sinks become few, with the same rows.

    path: the deployment file
    target: bytes that a compacted file should have
    tell: called after each sink

    Raises InputError.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        record = read_record(deployment.checkpoint)
        if record is None:
            raise InputError(f"{deployment.checkpoint}: the job has not run yet, so there is nothing to compact")
        folder = JobFolder(deployment.checkpoint)
        kept = KEPT_RUNNING if folder.lock().is_held() else KEPT_STOPPED
        lock = folder.compaction_lock()
        lock.acquire()
        try:
            last = _last_certain(deployment.checkpoint, kept)
            compaction = Compaction(record.identity, last, target, lock.confirm)
            done, others, ways = {}, {}, {}
            for name, sink in deployment.sinks.items():
                compacted = publishing(sink).compact(sink, compaction)
                if isinstance(compacted, str):
                    others[name], ways[name] = sink.format, compacted
                else:
                    done[name] = compacted
                    tell(name, compacted)
        finally:
            lock.release()
    return CompactReport(done, others, kept, ways)


def _last_certain(checkpoint: Place, kept: int) -> int:
    """The last micro-batch that is never repeated, even after a power cut at this moment."""
    newest = last_batch(checkpoint)
    last = newest - kept
    if last >= 0:
        files = driver_files(checkpoint)
        for number in range(max(0, last - files.before), newest - files.before + 1):
            if (files.commits / str(number)).exists():
                sync(files.commits / str(number))
        if files.commits.exists():
            sync(files.commits)
    return last
