"""An engine per thread, each with its own keys; together they give the answer of one.

Keys have nothing to do with each other, unless they share a clock. Records that are not events of a
key are processed by the first engine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import has_chains
from runtime.column_types import Integers
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.columns.keys import bucket_of, has_keys_apart, key_identity
from runtime.engine import Engine
from runtime.input_policies import shares_clock
from runtime.results.ledger import ledger_table
from runtime.results.matched import OrderedMatches
from runtime.results.matched import found_with_steps as later_steps
from runtime.results.schemas import Results, numbered
from runtime.threads import in_threads

LEAST = 100_000
"""So many records per thread are worth one."""


class NotDividedError(Exception):
    """A record concerns all keys."""


def can_divide(plan: Plan, threads: int, records: pa.Table | None = None) -> bool:
    """Whether threads can have their own keys, and there is enough to do for them.

    records: all records; None = there are many, of which nothing is known
    """
    if threads < 3 or not plan.queries or plan.stopped or has_chains(plan.queries):  # of two, one reads and gathers
        return False
    if records is not None and (len(records) < LEAST * threads or _has_control(records)):
        return False
    identities = [key_identity(query) for query in plan.queries]
    return all(own == identities[0] for own in identities) and all(map(_is_by_key, plan.queries))


def _has_control(records: pa.Table) -> bool:
    """Whether there is a control event: these concern all keys."""
    return bool((records.column("_kind").to_numpy() == RecordKind.CONTROL).any())


def _is_by_key(query: QueryPlan) -> bool:
    has_buckets = bool(query.keys) and not shares_clock(query) and not has_keys_apart(query)
    return has_buckets and all(item.heartbeat is None for item in query.inputs)


class DividedEngine:
    """Engines that divide the keys among them. It has what a replay needs of an engine."""

    def __init__(self, plan: Plan, matcher: str, threads: int) -> None:
        self.plan = plan
        self.count = threads
        self._engines = [Engine(plan, matcher, gathers_later=True) for _ in range(threads)]
        self._records = 0

    def process(self, arrivals: Arrivals) -> list[Results]:
        """As `Engine.process`, of records in order of arrival; one result per engine.

        Raises NotDividedError.
        """
        if _has_control(arrivals.table):
            raise NotDividedError
        engine_of = np.maximum(bucket_of(arrivals, self.plan, self.plan.queries[0], len(self._engines)), 0)
        first, now = self._records, int(arrivals.system("arrival")[-1])
        self._records += len(arrivals)

        def run(number: int) -> Results:
            rows = np.flatnonzero(engine_of == number)
            own = Arrivals(arrivals.table.filter(pa.array(engine_of == number)))
            return _searched(results_with_steps(self._engines[number].process(own, now), first + rows, 0))

        return in_threads(run, range(len(self._engines)), len(self._engines))

    def flush(self) -> list[Results]:
        """As `Engine.flush`."""
        nothing, count = np.empty(0, np.int64), len(self._engines)
        return in_threads(
            lambda engine: results_with_steps(engine.flush(), nothing, self._records), self._engines, count
        )

    def advance_to(self, now: int) -> list[Results]:
        """Runs timers up to a moment, µs."""
        nothing, count = np.empty(0, np.int64), len(self._engines)
        return in_threads(
            lambda engine: results_with_steps(engine.process(Arrivals.empty(self.plan), now), nothing, 0),
            self._engines,
            count,
        )

    def stored_events(self) -> int:
        """As of `Engine`."""
        return sum(engine.stored_events() for engine in self._engines)

    def ledger(self) -> pa.Table:
        """As of `Engine`."""
        return ledger_table(sum((engine.account for engine in self._engines), Counter()))

    def latest(self) -> Engine:
        """The engine whose clock is the furthest: what is the same for all keys, it knows."""
        return max(self._engines, key=lambda engine: engine.clock or 0)


def _searched(results: Results) -> Results:
    """The results with matches that are found and in order: a thread does that for its own keys."""
    return replace(results, found={name: partial(_same, finding()) for name, finding in results.found.items()})


def _same(later: OrderedMatches) -> OrderedMatches:
    return later


def results_with_steps(results: Results, records: Integers, end: int) -> Results:
    """Results with other numbers of steps; timers keep their negative ones.

    records: by record of the call, its number among all
    end: is added to the number of the end of the input
    """
    return replace(
        results,
        matches={name: numbered(table, records, end) for name, table in results.matches.items()},
        outputs=numbered(results.outputs, records, end),
        routed=None if results.routed is None else numbered(results.routed, records, end),
        discarded=None if results.discarded is None else numbered(results.discarded, records, end),
        found={name: later_steps(finding, records, end) for name, finding in results.found.items()},
    )
