"""Partition groups: queries with the same keys per event type share shuffle and engine.

A group knows which records it needs, which bucket each one goes to, and how the records are
counted that are not sent. Queries whose keys share a timeline (of a source partition or an event
type) form groups of their own, and all records of such a group go to one bucket. Queries that feed
each other form groups, too (`gathering`). All queries of a group can have records of the same
sources, so that they have one clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from job_engine.wire import gathering
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.plan_text import without_looking
from querylang.dataclass import dataclass
from querylang.plan.model import Input, Plan, QueryPlan, TimelineKind
from querylang.plan.routing import levels, taken_types
from runtime.admission import FilterIndex, Outcome, Selector, shared_selectors
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.columns.keys import bucket_of, has_keys_apart
from runtime.columns.rows import RepeatedTexts
from runtime.engine import Crossing, RoutedRecords, only_result
from runtime.input_policies import is_clocked, shares_clock
from runtime.interpreter import event_numbers
from runtime.results.ledger import Account, count_records

EVERY_BUCKET = -1
"""Among bucket numbers: a copy goes to each bucket."""

_UNWANTED = (Outcome.UNRELATED, Outcome.FILTERED, Outcome.TICK)
"""Records that only advance the clock, which packed rows report anyway."""

_REFUSED_ONCE = (Outcome.MALFORMED, Outcome.UNKNOWN_TYPE)
"""Records that are refused once, by the engine of one group, and not once per query."""


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """Queries with the same keys.

    number: place among the plan's groups, from 0
    plan: a plan of the group's queries alone
    selectors: one per query; queries with equal inputs have the same one
    identity: what the queries have in common; the same in every release
    is_shared: whether their keys share timelines, or records, so that all must meet in one bucket
    sources: the names of the sources that can bring their records; None = all, because the sources
        are not known
    router: a query that says where records go, also while the plan has none; None = all do
    until: records that arrived up to here, µs, are all sent, because other queries may have run
        then; None = no others have
    alive: the kinds of records that are heartbeats of any of those
    """

    number: int
    plan: Plan
    selectors: tuple[Selector, ...]
    identity: str
    is_shared: bool
    sources: tuple[str, ...] | None
    router: QueryPlan | None = None
    until: int | None = None
    alive: tuple[int, ...] = ()

    def meets(self, source: str) -> bool:
        """Whether records of a source can concern its queries."""
        return self.sources is None or source in self.sources

    @property
    def query(self) -> QueryPlan:
        """Any query of the group, for questions about keys only."""
        return self.router or self.plan.queries[0]

    @property
    def name(self) -> gathering.GroupName:
        """What tells it from the other groups, whichever queries it has at a time."""
        return self.identity, self.is_shared, self.sources

    def only_bucket(self, buckets: int) -> int | None:
        """The bucket that gets all records, chosen by the group's identity; None = by key."""
        return zlib.crc32(self.identity.encode()) % buckets if self.is_shared else None

    def takes_all(self, arrivals: Arrivals) -> bool:
        """Whether every record is an event of an unfiltered input of every query."""
        if not self.plan.queries:
            return False
        present = np.flatnonzero(np.bincount(arrivals.system("kind") - min(RecordKind))) + min(RecordKind)
        different = {id(selector): query for query, selector in zip(self.plan.queries, self.selectors, strict=True)}
        return all(_unfiltered(self.plan, query).issuperset(present.tolist()) for query in different.values())

    def uses(self, arrivals: Arrivals) -> dict[str, NDArray[np.int8]]:
        """Per query, what it uses each record for (`runtime.admission.rules.Outcome`)."""
        kinds = arrivals.system("kind").astype(np.int64)
        made = {id(item): item.outcomes(arrivals.table, kinds) for item in dict.fromkeys(self.selectors)}
        return {
            query.title: made[id(selector)] for query, selector in zip(self.plan.queries, self.selectors, strict=True)
        }

    def is_wanted(self, uses: Mapping[str, NDArray[np.int8]], *, refuses: bool) -> NDArray[np.bool_]:
        """Which records some query of the group, or its engine, needs; `refuses` as in `route`."""
        wanted: NDArray[np.bool_] = np.logical_or.reduce([_is_wanted(use, refuses=refuses) for use in _different(uses)])
        return wanted

    def route(self, arrivals: Arrivals, buckets: int, *, refuses: bool | None = None) -> Route:
        """Where each record goes.

        refuses: whether this group reports the records that no query can read; None = if it is the
            first

        A record without a key (malformed, of an unknown type, or with a null in its key) goes to a
        bucket chosen by its offset. Control events and heartbeats without a key go to every bucket.
        """
        bucket, has_no_key = self._buckets(arrivals, buckets)
        kinds, was_for_all = arrivals.system("kind"), self._early_heartbeats(arrivals)
        if self.takes_all(arrivals) and not (has_no_key & was_for_all).any():
            return Route(bucket, np.ones(len(bucket), np.bool_), Account())
        refuses = self.number == 0 if refuses is None else refuses
        looking = _looking_of(self.selectors)
        if looking is not None and not looking.has_heartbeats(kinds):
            bucket[has_no_key & ((kinds == RecordKind.CONTROL) | was_for_all)] = EVERY_BUCKET
            wanted = self._with_early(looking.wanted(arrivals, refuses=refuses), arrivals)
            account = Account() if wanted.all() else looking.count_others(self.plan.queries, arrivals, ~wanted)
            return Route(bucket, wanted, account)
        uses = self.uses(arrivals)
        is_for_all = np.logical_or.reduce(
            [kinds == RecordKind.CONTROL, was_for_all, *(use == Outcome.HEARTBEAT for use in _different(uses))]
        )
        bucket[has_no_key & is_for_all] = EVERY_BUCKET
        wanted = self.is_wanted(uses, refuses=refuses) if uses else _always_wanted(kinds, refuses=refuses)
        wanted = self._with_early(wanted, arrivals)
        return Route(bucket, wanted, Account() if wanted.all() else count_uses(arrivals, uses, ~wanted))

    def _with_early(self, wanted: NDArray[np.bool_], arrivals: Arrivals) -> NDArray[np.bool_]:
        """Other queries may have run when a record arrived: then it is sent."""
        return wanted if self.until is None else wanted | (arrivals.system("arrival") <= self.until)

    def _early_heartbeats(self, arrivals: Arrivals) -> NDArray[np.bool_]:
        """Which records are heartbeats of queries that may have run when they arrived."""
        if self.until is None or not self.alive:
            return np.zeros(len(arrivals), np.bool_)
        return np.isin(arrivals.system("kind"), self.alive) & (arrivals.system("arrival") <= self.until)

    def _buckets(self, arrivals: Arrivals, buckets: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The bucket of each record, and whether it has no key."""
        only = self.only_bucket(buckets)
        if only is not None:
            return np.full(len(arrivals), only), arrivals.system("kind") == RecordKind.CONTROL
        bucket = bucket_of(arrivals, self.plan, self.query, buckets)
        has_no_key = bucket < 0
        if has_no_key.any():
            bucket = np.where(has_no_key, arrivals.system("offset") % buckets, bucket)
        return bucket, has_no_key

    def parcels(self, routed: RoutedRecords, buckets: int) -> Iterator[Parcel]:
        """Routed events that queries of the group take, by bucket."""
        bucket, _ = self._buckets(Arrivals(routed.table), buckets)
        if not self.query.keys and self.only_bucket(buckets) is None:
            bucket[:] = 0  # heartbeats, too, which have no key; those of a query with keys have all of it
        for number in np.unique(bucket).tolist():
            yield Parcel(number, self.number, routed.take(np.flatnonzero(bucket == number)))


class _Looking:
    """Which records the queries of a group need, found by an index over their filters.

    A record that it does not find is the same to a query as all others of its kind. So those that
    are not sent are counted by their kinds.
    """

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self._different = list(dict.fromkeys(selectors))
        self._index = FilterIndex(selectors[0].plan, [selector.wanted for selector in self._different])
        unseen: dict[bytes, int] = {}
        numbers = {own: unseen.setdefault(own.outcome_unseen.tobytes(), len(unseen)) for own in self._different}
        self._unseen = [np.frombuffer(own, np.int8) for own in unseen]
        self._unseen_of = [numbers[selector] for selector in selectors]

    def has_heartbeats(self, kinds: NDArray[np.int64]) -> bool:
        """Whether records of these kinds may be heartbeats: those without a key go everywhere."""
        return any(bool((own == Outcome.HEARTBEAT)[kinds].any()) for own in self._unseen)

    def wanted(self, arrivals: Arrivals, *, refuses: bool) -> NDArray[np.bool_]:
        """As `PartitionGroup.is_wanted`."""
        kinds = arrivals.system("kind").astype(np.int64)
        by_kind = [_is_wanted(own, refuses=refuses) for own in self._unseen]
        wanted: NDArray[np.bool_] = np.logical_or.reduce(by_kind)[kinds]
        found = self._index.found(RepeatedTexts(arrivals.table), kinds)
        whole = [number for number, own in enumerate(self._different) if not own.looks_at_more]
        for rows in found.parts_of(whole):
            wanted[rows] = True
        for number, selector in enumerate(self._different):
            rows = found.of(number) if selector.looks_at_more else _NO_ROWS
            left = rows[~wanted[rows]]
            if len(left):
                wanted[left[selector.passes(arrivals.table, left, kinds[left])]] = True
        return wanted

    def count_others(self, queries: Sequence[QueryPlan], arrivals: Arrivals, rows: NDArray[np.bool_]) -> Account:
        """As `count_uses`, of records that no query needs; `queries`: those of the group."""
        kinds = arrivals.system("kind")[rows]
        sources = pc.dictionary_encode(arrivals.table.column("_source").filter(pa.array(rows)).combine_chunks())
        counts = [list(count_records("", sources, own[kinds]).items()) for own in self._unseen]
        account: Account = Account()
        for query, number in zip(queries, self._unseen_of, strict=True):
            account.update({(query.title, source, word): count for (_, source, word), count in counts[number]})
        return account


_NO_ROWS = np.empty(0, np.int64)

FEW = 4
"""So few different selectors look at all records: an index costs more."""


@lru_cache(maxsize=64)
def _looking_of(selectors: tuple[Selector, ...]) -> _Looking | None:
    """None: each selector looks at all records. An event may be several inputs of some."""
    is_for_index = len(set(selectors)) > FEW and all(len(own.layers) == 1 for own in selectors)
    return _Looking(selectors) if is_for_index else None


@dataclass(frozen=True, slots=True)
class Parcel:
    """Routed events on their way to a group in a bucket."""

    bucket: int
    group: int
    routed: RoutedRecords


Given = TypeVar("Given")

Exchange = Generator[Sequence[Parcel], Sequence[Parcel], Given]
"""Work of a bucket in rounds: in each what is on its way to all buckets, then what comes to it."""


def alone(work: Exchange[Given]) -> Given:
    """What a bucket gives if none of its queries cross."""
    return only_result(work)


def next_round(
    work: Mapping[int, Exchange[Given]], arrived: Iterable[Parcel] | None
) -> tuple[list[Parcel], dict[int, Given]]:
    """Let buckets work until they wait for each other: what is on its way; or until they have
    ended: what each gives.

    arrived: what was on its way to them; None = they begin
    """
    coming: dict[int, list[Parcel]] = {}
    for parcel in arrived or ():
        coming.setdefault(parcel.bucket, []).append(parcel)
    leaving, given = list[Parcel](), dict[int, Given]()
    for bucket, own in work.items():
        try:
            leaving += next(own) if arrived is None else own.send(coming.get(bucket, ()))
        except StopIteration as end:
            given[bucket] = end.value
    assert len(given) in (0, len(work)), "all buckets have the same rounds"
    return leaving, given


def together(work: Mapping[int, Exchange[Given]]) -> dict[int, Given]:
    """What all buckets of a program give, in one process."""
    leaving, given = next_round(work, None)
    while len(given) < len(work):
        leaving, given = next_round(work, leaving)
    return given


@dataclass(frozen=True, slots=True)
class Routing:
    """Where what queries route goes that cross (`gathering`).

    crossing: these queries
    groups: the numbers of the groups that have some, and so the same calls at the same clock
    taking: by the number of an event type, the groups that take its events
    """

    crossing: Crossing
    groups: tuple[int, ...]
    taking: Mapping[int, tuple[PartitionGroup, ...]]

    @staticmethod
    def of(groups: Sequence[PartitionGroup]) -> Routing:
        """That of the queries of these groups."""
        names = {query.title: group.name for group in groups for query in group.plan.queries}
        queries = [query for group in groups for query in group.plan.queries]
        crossing = gathering.crossing_queries(queries, names, groups[0].plan.events if groups else ())
        titles = {query.title for query in crossing}
        own = [(group, [query for query in group.plan.queries if query.title in titles]) for group in groups]
        numbers = event_numbers(groups[0].plan) if groups else {}
        taking: dict[int, list[PartitionGroup]] = {}
        for group, queries in own:
            for name in sorted(frozenset[str]().union(*map(taken_types, queries))):
                taking.setdefault(numbers[name], []).append(group)
        return Routing(
            Crossing(levels(crossing), frozenset[str]().union(*map(taken_types, crossing))),
            tuple(group.number for group, queries in own if queries),
            {kind: tuple(some) for kind, some in taking.items()},
        )

    def parcels(self, routed: RoutedRecords, buckets: int) -> Iterator[Parcel]:
        """Routed events on their way to all who take them."""
        kinds = Arrivals(routed.table).system("kind")
        for kind in np.unique(kinds).tolist():
            own = routed.take(np.flatnonzero(kinds == kind))
            for group in self.taking.get(kind, ()):
                yield from group.parcels(own, buckets)


@dataclass(frozen=True, slots=True)
class Route:
    """Where the records of a batch go.

    bucket: per record; EVERY_BUCKET = to each
    is_wanted: per record, whether it is sent
    account: counts of the records that are not sent
    """

    bucket: NDArray[np.int64]
    is_wanted: NDArray[np.bool_]
    account: Account


def _always_wanted(kinds: NDArray[np.int64], *, refuses: bool) -> NDArray[np.bool_]:
    """Which records a group needs that has no query now; parameters as of `PartitionGroup`."""
    return (kinds == RecordKind.CONTROL) | (is_refused_once(kinds) & refuses)


def _is_wanted(use: NDArray[np.int8], *, refuses: bool) -> NDArray[np.bool_]:
    return ~np.isin(use, _UNWANTED if refuses else _UNWANTED + _REFUSED_ONCE)


def is_refused_once(kinds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which records no query can read."""
    return (kinds == RecordKind.MALFORMED) | (kinds == RecordKind.UNKNOWN_TYPE)


def _unfiltered(plan: Plan, query: QueryPlan) -> set[int]:
    """The numbers of the event types all of whose events a query needs."""
    events = {item.event for item in query.inputs if item.filter is None}
    return {number for number, event in enumerate(plan.events) if event.name in events}


def count_uses(arrivals: Arrivals, uses: Mapping[str, NDArray[np.int8]], rows: NDArray[np.bool_]) -> Account:
    """Ledger counts of the chosen records, for those that no engine counts."""
    account: Account = Account()
    chosen = arrivals.table.column("_source").filter(pa.array(rows)).combine_chunks()
    sources = pc.dictionary_encode(chosen)
    own = {id(use): count_records("", sources, use[rows]) for use in _different(uses)}
    for query, use in uses.items():
        account.update({(query, source, word): count for (_, source, word), count in own[id(use)].items()})
    return account


def _different(uses: Mapping[str, NDArray[np.int8]]) -> Iterable[NDArray[np.int8]]:
    """Those of queries that use records alike only once."""
    return {id(use): use for use in uses.values()}.values()


def partition_groups(
    plan: Plan, sources: Sequence[ClockSource] = (), gathered: gathering.Gathered | None = None
) -> tuple[PartitionGroup, ...]:
    """The groups of a plan's queries, in order of their first query.

    sources: those of the job; none = not known
    gathered: of the job; None = as of a new one
    """
    members: dict[gathering.GroupName, list[QueryPlan]] = {}
    names = gathering.group_names(
        plan.queries, sources, gathering.gathered_anew(plan, sources) if gathered is None else gathered
    )
    for query in plan.queries:
        members.setdefault(names[query.title], []).append(query)
    parts = (
        Plan(plan.events, tuple(queries), () if number else plan.stopped)
        for number, queries in enumerate(members.values())
    )
    return tuple(
        PartitionGroup(
            number, part, shared_selectors(without_looking(part)), *identity, router=gathering.router_of(part.queries)
        )
        for number, (identity, part) in enumerate(zip(members, parts, strict=True))
    )


_ORDERED_BY = {
    TimelineKind.PARTITION: "by source partition",
    TimelineKind.SUBSTREAM: "by substreams that its keys do not tell apart",
    TimelineKind.EVENT_TYPE: "by event type",
}


def refusing_group(groups: Sequence[PartitionGroup], source: str) -> int:
    """The number of the group that reports what no query can read of a source.

    It is one that waits for this source anyway, if there is one, and that has queries, if one has:
    it stays until its records are released.
    """
    able = [group for group in groups if group.plan.queries]
    return next((group.number for group in [*(group for group in able if group.meets(source)), *able]), 0)


def shared_order(query: QueryPlan, name: gathering.GroupName) -> str | None:
    """What forces all records of a query into one task; None: it has a task per bucket.

    name: of its group
    """
    if name[0] == gathering.CHAINS:
        return "in a chain of queries whose keys differ"
    if has_keys_apart(query) and not shares_clock(query):
        return "one may count in several keys, by the roles of its type, and is one record of the ledger"
    if not shares_clock(query):
        return "fed by, or feeding, a query that is" if name[1] else None
    timelines = dict.fromkeys(item.policy.timeline for item in query.inputs if item.policy and is_clocked(item))
    return "ordered " + " and ".join(_ORDERED_BY[timeline] for timeline in timelines)


# What a source does before the shuffle: drop columns, filter records, compute times and keys.
#
# The workers that read do it with `runtime.admission.selection`, not with Spark expressions. So a
# filter means exactly what it means embedded, and records that it refuses are still counted.


def describe_pushdown(plan: Plan, query: QueryPlan) -> list[str]:
    """What is done for a query before the shuffle, a line each, for `ensue explain`."""
    read = {event.name for event in plan.events if event.name in _types(query)}
    fields = dict.fromkeys(field.name for event in plan.events if event.name in read for field in event.fields)
    lines = [f"fields read: {', '.join(fields)}"] if fields else []
    filtered = [item.event for item in query.inputs if item.filter is not None]
    if filtered:
        lines.append(f"filters of {', '.join(filtered)}: what they refuse is counted, not shipped")
    lines.append("records of other types: counted, not shipped")
    lines.append(f"bucket: {_buckets(plan, query)}")
    return lines


def _buckets(plan: Plan, query: QueryPlan) -> str:
    name = gathering.group_names([query], (), gathering.gathered_anew(plan, ()))[query.title]
    order = shared_order(query, gathering.own_name(query, ()) if name[0] == gathering.CHAINS else name)
    if order is not None:
        return f"one, for all records: {order}"
    if not query.keys:
        return "one, for all records"
    is_one = (
        f"; with `engine: spark` one, for all records: {shared_order(query, name)}"
        if name[0] == gathering.CHAINS
        else ""
    )
    return f"by {', '.join(query.key_names)}{is_one}"


def _types(query: QueryPlan) -> set[str]:
    return {name for item in query.inputs for name in _names(item)}


def _names(item: Input) -> list[str]:
    return [item.event] if item.heartbeat is None else [item.event, item.heartbeat.event]
