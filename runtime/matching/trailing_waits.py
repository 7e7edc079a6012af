"""Trailing waits: matches that wait for their timer, and what they leave when it is over.

Takes the matches of a call's pattern; gives those whose wait is over, with the moment at which that was known. A wait
begins with its match, at the time of the latest event, and has the length of that moment. What its conditions
ask of events that were there is decided when it begins, what they ask of later ones as soon as those come: what is
left of a wait is its match set, which is all that is kept.
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
class Clock:
    """The timers of waits as admission takes them; `wait[t]` is the wait that timer t belongs to."""

    timers: Timers
    wait: Integers

    @property
    def over(self) -> Integers:
        """The timers that are over; those of a key in the order of their waits."""
        return np.flatnonzero(self.timers.emitted != NO_TIME)

    @property
    def pending(self) -> Integers:
        """The waits that go on."""
        return np.sort(self.wait[self.timers.emitted == NO_TIME])


class PendingWaits:
    """The waits that earlier calls have begun. `members`: a row an event and name, with the columns of events."""

    def __init__(self, query: QueryPlan, schema: pa.Schema) -> None:
        self._length = 0 if query.trailing is None else known(query.trailing.duration)
        self._terms = len(query.terms)
        self.schema = schema
        self.members: pa.Table = pa.schema([*schema, *_OWN_FIELDS]).empty_table()

    def __len__(self) -> int:
        return int(self.members.num_rows)

    def all_of(self, events: Ordered, found: Found, numbers: Integers) -> Waiting:
        """Those that were there, then those that these matches begin. `numbers`: the key's number by row."""
        count, base = len(events.row) - len(self), int(events.start[-1])
        assert count == base, "members of pending waits stand behind all events"
        was = self._before(base)
        key = np.searchsorted(events.start, found.latest, side="right") - 1
        due = events.time[found.latest] + self._length
        return Waiting(
            key=np.concatenate([numbers[events.row[was.latest]], key]),
            members=np.concatenate([was.members, found.members]),
            latest=np.concatenate([was.latest, found.latest]),
            due=np.concatenate([was.due, due]),
            is_new=np.concatenate([was.is_new, np.ones(len(key), np.bool_)]),
        )

    def _before(self, base: int) -> Waiting:
        own = {field.name: self.members.column(field.name).to_numpy() for field in _OWN_FIELDS}
        wait, place = own["_wait"], base + np.arange(len(self))
        count = int(wait.max()) + 1 if len(wait) else 0
        members = np.full((count, self._terms), -1, np.int64)
        members[wait, own["_term"]] = place
        latest, due = np.empty(count, np.int64), np.empty(count, np.int64)
        latest[wait[own["_is_latest"]]] = place[own["_is_latest"]]
        due[wait] = own["_due"]
        return Waiting(np.empty(count, np.int64), members, latest, due, np.zeros(count, np.bool_))

    def keep(self, events: Ordered, waiting: Waiting) -> None:
        """Remembers these waits instead of those before."""
        wait, term = np.nonzero(waiting.members >= 0)
        position = waiting.members[wait, term]
        rows = events.row[position].astype(np.int64)
        columns = [events.table.column(field.name).take(pa.array(rows)) for field in self.schema]
        is_latest = events.row[waiting.latest[wait]] == rows
        own = [events.time[position], wait, term, waiting.due[wait], is_latest]
        self.members = pa.table([*columns, *map(pa.array, own)], schema=self.members.schema).combine_chunks()

    def restore(self, members: pa.Table) -> None:
        """Goes on with these."""
        self.members = members.cast(self.members.schema)


def clock_of(waiting: Waiting, keys: int, rows: int) -> Clock:
    """The timers of these waits, for so many keys and rows of the call."""
    wait = stable_order(waiting.key)
    count = len(wait)
    start = np.concatenate([[0], np.cumsum(np.bincount(waiting.key, minlength=keys))]).astype(np.int64)
    unknown = np.full(count, NO_TIME, np.int64)
    return Clock(Timers(start, waiting.due[wait], unknown, unknown.copy(), unknown.copy(), rows), wait)
