"""Move the checkpoint of a job that does not run: to other buckets, or to the other driver.

The states are divided by key, and written beside the old ones. Then the record names them: this one
file decides which are used. The driver begins anew with them, where the last micro-batch has ended.
"""

from __future__ import annotations

import pwd
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from job_engine.deployment import Deployment
from job_engine.deployment_file import MAX_BUCKETS, load_deployment
from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import Moved, crosses, new_places, remove_unused, write_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.driver import driver_of, in_words_of_driver
from job_engine.job.preflight import checked, note_release, other_release
from job_engine.job.upkeep.opened_checkpoint import Opened, kept_record, open_checkpoint, saved_states
from job_engine.local_path import LocalPath, this_user
from job_engine.operator.bucket_state import SavedBucket, close_state, open_state, unjoined, write_seeds
from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.place import Place
from job_engine.setting_keys import Engine, FixedValue
from job_engine.sources.listing.batch_log import batches_of, committed_manifest, driver_files, last_batch
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import HOME, GroupRecords
from job_engine.wire.partition_groups import EVERY_BUCKET, PartitionGroup
from job_engine.wire.program import Program
from querylang.dataclass import asdict, dataclass, replace
from querylang.errors import InputError
from querylang.printable import warn
from runtime.columns.arrivals import Arrivals
from runtime.engine import NOWHERE, JoinRule, by_rules, divided_snapshot, equal_in_all, united_snapshot

# States of buckets of a job that is moved: for other buckets divided by key, and joined.


