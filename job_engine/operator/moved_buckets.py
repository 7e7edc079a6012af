"""States of buckets of a job that is moved: for other buckets divided by key, and joined.

Where queries that have *crossed* (`gathering`) cannot any more, what each bucket has of them comes
into the one that gets all their records from now on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain

import numpy as np
import pyarrow.compute as pc

from job_engine.operator.bucket_state import SavedBucket, close_state, open_state, unjoined
from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.operator.epoch_records import QueriesAt
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import COMMANDS, CONTROL, HOME, Coordinates, GroupRecords
from job_engine.wire.partition_groups import EVERY_BUCKET, PartitionGroup, count_uses
from job_engine.wire.program import Program
from querylang.dataclass import replace
from querylang.errors import InputError
from runtime.admission import Outcome
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.engine import (
    NOWHERE,
    JoinRule,
    by_rules,
    divided_snapshot,
    equal_in_all,
    snapshot_beside,
    snapshot_of_queries,
    united_snapshot,
)
from runtime.instants import NEVER
from runtime.results.ledger import RECEIVED, Account

Names = tuple[tuple[GroupName, int], ...]
"""As of `SavedBucket`."""

HISTORY_IS_MISSING = "a query has not got its history yet: let the job run once"

_NOT_AT_ONE_CHANGE = "its buckets are not at the same change of the queries: let the job run until all are"


def moved_buckets(
    program: Program,
    states: Iterable[tuple[int, bytes]],
    buckets: int,
    called: Collection[int] | None = None,
    gathered: Program | None = None,
) -> Iterator[tuple[int, bytes]]:
    """The states of all buckets of a job with `buckets`, from those that it has.

    With as many buckets as before, those that there are stay as they are.

    program: for which the states were saved
    states: of all buckets that were called, by number
    called: the buckets that are known to have been called; None = all were
    gathered: the program that runs from now on, if queries cross no more

    Raises InputError for a state that cannot be read, and if some are missing.
    """
    if buckets == program.buckets and gathered is None:
        yield from _kept(program, states, called)
        return
    division = _Division(program, gathered or program, buckets)
    parts: list[list[SavedBucket]] = [[] for _ in range(buckets)]
    found = []
    for bucket, data in states:
        found.append(bucket)
        for number, part in enumerate(division.divided(bucket, data)):
            parts[number].append(part)
    for bucket in _missing(program, found, called):
        for number, part in enumerate(division.divided(bucket, None)):
            parts[number].append(part)
    for number, some in enumerate(parts):
        yield number, division.united(number, some).to_bytes()


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


class _Division:
    """Divides states, and joins them to those of a program with other groups or buckets."""

    def __init__(self, before: Program, after: Program, buckets: int) -> None:
        self._before, self._after, self._buckets = before, after, buckets
        numbers = {group.name: group.number for group in after.groups()}
        group_of = {group.name: group.number for group in before.groups()}
        self._titles: list[dict[int, set[str]]] = [{} for _ in group_of]
        """By the number of a group before, and of one after, the titles of the queries of both."""
        names = after.names
        for title, name in before.names.items():
            self._titles[group_of[name]].setdefault(numbers[names[title]], set()).add(title)
        came_from = Counter(number for parts in self._titles for number in parts)
        self._joined = {number for number, count in came_from.items() if count > 1}
        """The numbers of groups after that have queries of several before."""

    def divided(self, bucket: int, data: bytes | None) -> Iterator[SavedBucket]:
        """The parts of a bucket's state, one for each new bucket; None = it was never called."""
        before = self._before
        state = open_state(before, bucket, data)  # refuses what cannot be read
        if before.epochs and unjoined(before, state.joined):
            raise InputError(HISTORY_IS_MISSING)
        saved = close_state(before, bucket, state)
        names = self._names(saved)
        groups, new = _groups(before, saved.names), _groups(self._after, names)
        snapshots = self._snapshots(saved, groups, new, bucket)
        held: list[list[GroupRecords]] = [[] for _ in range(self._buckets)]
        for item in (part for records in saved.held for part in self._by_group(records)):
            group = _with_queries(self._after, new, item.group)
            for number, part in _divided_records(group, item, bucket, self._buckets):
                held[number].append(part)
        for number in range(self._buckets):
            yield replace(
                saved,
                buckets=self._buckets,
                snapshots=tuple(of_group[number] for of_group in snapshots),
                held=tuple(held[number]),
                names=names,
                chains=bool(self._after.gathered),
                owed=saved.owed if number == HOME else (),
            )

    def _names(self, saved: SavedBucket) -> Names:
        """The names of the groups after, with the epochs of those that come into them."""
        if not saved.names:
            return ()
        epochs: dict[int, int] = {}
        for (_, epoch), parts in zip(saved.names, self._titles, strict=True):
            for number in parts:
                if epochs.setdefault(number, epoch) != epoch:
                    raise InputError(_NOT_AT_ONE_CHANGE)
        return tuple((group.name, epochs[group.number]) for group in self._after.groups())

    def _snapshots(
        self, saved: SavedBucket, groups: Sequence[PartitionGroup], new: Sequence[PartitionGroup], bucket: int
    ) -> list[list[bytes]]:
        """The states of the groups after, by new bucket."""
        found: list[list[list[bytes]]] = [[] for _ in new]
        for group, snapshot, parts in zip(groups, saved.snapshots, self._titles, strict=True):
            for number, titles in parts.items():
                queries = tuple(query for query in group.plan.queries if query.title in titles)
                own = snapshot if len(parts) == 1 else snapshot_of_queries(snapshot, titles)
                only = _only(group, new[number], self._before.buckets, bucket, self._buckets)
                found[number].append(divided_snapshot(replace(group.plan, queries=queries), own, self._buckets, only))
        return [
            [parts[0] if len(parts) == 1 else snapshot_beside(parts) for parts in zip(*of_group, strict=True)]
            for of_group in found
        ]

    def _by_group(self, item: GroupRecords) -> Iterator[GroupRecords]:
        """Held records, for each group after that has queries of theirs."""
        parts = self._titles[item.group]
        if len(parts) == 1 and self._joined.isdisjoint(parts):
            yield replace(item, group=next(iter(parts)))
            return
        queries = QueriesAt.of(self._before, self._before.groups())
        for arrivals, counted in queries.by_arrival(item) if item.counted is None else queries.of_counted(item):
            for number, titles in parts.items():
                own = tuple(title for title in counted if title in titles)
                yield replace(item, group=number, arrivals=arrivals, counted=((NEVER, own),))

    def united(self, number: int, parts: Sequence[SavedBucket]) -> SavedBucket:
        """The state of a new bucket, of what all old ones have for it."""
        names = _names([part.names for part in parts])
        groups = _groups(self._after, names)
        rules: dict[str, JoinRule] = {
            "buckets": lambda _: self._buckets,
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
            "owed": lambda own: tuple(chain.from_iterable(own)),
        }
        found = SavedBucket(**by_rules(rules, [_fields(part) for part in parts]))
        if not self._joined:
            return found
        held = [item for item in found.held if item.group not in self._joined]
        account: Account = Account()
        queries = QueriesAt.of(self._after, self._after.groups())
        for group in (group for group in groups if group.number in self._joined):
            own = [item for item in found.held if item.group == group.number]
            held += _held_once(
                own, _with_queries(self._after, groups, group.number), queries, account, is_home=number == HOME
            )
        return replace(found, held=tuple(held), owed=(*found.owed, *_plain(account)))


