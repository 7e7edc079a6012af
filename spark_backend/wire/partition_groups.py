"""Partition groups: queries that key the same event types by the same fields share shuffle, transport and engine.

Takes a plan; gives its groups, in order of their first query, each as a plan of its own over the same event types. A
group knows which records it wants, which bucket each goes to, and how records are counted that go nowhere. Queries whose
records are put in order by a clock that keys share (a source partition's, an event type's) are groups of their own: all
that such a group takes is in one bucket.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan, TimelineKind
from runtime.admission.outcomes import Outcome
from runtime.admission.selection import Selector
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.columns.keys import bucket_of, key_identity
from runtime.policies.per_input import is_clocked, shares_clock
from runtime.results.ledger import Account, count_records

EVERY_BUCKET = -1
"""Stands for "a copy to each bucket" among bucket numbers."""

_UNWANTED = (Outcome.UNRELATED, Outcome.FILTERED, Outcome.TICK)
"""Records that change nothing but the clock, which travels by itself."""

_REFUSED_AT_SOURCE = (Outcome.MALFORMED, Outcome.UNKNOWN_TYPE)
"""Records that are refused once, not once a query: the first group's engine does it."""


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """`plan` holds the group's queries alone, `selectors` one a query; `number` counts groups from 0.

    `identity`: what the queries have in common, for good. `is_shared`: their keys depend on each other's records.
    """

    number: int
    plan: Plan
    selectors: tuple[Selector, ...]
    identity: str
    is_shared: bool

    @property
    def query(self) -> QueryPlan:
        """A query that stands for all of the group where only keys matter."""
        return self.plan.queries[0]

    def only_bucket(self, buckets: int) -> int | None:
        """The bucket to which all goes; groups spread over the buckets by their identity. None: records go by their keys."""
        return zlib.crc32(self.identity.encode()) % buckets if self.is_shared else None

    def takes_all(self, arrivals: Arrivals) -> bool:
        """Whether all records are events of inputs without a filter, for every query: there is nothing to select."""
        present = np.flatnonzero(np.bincount(arrivals.system("kind") - min(RecordKind))) + min(RecordKind)
        plain = set.intersection(*(_unfiltered(self.plan, query) for query in self.plan.queries))
        return plain.issuperset(present.tolist())

    def uses(self, arrivals: Arrivals) -> dict[str, NDArray[np.int8]]:
        """What each query makes of each record (`runtime.admission.outcomes.Outcome`)."""
        kinds = arrivals.system("kind").astype(np.int64)
        return {
            query.title: selector.select(arrivals.table, kinds).outcome
            for query, selector in zip(self.plan.queries, self.selectors, strict=True)
        }

    def is_wanted(self, uses: Mapping[str, NDArray[np.int8]]) -> NDArray[np.bool_]:
        """Which records some query of the group, or its engine, has to see."""
        unwanted = _UNWANTED if self.number == 0 else _UNWANTED + _REFUSED_AT_SOURCE
        wanted: NDArray[np.bool_] = np.logical_or.reduce([~np.isin(use, unwanted) for use in uses.values()])
        return wanted

    def route(self, arrivals: Arrivals, buckets: int) -> Route:
        """Where each record goes.

        What has no key (unreadable, of an unknown type, null in its key) has one bucket by its offset; control events
        and heartbeats without a key go to all.
        """
        only = self.only_bucket(buckets)
        if only is None:
            place = bucket_of(arrivals, self.plan, self.query, buckets)
            homeless = place < 0
            if homeless.any():
                place = np.where(homeless, arrivals.system("offset") % buckets, place)
        else:
            place, homeless = np.full(len(arrivals), only), arrivals.system("kind") == RecordKind.CONTROL
        if self.takes_all(arrivals):
            return Route(place, np.ones(len(place), np.bool_), Account())
        uses = self.uses(arrivals)
        beats = np.logical_or.reduce([use == Outcome.HEARTBEAT for use in uses.values()])
        place[homeless & (beats | (arrivals.system("kind") == RecordKind.CONTROL))] = EVERY_BUCKET
        wanted = self.is_wanted(uses)
        return Route(place, wanted, Account() if wanted.all() else count_uses(arrivals, uses, ~wanted))


@dataclass(frozen=True, slots=True)
class Route:
    """By record: its bucket or EVERY_BUCKET, and whether it is shipped; `account` counts those that are not."""

    bucket: NDArray[np.int64]
    is_wanted: NDArray[np.bool_]
    account: Account


def _unfiltered(plan: Plan, query: QueryPlan) -> set[int]:
    """The event types, by number, that are inputs of a query and all of whose events it wants."""
    events = {item.event for item in query.inputs if item.filter is None}
    return {number for number, event in enumerate(plan.events) if event.name in events}


def count_uses(arrivals: Arrivals, uses: Mapping[str, NDArray[np.int8]], rows: NDArray[np.bool_]) -> Account:
    """The accounts of these records, where no engine counts them."""
    account: Account = Account()
    chosen = arrivals.table.column("_source").filter(pa.array(rows)).combine_chunks()
    sources = pc.dictionary_encode(chosen)
    for query, use in uses.items():
        account.update(count_records(query, sources, use[rows]))
    return account


def partition_groups(plan: Plan) -> tuple[PartitionGroup, ...]:
    """The groups of a plan's queries, in order of first appearance."""
    members: dict[tuple[str, bool], list[QueryPlan]] = {}
    for query in plan.queries:
        members.setdefault((json.dumps(key_identity(query)), shares_clock(query)), []).append(query)
    return tuple(
        PartitionGroup(
            number,
            Plan(plan.events, tuple(queries), () if number else plan.stopped),
            tuple(Selector(plan, query) for query in queries),
            *identity,
        )
        for number, (identity, queries) in enumerate(members.items())
    )


_BY = {
    TimelineKind.PARTITION: "by source partition",
    TimelineKind.SUBSTREAM: "by substreams that its keys do not tell apart",
    TimelineKind.EVENT_TYPE: "by event type",
}


def shared_order(query: QueryPlan) -> str | None:
    """By what a query's records are put in order, where that leaves it one task; None: it has a task a bucket."""
    if not shares_clock(query):
        return None
    timelines = dict.fromkeys(item.policy.timeline for item in query.inputs if item.policy and is_clocked(item))
    return "ordered " + " and ".join(_BY[timeline] for timeline in timelines)