def moved_buckets(
    program: Program, states: Iterable[tuple[int, bytes]], buckets: int, called: Collection[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """The states of all buckets of a job with `buckets`, from those that it has.

    With as many buckets as before, those that there are stay as they are.

    program: for which the states were saved
    states: of all buckets that were called, by number
    called: the buckets that are known to have been called; None = all were

    Raises InputError for a state that cannot be read, and if some are missing.
    """
    if buckets == program.buckets:
        yield from _kept(program, states, called)
        return
    parts: list[list[SavedBucket]] = [[] for _ in range(buckets)]
    found = []
    for bucket, data in states:
        found.append(bucket)
        for number, part in enumerate(_divided(program, bucket, data, buckets)):
            parts[number].append(part)
    for bucket in _missing(program, found, called):
        for number, part in enumerate(_divided(program, bucket, None, buckets)):
            parts[number].append(part)
    for number, some in enumerate(parts):
        yield number, _united(program, some, buckets).to_bytes()


def _kept(
    program: Program, states: Iterable[tuple[int, bytes]], called: Collection[int] | None
) -> Iterator[tuple[int, bytes]]:
    """The states as they are, one at a time, and those of the buckets that have none yet."""
    found = []
    for bucket, data in states:
        found.append(bucket)
        open_state(program, bucket, data)  # refuses what cannot be read
        yield bucket, data
    for bucket in _missing(program, found, called):
        yield bucket, close_state(program, bucket, open_state(program, bucket, None)).to_bytes()


def _missing(program: Program, found: Collection[int], called: Collection[int] | None) -> Sequence[int]:
    """The buckets that were never called; raises InputError if some of the missing ones were."""
    missing = sorted(set(range(program.buckets)) - set(found))
    # only HOME is called alone: any other bucket with a state was called with all of them
    has_begun = called is None or not set(found) <= {HOME} or not set(missing).isdisjoint(called)
    if missing and has_begun:
        raise InputError(f"the bucket {missing[0]} has no state; restore the checkpoint from a copy")
    return missing


def _divided(program: Program, bucket: int, data: bytes | None, buckets: int) -> Iterator[SavedBucket]:
    """The parts of a bucket's state, one for each new bucket; None = it was never called."""
    state = open_state(program, bucket, data)  # refuses what cannot be read
    if program.epochs and unjoined(program, state.joined):
        raise InputError("a query has not got its history yet: let the job run once")
    saved = close_state(program, bucket, state)
    groups = _groups(program, saved)
    snapshots = [
        divided_snapshot(group.plan, snapshot, buckets, _only(group, program.buckets, bucket, buckets))
        for group, snapshot in zip(groups, saved.snapshots, strict=True)
    ]
    held: list[list[GroupRecords]] = [[] for _ in range(buckets)]
    for item in saved.held:
        for number, part in _divided_records(_with_queries(program, groups, item.group), item, bucket, buckets):
            held[number].append(part)
    for number in range(buckets):
        own = tuple(part[number] for part in snapshots)
        yield replace(saved, buckets=buckets, snapshots=own, held=tuple(held[number]))


def _groups(program: Program, saved: SavedBucket) -> Sequence[PartitionGroup]:
    """The groups of a bucket, each as its engine has it: not all changes may be done."""
    if not saved.names:
        return program.groups()
    by_number = {stage.number: stage for stage in program.stages}
    return [by_number[epoch].groups[place] for place, (_, epoch) in enumerate(saved.names)]


def _with_queries(program: Program, groups: Sequence[PartitionGroup], place: int) -> PartitionGroup:
    """A group to ask about keys: its engine may wait for a change that brings its queries."""
    stages = [stage.groups[place] for stage in program.stages] if program.epochs else []
    return next(group for group in (groups[place], *stages) if group.plan.queries)


def _only(group: PartitionGroup, before: int, bucket: int, buckets: int) -> int | None:
    """Where all rows of a bucket go if the group's keys share timelines; None = by key.

    Other buckets than the one that has its records know the timelines only as they begin.
    """
    return NOWHERE if group.only_bucket(before) not in (None, bucket) else group.only_bucket(buckets)


def _divided_records(
    group: PartitionGroup, item: GroupRecords, bucket: int, buckets: int
) -> Iterator[tuple[int, GroupRecords]]:
    """Held records by new bucket; copies that every bucket has are those of bucket HOME."""
    if item.is_copy:
        if bucket == HOME:
            yield from ((number, item) for number in range(buckets))
        return
    bucket_of = group.route(item.arrivals, buckets).bucket
    assert not (bucket_of == EVERY_BUCKET).any(), "what goes to every bucket is held as copies"
    for number in np.unique(bucket_of).tolist():
        yield number, replace(item, arrivals=item.arrivals.take(np.flatnonzero(bucket_of == number)))


def _united(program: Program, parts: Sequence[SavedBucket], buckets: int) -> SavedBucket:
    names = _names([part.names for part in parts])
    groups = _groups(program, parts[0])
    rules: dict[str, JoinRule] = {
        "buckets": lambda _: buckets,
        "clock": _furthest,
        "snapshots": lambda own: tuple(
            united_snapshot(group.plan, some) for group, some in zip(groups, zip(*own, strict=True), strict=True)
        ),
        "held": _united_records,
        "names": lambda _: names,
        "reported": max,
        "joined": max,
        "sql_nulls": all,
        "chains": all,
    }
    return SavedBucket(**by_rules(rules, [_fields(part) for part in parts]))


def _names(parts: Sequence[tuple[tuple[GroupName, int], ...]]) -> tuple[tuple[GroupName, int], ...]:
    if any(names != parts[0] for names in parts):
        raise InputError("its buckets are not at the same change of the queries: let the job run until all are")
    return parts[0]


def _furthest(clocks: Sequence[JobClock]) -> JobClock:
    """Where the clocks of buckets differ, the furthest one."""
    own = by_rules(
        {"sources": _furthest_sources, "unread": lambda own: max(own, key=len)}, [_fields(clock) for clock in clocks]
    )
    return JobClock(**own).advanced((), 0)


def _furthest_sources(parts: Sequence[Sequence[SourceWatermark]]) -> tuple[SourceWatermark, ...]:
    found: dict[tuple[str, int | None], list[SourceWatermark]] = defaultdict(list)
    for item in (item for part in parts for item in part):
        found[item.source, item.partition].append(item)
    return tuple(SourceWatermark(**by_rules(_OF_SOURCE, [_fields(item) for item in some])) for some in found.values())


_OF_SOURCE: Mapping[str, JoinRule] = {
    "source": equal_in_all,
    "partition": equal_in_all,
    "arrival": max,
    "updated": max,
    "reached": lambda own: max((item for item in own if item is not None), default=None),
}


def _united_records(parts: Sequence[Sequence[GroupRecords]]) -> tuple[GroupRecords, ...]:
    """Held records that differ in nothing but their rows are one table."""
    found: dict[tuple[object, ...], list[GroupRecords]] = defaultdict(list)
    for item in (item for part in parts for item in part):
        found[tuple(value for name, value in _fields(item).items() if name != "arrivals")].append(item)
    return tuple(
        replace(some[0], arrivals=Arrivals.concat([item.arrivals for item in some])) for some in found.values()
    )


def _fields(item: SavedBucket | JobClock | SourceWatermark | GroupRecords) -> dict[str, object]:
    return {field.name: getattr(item, field.name) for field in fields(item)}


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
            _refuse_crossing(opened, wanted)
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


def _refuse_crossing(opened: Opened, wanted: Deployment) -> None:
    """States of queries that feed each other across buckets cannot come together any more."""
    if opened.program.routing() is not None and not crosses(wanted.engine):
        raise InputError(
            f"{wanted.checkpoint}: cannot be moved to `engine: {wanted.engine}`: its queries feed each other from bucket"
            f" to bucket, which only `engine: {opened.deployment.engine}` can do: begin with a new checkpoint; nothing"
            " was changed"
        )


def _moved(opened: Opened, wanted: Deployment) -> MoveReport:
    checkpoint = wanted.checkpoint
    for line in other_release(wanted):
        warn(line)
    tasks = _tasks(wanted, opened.deployment)
    settings = {**opened.record.settings, "buckets": str(wanted.buckets)}
    can_cross = opened.record.crosses and crosses(wanted.engine)
    record = replace(opened.record, settings=settings, tasks=tasks, engine=wanted.engine, crosses=can_cross)
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
        write_record(checkpoint, record)
        note_release(checkpoint)
        return report
    remove_unused(checkpoint, opened.record)  # what was killed before it had an effect
    folder, seeds = new_places(checkpoint, wanted.engine)
    size = write_seeds(checkpoint / seeds, _states(opened, wanted.buckets))
    old = opened.program.seeds or str(driver_files(checkpoint).folder / "state")
    moved = Moved(folder, last + 1, committed_manifest(checkpoint), seeds)
    write_record(checkpoint, replace(record, moved=moved))
    note_release(checkpoint)
    return replace(report, size=size, batch=last, old=old)


def _states(opened: Opened, buckets: int) -> Iterator[tuple[int, bytes]]:
    called = opened.folder.last_progress().buckets
    try:
        yield from moved_buckets(opened.program, saved_states(opened), buckets, called)
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
