"""Move the checkpoint of a job that does not run: to other buckets, or to the other driver.

The states are divided by key, and written beside the old ones. Then the record names them: this one
file decides which are used. The driver begins anew with them, where the last micro-batch has ended.
"""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from job_engine.deployment import Deployment
from job_engine.deployment_file import MAX_BUCKETS, load_deployment
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import Moved, crosses, new_places, remove_unused, write_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.driver import driver_of, in_words_of_driver
from job_engine.job.preflight import checked, note_release, other_release
from job_engine.job.stages.between_batches import kept_program
from job_engine.job.upkeep.opened_checkpoint import Opened, kept_record, open_checkpoint, saved_states
from job_engine.job.written_journal import reached_journal, write_journal
from job_engine.local_path import LocalPath, this_user
from job_engine.operator.bucket_state import unjoined, write_seeds
from job_engine.operator.moved_buckets import HISTORY_IS_MISSING, moved_buckets
from job_engine.place import Place
from job_engine.setting_keys import Engine, FixedValue
from job_engine.sources.listing.batch_log import batches_of, committed_manifest, driver_files, last_batch
from job_engine.wire.gathering import gathered_together
from job_engine.wire.program import Program
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError
from querylang.printable import warn

# Whose files a checkpoint has: what is written there has to be read and replaced by its job.

ROOT = 0


def refuse_foreign_files(checkpoint: Place) -> None:
    """Raise InputError if this user must not change a checkpoint, before anything in it is changed.

    The files that root writes would be root's, and a job of another user could not read them. What
    a store permits is seen when it is asked.
    """
    if not isinstance(checkpoint, LocalPath) or not checkpoint.exists():
        return
    own, user = checkpoint.user(), this_user()
    if user == ROOT and own != ROOT:
        raise InputError(
            f"{checkpoint}: belongs to {_name(own)}, whose job could not read what root writes there: run this as"
            f" {_name(own)}; nothing was changed"
        )
    for path in _closed(checkpoint):
        raise InputError(
            f"{path}: belongs to {_name(path.user())}, and {_name(user)} may not change it: run this as {_name(own)},"
            f" or give all files of the checkpoint to {_name(own)}; nothing was changed"
        )


def _closed(checkpoint: LocalPath) -> Iterator[LocalPath]:
    """What this user cannot read, or, of folders, cannot change."""
    if not checkpoint.is_open():
        yield checkpoint
    for folder, folders, names in checkpoint.walk_below():
        yield from (path for name in (*folders, *names) if not (path := folder / name).is_open())