def _held_once(
    records: Sequence[GroupRecords], group: PartitionGroup, queries: QueriesAt, account: Account, *, is_home: bool
) -> Iterator[GroupRecords]:
    """Held records of a group that several groups had before, each once.

    One that a group did not need was counted for its queries where it was read. The queries of the
    joined group count it when it is released: until then it is pending for all of them.

    account: is changed
    """
    counted: dict[tuple[int, Coordinates], set[str]] = defaultdict(set)
    for item in records:
        for _, titles in item.counted or ():
            for place in item.coordinates():
                counted[item.rank, place].update(titles)
    for item in sorted(records, key=lambda item: not item.refuses):  # what no query can read, one of them reports
        rows: dict[frozenset[str], list[int]] = defaultdict(list)
        for row, place in enumerate(item.coordinates()):
            if (item.rank, place) in counted:
                rows[frozenset(counted.pop((item.rank, place)))].append(row)
        for own, some in rows.items():
            for arrivals, running in queries.by_arrival(item.taken(np.array(some))):
                part = replace(item, arrivals=arrivals)
                # control events are sent to all queries
                missing = () if item.source in (CONTROL, COMMANDS) else tuple(t for t in running if t not in own)
                if not item.is_copy or is_home:
                    _count_as_pending(part, missing, group, account)
                yield replace(part, counted=((NEVER, (*sorted(own), *missing)),))


