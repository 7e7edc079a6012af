"""Trailing waits: pending matches, each with a timer.

A pending match starts a timer at the time of its latest event; the timer's duration is fixed then.
Conditions on past events are evaluated when the timer starts, conditions on later events as these
arrive. Only the match's members are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan, known
from runtime.admission.arrays import Timers
from runtime.columns.sorting import stable_order
from runtime.instants import NO_TIME
from runtime.matching.interface import Found, Ordered, Waiting

Integers = NDArray[np.int64]

_OWN_FIELDS = (
    pa.field("_time", pa.int64()),
    pa.field("_wait", pa.int64()),
    pa.field("_term", pa.int64()),
    pa.field("_due", pa.int64()),
    pa.field("_is_latest", pa.bool_()),
)


@dataclass(frozen=True, slots=True)
class WaitTimers:
    """The timers of waits, sorted by key as admission expects them.

    wait: by timer, the number of its wait
    """

    timers: Timers
    wait: Integers

    def with_timers(self, timers: Timers) -> WaitTimers:
        """The same waits, after admission has run their timers."""
        return WaitTimers(timers, self.wait)

    @property
    def expired(self) -> Integers:
        """The timers that have expired; those of a key in the order of their waits."""
        return np.flatnonzero(self.timers.emitted != NO_TIME)

    @property
    def pending(self) -> Integers:
        """The waits whose timers have not expired."""
        return np.sort(self.wait[self.timers.emitted == NO_TIME])


class PendingWaits:
    """The pending waits of earlier calls.

    members: one row per wait and name that is set, with the columns of events and of `_OWN_FIELDS`
    """

    def __init__(self, query: QueryPlan, schema: pa.Schema) -> None:
        self._length = 0 if query.trailing is None else known(query.trailing.duration)
        self._terms = len(query.terms)
        self.schema = schema
        self.members: pa.Table = pa.schema([*schema, *_OWN_FIELDS]).empty_table()

    def __len__(self) -> int:
        return int(self.members.num_rows)

    def all_of(self, events: Ordered, found: Found, numbers: Integers) -> Waiting:
        """The pending waits, then those that the matches `found` begin.

        `numbers`: by row, the number of its key.
        """
        count, base = len(events.row) - len(self), int(events.start[-1])
        assert count == base, "members of pending waits come after all events"
        earlier = self._earlier(base)
        key = np.searchsorted(events.start, found.latest, side="right") - 1
        due = events.time[found.latest] + self._length
        return Waiting(
            key=np.concatenate([numbers[events.row[earlier.latest]], key]),
            members=np.concatenate([earlier.members, found.members]),
            latest=np.concatenate([earlier.latest, found.latest]),
            due=np.concatenate([earlier.due, due]),
            is_new=np.concatenate([earlier.is_new, np.ones(len(key), np.bool_)]),
        )

    def _earlier(self, base: int) -> Waiting:
        """The pending waits, their members at positions from `base` on; without their keys."""
        own = {field.name: self.members.column(field.name).to_numpy() for field in _OWN_FIELDS}
        wait, position = own["_wait"], base + np.arange(len(self))
        count = int(wait.max()) + 1 if len(wait) else 0
        members = np.full((count, self._terms), -1, np.int64)
        members[wait, own["_term"]] = position
        latest, due = np.empty(count, np.int64), np.empty(count, np.int64)
        latest[wait[own["_is_latest"]]] = position[own["_is_latest"]]
        due[wait] = own["_due"]
        return Waiting(np.empty(count, np.int64), members, latest, due, np.zeros(count, np.bool_))

    def keep(self, events: Ordered, waiting: Waiting) -> None:
        """Replaces the pending waits by these."""
        wait, term = np.nonzero(waiting.members >= 0)
        position = waiting.members[wait, term]
        rows = events.row[position].astype(np.int64)
        columns = [events.table.column(field.name).take(pa.array(rows)) for field in self.schema]
        is_latest = events.row[waiting.latest[wait]] == rows
        own = [events.time[position], wait, term, waiting.due[wait], is_latest]
        self.members = pa.table([*columns, *map(pa.array, own)], schema=self.members.schema).combine_chunks()

    def restore(self, members: pa.Table) -> None:
        """Replaces the pending waits by those of a snapshot."""
        self.members = members.cast(self.members.schema)


def timers_of(waiting: Waiting, keys: int, rows: int) -> WaitTimers:
    """The timers of these waits, for a call with so many keys and rows."""
    wait = stable_order(waiting.key)
    count = len(wait)
    start = np.concatenate([[0], np.cumsum(np.bincount(waiting.key, minlength=keys))]).astype(np.int64)
    unknown = np.full(count, NO_TIME, np.int64)
    return WaitTimers(Timers(start, waiting.due[wait], unknown, unknown.copy(), unknown.copy(), rows), wait)