def _name(user: int) -> str:
    try:
        return f"'{pwd.getpwuid(user).pw_name}'"
    except KeyError:
        return f"user {user}"


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What was done.

    engine_before, engine: the driver that has run the job, and the one that continues it
    before, buckets: the old and the new number
    tasks: among how many tasks of Spark the new ones are divided; 1 without Spark
    size: bytes of their states
    batch: the last micro-batch before; None = there was none
    old: where the old state stays until a run with the new one has ended; None = there was none
    to_set: what has to be changed in the deployment file now, by key
    """

    engine_before: Engine
    engine: Engine
    before: int
    buckets: int
    tasks: int
    size: int
    batch: int | None
    old: str | None
    to_set: Mapping[str, str]

    @property
    def is_set(self) -> bool:
        """Whether the deployment file says already what the checkpoint is now."""
        return not self.to_set

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**asdict(self), "is_set": self.is_set}


def rebucket(path: Path | str, buckets: int) -> MoveReport:
    """Move the checkpoint of a deployment to another number of buckets.

    Raises InputError; then nothing has changed.
    """
    return move(path, buckets=buckets)


def move(path: Path | str, engine: Engine | None = None, buckets: int | None = None) -> MoveReport:
    """Move the checkpoint of a deployment: the driver continues where the one before has ended.

    engine: the driver; None = it stays
    buckets: their number; None = it stays

    Raises InputError; then nothing has changed.
    """
    if buckets is not None and not 1 <= buckets <= MAX_BUCKETS:
        raise InputError(f"{buckets} is not a number of buckets; expected 1 to {MAX_BUCKETS}")
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment):
        refuse_foreign_files(deployment.checkpoint)
        record = kept_record(deployment)
        before = int(str(record.settings["buckets"]))
        now = _as(deployment, record.engine, before)
        chosen = engine or record.engine
        wanted = _as(load_deployment(path, engine=chosen), chosen, buckets or before)
        if (now.engine, now.buckets) == (wanted.engine, wanted.buckets):
            has = f"has {before} buckets" if engine is None else f"is of `engine: {engine}`, with {before} buckets,"
            raise InputError(f"{deployment.checkpoint}: {has} already; nothing was changed")
        lock = JobFolder(deployment.checkpoint).lock()
        lock.acquire()
        try:
            opened = open_checkpoint(now)
            _refuse_interrupted(deployment, now)
            report = _moved(opened, wanted)
        finally:
            lock.release()
        return replace(report, to_set=_to_set(load_deployment(path), wanted))


def _as(deployment: Deployment, engine: Engine, buckets: int) -> Deployment:
    """The deployment as if its file said so."""
    fixed = {**deployment.fixed, "buckets": FixedValue(str(buckets))}
    return replace(deployment, engine=engine, buckets=buckets, fixed=fixed)


def _to_set(deployment: Deployment, wanted: Deployment) -> Mapping[str, str]:
    """What the file says otherwise; one without `buckets` goes by the checkpoint."""
    said = {"engine": str(deployment.engine), "buckets": str(deployment.buckets)}
    needed = {"engine": str(wanted.engine), "buckets": str(wanted.buckets)}
    return {key: value for key, value in needed.items() if said[key] != value}


def _refuse_interrupted(deployment: Deployment, now: Deployment) -> None:
    """A micro-batch that is repeated has to write the files that it has begun."""
    batches = batches_of(now.checkpoint)
    if batches.open is None:
        return
    first, last = batches.ended + 1, batches.begun
    several = f"micro-batches {first} to {last}, which are" if first < last else f"micro-batch {last}, which is"
    engine = "" if deployment.engine == now.engine else f" --engine {now.engine}"
    number = "" if deployment.buckets == now.buckets else f", with `buckets: {now.buckets}`"
    raise InputError(
        f"{now.checkpoint}: a run was interrupted in {several} repeated before anything else:"
        f" let it end first{number}: `ensue run {deployment.file} --once{engine}`; nothing was changed"
    )


def _gathered(opened: Opened, wanted: Deployment) -> Program | None:
    """The program as the other driver runs it, if its queries feed each other across buckets and
    cannot any more; None = the groups stay.

    The journal says for good that no queries were gathered: what is gathered now follows from it.
    """
    if opened.program.routing() is None or crosses(wanted.engine):
        return None
    journal = reached_journal(wanted)
    epochs = [(opened.program.plan(), {})] if journal is None else journal.plans_and_heirs()
    before = opened.program.gathered or ()
    program = replace(opened.program, crosses=False, gathered=gathered_together(before, epochs, opened.program.sources))
    if journal is None:
        return program
    if journal.gathered is None:
        write_journal(wanted.checkpoint, replace(journal, gathered=()))
    return kept_program(program, wanted)


def _moved(opened: Opened, wanted: Deployment) -> MoveReport:
    checkpoint = wanted.checkpoint
    for line in other_release(wanted):
        warn(line)
    tasks = _tasks(wanted, opened.deployment)
    settings = {**opened.record.settings, "buckets": str(wanted.buckets)}
    can_cross = opened.record.crosses and crosses(wanted.engine)
    record = replace(opened.record, settings=settings, tasks=tasks, engine=wanted.engine, crosses=can_cross)
    gathered = _gathered(opened, wanted)
    if gathered is not None:
        record = replace(record, gathered=gathered.gathered)
    last = last_batch(checkpoint)
    report = MoveReport(
        engine_before=opened.deployment.engine,
        engine=wanted.engine,
        before=opened.deployment.buckets,
        buckets=wanted.buckets,
        tasks=tasks,
        size=0,
        batch=None,
        old=None,
        to_set={},
    )
    if last < 0:
        is_divided_anew = wanted.buckets != opened.deployment.buckets or gathered is not None
        if opened.program.epochs and unjoined(opened.program, 0) and is_divided_anew:
            raise InputError(f"{checkpoint}: {HISTORY_IS_MISSING}; nothing was changed")
        write_record(checkpoint, record)
        note_release(checkpoint)
        return report
    remove_unused(checkpoint, opened.record)  # what was killed before it had an effect
    folder, seeds = new_places(checkpoint, wanted.engine)
    size = write_seeds(checkpoint / seeds, _states(opened, wanted.buckets, gathered))
    old = opened.program.seeds or str(driver_files(checkpoint).folder / "state")
    moved = Moved(folder, last + 1, committed_manifest(checkpoint), seeds)
    write_record(checkpoint, replace(record, moved=moved))
    note_release(checkpoint)
    return replace(report, size=size, batch=last, old=old)


def _states(opened: Opened, buckets: int, gathered: Program | None) -> Iterator[tuple[int, bytes]]:
    """The states of the new buckets; `gathered`: as of `moved_buckets`."""
    called = opened.folder.last_progress().buckets
    try:
        yield from moved_buckets(opened.program, saved_states(opened), buckets, called, gathered)
    except InputError as error:
        raise InputError(f"{opened.deployment.checkpoint}: {error}; nothing was changed") from error


def _tasks(wanted: Deployment, now: Deployment) -> int:
    """Among how many tasks buckets are divided; raises InputError if the driver cannot run it."""
    is_other = wanted.engine is not now.engine
    try:
        with in_words_of_driver(wanted):
            driver = driver_of(wanted)
            driver.refuse_missing()
            placed = driver.find_tables(wanted, None)
            if is_other:
                checked(_as(placed, wanted.engine, now.buckets))
            machine = driver.open(placed, runs=False)
    except InputError as error:
        if not is_other:
            raise
        raise InputError(
            f"{wanted.checkpoint}: cannot be moved to `engine: {wanted.engine}`, which could not run the job: {error}."
            " Nothing was changed"
        ) from error
    try:
        return machine.tasks(wanted)
    finally:
        machine.close()