def _count_as_pending(records: GroupRecords, titles: Sequence[str], group: PartitionGroup, account: Account) -> None:
    """Count records as pending that were counted as not needed."""
    uses = {title: use for title, use in group.uses(records.arrivals).items() if title in titles}
    account.subtract(count_uses(records.arrivals, uses, np.ones(len(records.arrivals), np.bool_)))
    for source in pc.value_counts(records.arrivals.table.column("_source")).to_pylist():
        for title in titles:
            for word in (RECEIVED, Outcome.PENDING.word):
                account[title, source["values"], word] += source["counts"]


def _plain(account: Account) -> tuple[tuple[str, str, str, int], ...]:
    return tuple((*place, count) for place, count in sorted(account.items()) if count)


def _groups(program: Program, names: Names) -> Sequence[PartitionGroup]:
    """The groups of a bucket, each as its engine has it: not all changes may be done."""
    if not names:
        return program.groups()
    by_number = {stage.number: stage for stage in program.stages}
    return [by_number[epoch].groups[place] for place, (_, epoch) in enumerate(names)]


def _with_queries(program: Program, groups: Sequence[PartitionGroup], place: int) -> PartitionGroup:
    """A group to ask about keys: its engine may wait for a change that brings its queries."""
    stages = [stage.groups[place] for stage in program.stages] if program.epochs else []
    return next(group for group in (groups[place], *stages) if group.plan.queries)


def _only(before: PartitionGroup, after: PartitionGroup, buckets_before: int, bucket: int, buckets: int) -> int | None:
    """Where all rows of a bucket go if the group's keys share timelines; None = by key.

    Other buckets than the one that has its records know the timelines only as they begin.
    """
    return NOWHERE if before.only_bucket(buckets_before) not in (None, bucket) else after.only_bucket(buckets)


def _divided_records(
    group: PartitionGroup, item: GroupRecords, bucket: int, buckets: int
) -> Iterator[tuple[int, GroupRecords]]:
    """Held records by new bucket; copies that every bucket has are those of bucket HOME."""
    if item.is_copy and bucket != HOME:
        return
    only = group.only_bucket(buckets)
    if item.is_copy and only is not None:  # heartbeats without a key go where all its records do
        is_control = item.arrivals.system("kind") == RecordKind.CONTROL
        yield only, replace(item, is_copy=False).chosen(~is_control)
        item = item.chosen(is_control)
    if item.is_copy:
        yield from ((number, item) for number in range(buckets))
        return
    bucket_of = group.route(item.arrivals, buckets).bucket
    # an older release sent heartbeats of a query that had ended to one bucket
    bucket_of = np.where(bucket_of == EVERY_BUCKET, item.arrivals.system("offset") % buckets, bucket_of)
    for number in np.unique(bucket_of).tolist():
        yield number, item.chosen(bucket_of == number)


def _names(parts: Sequence[Names]) -> Names:
    if any(names != parts[0] for names in parts):
        raise InputError(_NOT_AT_ONE_CHANGE)
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
