"""Move the checkpoint of a job that does not run to another number of buckets.

The states are divided by key, and written beside the old ones. Then the record names them: this one
file decides which are used. Spark begins anew with them, where the last micro-batch has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from job_engine.document.fixed_settings import FixedValue
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import Moved, write_record
from job_engine.job.checkpoint.driver_files import new_places, remove_unused
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.driver import driver_of
from job_engine.job.other_release import note_release, other_release
from job_engine.job.upkeep.opened_checkpoint import Opened, kept_record, open_checkpoint, saved_states
from job_engine.operator.moved_buckets import moved_buckets
from job_engine.operator.seeds import write_seeds
from job_engine.settings.deployment import Deployment
from job_engine.settings.deployment_file import MAX_BUCKETS, load_deployment
from job_engine.sources.listing.batch_log import committed_manifest, driver_files, last_batch, last_begun
from querylang.errors import InputError
from querylang.logger import warn


@dataclass(frozen=True, slots=True)
class Rebucketed:
    """What was done.

    before, buckets: the old and the new number
    tasks: among how many tasks of Spark the new ones are divided
    size: bytes of their states
    batch: the last micro-batch before; None = there was none
    old: where the old state stays until a run with the new one has ended; None = there was none
    is_set: whether the deployment has the new number already
    """

    before: int
    buckets: int
    tasks: int
    size: int
    batch: int | None
    old: str | None
    is_set: bool

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def rebucket(path: Path | str, buckets: int) -> Rebucketed:
    """Move the checkpoint of a deployment to another number of buckets.

    Raises InputError; then nothing has changed.
    """
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        if not 1 <= buckets <= MAX_BUCKETS:
            raise InputError(f"{buckets} is not a number of buckets; expected 1 to {MAX_BUCKETS}")
        record = kept_record(deployment)
        before = int(str(record.settings["buckets"]))
        if buckets == before:
            raise InputError(f"{deployment.checkpoint}: has {before} buckets already; nothing was changed")
        lock = JobFolder(deployment.checkpoint).lock()
        lock.acquire()
        try:
            opened = open_checkpoint(_with_buckets(deployment, before))
            _refuse_interrupted(deployment)
            return _moved(opened, before, buckets, is_set=deployment.buckets == buckets)
        finally:
            lock.release()


def _refuse_interrupted(deployment: Deployment) -> None:
    """A micro-batch that is repeated has to write the files that it has begun."""
    if last_begun(deployment.checkpoint) != last_batch(deployment.checkpoint):
        raise InputError(
            f"{deployment.checkpoint}: a run was interrupted in micro-batch {last_begun(deployment.checkpoint)}:"
            f" let it end first, with the old number of buckets: `ensue run {deployment.file} --once`;"
            " nothing was changed"
        )


def _moved(opened: Opened, before: int, buckets: int, *, is_set: bool) -> Rebucketed:
    deployment, checkpoint = _with_buckets(opened.deployment, buckets), opened.deployment.checkpoint
    for line in other_release(deployment):
        warn(line)
    tasks = _tasks(deployment)
    record = replace(opened.record, settings={**opened.record.settings, "buckets": str(buckets)}, tasks=tasks)
    last = last_batch(checkpoint)
    note_release(checkpoint)
    if last < 0:
        write_record(checkpoint, record)
        return Rebucketed(before, buckets, tasks, 0, None, None, is_set)
    remove_unused(checkpoint, opened.record)  # what was killed before it had an effect
    folder, seeds = new_places(checkpoint)
    size = write_seeds(checkpoint / seeds, _states(opened, buckets))
    old = opened.program.seeds or str(driver_files(checkpoint).folder / "state")
    moved = Moved(folder, last + 1, committed_manifest(checkpoint), seeds)
    write_record(checkpoint, replace(record, moved=moved))
    return Rebucketed(before, buckets, tasks, size, last, old, is_set)


def _states(opened: Opened, buckets: int) -> Iterator[tuple[int, bytes]]:
    called = opened.folder.last_progress().buckets
    try:
        yield from moved_buckets(opened.program, saved_states(opened), buckets, called)
    except InputError as error:
        raise InputError(f"{opened.deployment.checkpoint}: {error}; nothing was changed") from error


def _tasks(deployment: Deployment) -> int:
    machine = driver_of(deployment).open(deployment)
    try:
        return machine.tasks(deployment)
    finally:
        machine.close()


def _with_buckets(deployment: Deployment, buckets: int) -> Deployment:
    return replace(deployment, buckets=buckets, fixed={**deployment.fixed, "buckets": FixedValue(str(buckets))})
