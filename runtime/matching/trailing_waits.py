"""Trailing waits: pending matches, each with a timer.

A pending match starts a timer at the time of its latest event; the timer's duration is fixed then.
Conditions on past events are evaluated when the timer starts, conditions on later events as these
arrive. Only the match's members are stored.

A wait that repeats is due again and again, each time one duration later, until a condition fails.
The conditions only become stricter with time. So it is enough to know the next time, and the last
one that no event so far has made impossible.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass, replace
from querylang.plan.model import QueryPlan, known
from runtime.admission import Timers
from runtime.column_types import Integers
from runtime.columns.rows import stable_order
from runtime.instants import NEVER, NO_TIME
from runtime.matching.interface import Found, Ordered, Waiting, columns_of, relaid, wider

_MOST_ROUNDS = 100_000
"""More than any wait is due."""

_OWN_FIELDS = (
    pa.field("_time", pa.int64()),
    pa.field("_wait", pa.int64()),
    pa.field("_term", pa.int64()),
    pa.field("_due", pa.int64()),
    pa.field("_is_latest", pa.bool_()),
)

_OF_REPEATED = (pa.field("_round", pa.int64()), pa.field("_last", pa.int64()))
"""Of waits that repeat: the how manieth time is next, and the last one that is possible."""

_LATEST_DUE = 2**62
"""µs; no timer is due later."""


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


@lru_cache(maxsize=256)
def _without_rows(fields: tuple[pa.Field, ...]) -> pa.Table:
    """A table without rows; most queries of a program have the same fields."""
    return pa.schema(fields).empty_table()


class PendingWaits:
    """The pending waits of earlier calls.

    members: one row per wait and name that is set, with the columns of events and of `_OWN_FIELDS`
    """

    def __init__(self, query: QueryPlan, schema: pa.Schema) -> None:
        self._length = 0 if query.trailing is None else known(query.trailing.duration)
        self._most = 1 if query.trailing is None else query.trailing.most
        self._is_run = [term.group is not None for term in query.terms]
        self.schema = schema
        self._own = (*_OWN_FIELDS, *(_OF_REPEATED if self._most > 1 else ()))
        self.members = _without_rows((*schema, *self._own))

    def __len__(self) -> int:
        return int(self.members.num_rows)

    def outlook(self) -> tuple[int, int]:
        """How many waits there are, and when the next is due, µs; NEVER = there is none."""
        if not len(self):
            return 0, NEVER
        # waits are numbered from 0 in the order of their members
        return self.members.column("_wait")[-1].as_py() + 1, pc.min(self.members.column("_due")).as_py()

    def all_of(self, events: Ordered, found: Found, numbers: Integers) -> Waiting:
        """The pending waits, then those that the matches `found` begin.

        `numbers`: by row, the number of its key.
        """
        count, base = len(events.row) - len(self), int(events.start[-1])
        assert count == base, "members of pending waits come after all events"
        earlier = self._earlier(base)
        widths = wider(earlier.widths, found.widths)
        members = [relaid(part.members, part.widths, widths, -1) for part in (earlier, found)]
        key = np.searchsorted(events.start, found.latest, side="right") - 1
        due = events.time[found.latest] + self._length
        # Where the latest event is bound: of one that serves several inputs nothing else is kept.
        latest = found.members.max(axis=1, initial=-1)
        return Waiting(
            key=np.concatenate([numbers[events.row[earlier.latest]], key]),
            members=np.concatenate(members),
            latest=np.concatenate([earlier.latest, latest]),
            due=np.concatenate([earlier.due, due]),
            is_new=np.concatenate([earlier.is_new, np.ones(len(key), np.bool_)]),
            number=np.arange(len(earlier.key) + len(key)),
            round=np.concatenate([earlier.round, np.ones(len(key), np.int64)]),
            last=np.concatenate([earlier.last, np.full(len(key), self._most)]),
            widths=widths,
        )

    def in_rounds(self, waiting: Waiting, until: int) -> Waiting:
        """The waits, with an entry for each time that is due up to `until`, µs, and one more."""
        if self._most == 1:
            return waiting
        passed = np.where(until >= waiting.due, (until - waiting.due) // self._length + 1, 0)
        room = (_LATEST_DUE - waiting.due) // self._length
        further = np.maximum(0, np.minimum(np.minimum(passed, room), waiting.last - waiting.round))
        entries = waiting.only(np.repeat(np.arange(len(further)), further + 1))
        starts = np.cumsum(further + 1) - (further + 1)
        after = np.arange(len(entries.key)) - np.repeat(starts, further + 1)
        return replace(entries, due=entries.due + after * self._length, round=entries.round + after)

    def goes_on(self, entries: Waiting, alive: Waiting, expired: Integers) -> bool:
        """Whether a wait has expired at each time that has an entry, and there are further times.

        alive: the entries that no condition has ended; `expired`: those of them that have expired
        """
        if self._most == 1 or not len(entries.key):
            return False
        is_expired = np.zeros(len(entries.key), np.bool_)
        of_alive = np.searchsorted(_identity(entries), _identity(alive.only(expired)))
        is_expired[of_alive] = True
        is_final = np.append(entries.number[1:] != entries.number[:-1], True)
        return bool((is_expired & is_final & (entries.round < entries.last)).any())

    def next_rounds(self, entries: Waiting, alive: Waiting, pending: Integers) -> Waiting:
        """The waits that are kept: the next time of each, and what is known of its last one."""
        if self._most == 1:
            return alive.only(pending)
        left = alive.only(pending)
        _, first = np.unique(left.number, return_index=True)
        left = left.only(first)
        counts = (
            np.bincount(entries.number),
            np.bincount(alive.number, minlength=int(entries.number.max(initial=0)) + 1),
        )
        final = np.zeros(len(counts[0]), np.int64)
        final[alive.number] = alive.round  # the last entry of each wait counts
        is_cut = counts[0][left.number] > counts[1][left.number]
        return replace(left, last=np.where(is_cut, final[left.number], left.last))

    def began(self) -> Integers:
        """By stored member, when its wait began, µs."""
        due: Integers = self.members.column("_due").to_numpy()
        return due - self._length * (self.members.column("_round").to_numpy() if self._most > 1 else 1)

    def _earlier(self, base: int) -> Waiting:
        """The pending waits, their members at positions from `base` on; without their keys."""
        own = {field.name: self.members.column(field.name).to_numpy() for field in self._own}
        wait, position = own["_wait"], base + np.arange(len(self))
        count = int(wait.max()) + 1 if len(wait) else 0
        place, widths = self._columns(wait, own["_term"])
        members = np.full((count, sum(widths) or len(self._is_run)), -1, np.int64)
        members[wait, place] = position
        latest, due = np.empty(count, np.int64), np.empty(count, np.int64)
        latest[wait[own["_is_latest"]]] = position[own["_is_latest"]]
        due[wait] = own["_due"]
        rounds, last = np.ones(count, np.int64), np.ones(count, np.int64)
        if self._most > 1:
            rounds[wait], last[wait] = own["_round"], own["_last"]
        nothing, is_new = np.empty(count, np.int64), np.zeros(count, np.bool_)
        return Waiting(nothing, members, latest, due, is_new, np.arange(count), rounds, last, widths)

    def _columns(self, wait: Integers, term: Integers) -> tuple[Integers, tuple[int, ...]]:
        """By member, its column, and how many columns each term has; members are in order."""
        if not any(self._is_run):
            return term, ()
        terms = len(self._is_run)
        pair = wait * terms + term
        order = stable_order(pair)
        ordered = pair[order]
        begin = np.searchsorted(ordered, ordered)
        nth = np.empty(len(pair), np.int64)
        nth[order] = np.arange(len(pair)) - begin
        most = [int(nth[term == number].max(initial=0)) + 1 for number in range(terms)]
        first = np.array([columns.start for columns in columns_of(most, terms)], np.int64)
        return first[term] + nth, tuple(most)

    def keep(self, events: Ordered, waiting: Waiting) -> None:
        """Replaces the pending waits by these."""
        wait, column = np.nonzero(waiting.members >= 0)
        position = waiting.members[wait, column]
        if waiting.widths:  # as `prev` asks for the event before, those of a match are in order
            order = np.lexsort([column, position, wait])
            wait, column, position = wait[order], column[order], position[order]
        term = np.repeat(np.arange(len(waiting.widths)), waiting.widths)[column] if waiting.widths else column
        rows = events.row[position].astype(np.int64)
        columns = [events.table.column(field.name).take(pa.array(rows)) for field in self.schema]
        is_latest = events.row[waiting.latest[wait]] == rows
        own = [events.time[position], wait, term, waiting.due[wait], is_latest]
        own += [waiting.round[wait], waiting.last[wait]] if self._most > 1 else []
        self.members = pa.table([*columns, *map(pa.array, own)], schema=self.members.schema).combine_chunks()

    def restore(self, members: pa.Table) -> None:
        """Replaces the pending waits by those of a snapshot."""
        self.members = members.cast(self.members.schema)


def joined_waits(parts: Sequence[pa.Table]) -> pa.Table:
    """The members of the waits of all parts, which are numbered anew."""
    first, tables = 0, []
    for part in parts:
        _, number = np.unique(part.column("_wait").to_numpy(), return_inverse=True)
        place = part.schema.get_field_index("_wait")
        tables.append(part.set_column(place, part.schema.field(place), pa.array(first + number)))
        first += int(number.max(initial=-1)) + 1
    return pa.concat_tables(tables)


def _identity(waiting: Waiting) -> Integers:
    """A number for each entry; they ascend."""
    return waiting.number * _MOST_ROUNDS + waiting.round


def timers_of(waiting: Waiting, keys: int, rows: int) -> WaitTimers:
    """The timers of these waits, for a call with so many keys and rows."""
    wait = stable_order(waiting.key)
    count = len(wait)
    start = np.concatenate([[0], np.cumsum(np.bincount(waiting.key, minlength=keys))]).astype(np.int64)
    unknown = np.full(count, NO_TIME, np.int64)
    return WaitTimers(Timers(start, waiting.due[wait], unknown, unknown.copy(), unknown.copy(), rows), wait)
