"""Definitive times of keys, record by record: what a replay's steps show of them.

For keys whose time nothing else moves: without heartbeats, ordering policies, control events and
keys that are forgotten. The engine decides which records are admitted, and what matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import Plan
from runtime.admission.key_times import KeyTimes, Lengths
from runtime.arrow_types import has_column
from runtime.columns.arrivals import RecordKind, is_moved
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME

Key = tuple[Any, ...]
"""A key that can be hashed and sorted: a location is a tuple of names and values."""


def have_own_time(plan: Plan, records: pa.Table, kinds: NDArray[np.int64]) -> bool:
    """Whether only the clock and a key's own records move its time."""
    if plan.stopped or has_column(records, "_shape") or is_moved(records).any():
        return False
    if (kinds == RecordKind.CONTROL).any() or any(query.forget_keys is not None for query in plan.queries):
        return False
    inputs = [item for query in plan.queries for item in query.inputs]
    return all(item.policy is None and item.heartbeat is None for item in inputs)


@dataclass(slots=True)
class _Entry:
    """The times of one key in the query at a place.

    due: when something changes without a record; NEVER = not before one comes
    """

    place: int
    key: Key
    times: KeyTimes[None]
    due: int = NEVER

    def release(self, now: int) -> bool:
        """Lets time advance; whether a pending event is definitive now."""
        released = [*self.times.release(now, 0)]
        self.due = self.times.next_change if self.times.pending else NEVER
        return bool(released)


class StepTimes:
    """The definitive times of all keys of all queries, as far as records have come."""

    def __init__(self, plan: Plan) -> None:
        self._lengths = [Lengths.of(query) for query in plan.queries]
        self._entries: dict[tuple[int, Key], _Entry] = {}
        self._due: list[tuple[int, int, _Entry]] = []
        self._order = count()

    def take(self, place: int, key: Key, item: int, time: int, now: int) -> None:
        """A record is admitted as an event of the query at this place, at its arrival `now`, µs."""
        own = self._of(place, key)
        own.times.admit(item, time, now, next(self._order), None)
        own.release(now)
        self._schedule(own)

    def definitive(self, place: int, key: Key, clock: int) -> int | None:
        """The definitive time of a query for a key; None = there is none."""
        reached = self._of(place, key).times.definitive(clock)
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
            if own.release(moment):
                released.append((own.place, own.key))
            self._schedule(own)
        return released

    def _of(self, place: int, key: Key) -> _Entry:
        same = place, tuple("nan" if part != part else part for part in key)  # noqa: PLR0124  NaN differs from itself
        found = self._entries.get(same)
        if found is None:
            found = self._entries[same] = _Entry(place, key, KeyTimes.of(self._lengths[place]))
        return found

    def _schedule(self, own: _Entry) -> None:
        if own.due < NEVER:
            heappush(self._due, (own.due, next(self._order), own))
