"""Definitive times of keys, record by record, in plain Python: what a replay's steps show of them.

It has the rules of `runtime.admission.per_key` for keys whose time nothing else moves: without
heartbeats, ordering policies, control events and keys that are forgotten. The engine decides which
records are admitted, and what matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan, QueryPlan
from runtime.columns.arrivals import RecordKind, is_moved
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME
from runtime.policies.per_input import NO_WAIT, policy_columns

Key = tuple[Any, ...]
"""A key that can be hashed and sorted: a location is a tuple of names and values."""


def have_own_time(plan: Plan, records: pa.Table, kinds: NDArray[np.int64]) -> bool:
    """Whether only the clock and a key's own records move its time."""
    if plan.stopped or "_shape" in records.column_names or is_moved(records).any():
        return False
    if (kinds == RecordKind.CONTROL).any() or any(query.forget_keys is not None for query in plan.queries):
        return False
    inputs = [item for query in plan.queries for item in query.inputs]
    return all(item.policy is None and item.heartbeat is None for item in inputs)


@dataclass(frozen=True, slots=True)
class _Rules:
    """The settings of a query's inputs, as in `PolicyColumns`."""

    delay: Sequence[int]
    moves: Sequence[bool]
    leeway: Sequence[int]
    reorder: Sequence[int]

    @staticmethod
    def of(query: QueryPlan) -> _Rules:
        columns = policy_columns(query)
        return _Rules(columns.delay.tolist(), columns.moves.tolist(), columns.leeway.tolist(), columns.reorder.tolist())


@dataclass(slots=True)
class _Timelines:
    """Those of one key.

    bound: by input, the bound by the key's own records
    delayed: by input, a heap of delayed events: their time, and when their buffer ends
    held: a heap of the times of pending events
    due: when something changes without a record; NEVER = not before one comes
    """

    place: int
    key: Key
    rules: _Rules
    bound: list[int]
    delayed: list[list[tuple[int, int]]]
    held: list[int] = field(default_factory=list)
    due: int = NEVER

    def take(self, item: int, time: int, now: int) -> None:
        """An event is admitted."""
        rules = self.rules
        if rules.delay[item] != NO_WAIT and rules.moves[item]:
            if now - time > rules.leeway[item]:
                heappush(self.delayed[item], (time, min(now + rules.reorder[item], NEVER)))
            else:
                self.bound[item] = time
        heappush(self.held, time)
        self.run(now)

    def run(self, now: int) -> bool:
        """Lets time advance; whether a pending event is definitive now."""
        definitive, before = self._advanced(now), len(self.held)
        while self.held and self.held[0] <= definitive:
            heappop(self.held)
        self.due = self._next_change() if self.held else NEVER
        return len(self.held) < before

    def definitive(self, clock: int) -> int:
        """The key's definitive time at the clock."""
        rules = self.rules
        return min(
            clock if delay == NO_WAIT else max(bound, clock - delay)
            for bound, delay in zip(self.bound, rules.delay, strict=True)
        )

    def _advanced(self, now: int) -> int:
        """Definitive time at a moment; reorder buffers that have ended advance the bounds."""
        definitive = NEVER
        for item, delay in enumerate(self.rules.delay):
            reached, delayed = now if delay == NO_WAIT else max(self.bound[item], now - delay), self.delayed[item]
            while delayed:
                oldest, until = delayed[0]
                if oldest > reached:
                    if until > now:
                        break
                    self.bound[item] = reached = oldest
                heappop(delayed)
            definitive = min(definitive, reached)
        return definitive

    def _next_change(self) -> int:
        """When the oldest pending event is definitive by the clock, or a buffer ends before."""
        time, release, change = self.held[0], NO_TIME, NEVER
        for item, delay in enumerate(self.rules.delay):
            if delay == NO_WAIT:
                release = max(release, time)
            elif self.bound[item] < time:
                release = max(release, time + delay)
            if self.delayed[item]:
                oldest, until = self.delayed[item][0]
                change = min(change, until, oldest + delay)
        return min(release, change)


class KeyTimes:
    """The definitive times of all keys of all queries, as far as records have come."""

    def __init__(self, plan: Plan) -> None:
        self._rules = [_Rules.of(query) for query in plan.queries]
        self._timelines: dict[tuple[int, Key], _Timelines] = {}
        self._due: list[tuple[int, int, _Timelines]] = []
        self._order = count()

    def take(self, place: int, key: Key, item: int, time: int, now: int) -> None:
        """A record is admitted as an event of the query at this place, at its arrival `now`, µs."""
        own = self._of(place, key)
        own.take(item, time, now)
        self._schedule(own)

    def definitive(self, place: int, key: Key, clock: int) -> int | None:
        """The definitive time of a query for a key; None = there is none."""
        reached = self._of(place, key).definitive(clock)
        return None if reached == NO_TIME else max(EARLIEST, min(reached, LATEST))

    def due(self) -> int:
        """When time advances next without a record, µs; NEVER = not before one comes."""
        while self._due and self._due[0][0] != self._due[0][2].due:  # a record has come since
            heappop(self._due)
        return self._due[0][0] if self._due else NEVER

    def run(self, moment: int) -> list[tuple[int, Key]]:
        """Lets time advance to a moment; the (query, key) pairs with events that are definitive
        now.
        """
        released = []
        while self.due() <= moment:
            own = heappop(self._due)[2]
            if own.run(moment):
                released.append((own.place, own.key))
            self._schedule(own)
        return released

    def _of(self, place: int, key: Key) -> _Timelines:
        same = place, tuple("nan" if part != part else part for part in key)  # noqa: PLR0124  NaN differs from itself
        found = self._timelines.get(same)
        if found is None:
            rules = self._rules[place]
            inputs = len(rules.delay)
            found = _Timelines(place, key, rules, [NO_TIME] * inputs, [[] for _ in range(inputs)])
            self._timelines[same] = found
        return found

    def _schedule(self, own: _Timelines) -> None:
        if own.due < NEVER:
            heappush(self._due, (own.due, next(self._order), own))
