"""States of buckets of a job that is moved: for other buckets divided by key, and joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from job_engine.operator.bucket_state import SavedBucket, close_state, open_state, unjoined
from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import HOME, GroupRecords
from job_engine.wire.partition_groups import EVERY_BUCKET, PartitionGroup
from job_engine.wire.program import Program
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals
from runtime.engine import NOWHERE, JoinRule, by_rules, divided_snapshot, equal_in_all, united_snapshot


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
