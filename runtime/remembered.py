"""What a query remembers of its keys between calls: events, and how far timelines have come.

Takes what a call leaves; gives, at the next one, what belongs to the keys that it concerns. A call that is small beside all that is
remembered finds its keys by a hash and leaves the others alone on a shelf of sorted runs: it costs what its own
keys cost, and a scan of a few nanoseconds an event. Two keys of one hash are only fetched together; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.batch import NO_TIME
from runtime.controls import NEVER
from runtime.keys import hash_keys

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

SMALL = 4
"""A call is small if so many times its records are remembered, and at least LEAST rows."""

LEAST = 4_096


class _Run:
    """Rows in order of their keys' hash; `due`: when time alone does something to the row's key (NEVER: not, or fetched)."""

    def __init__(self, table: pa.Table, hashes: Hashes, due: Integers) -> None:
        order = np.argsort(hashes, kind="stable")
        self.table = table.take(pa.array(order))
        self.hashes = hashes[order]
        self.due = due[order]
        self.is_there = np.ones(len(order), np.bool_)
        self.count = len(order)

    def fetch(self, wanted: Hashes) -> pa.Table:
        """Takes away the rows of these keys; `wanted` is sorted, without doubles."""
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        sizes = last - first
        rows = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        rows = rows[self.is_there[rows]]
        self.is_there[rows] = False
        self.due[rows] = NEVER
        self.count -= len(rows)
        return self.table.take(pa.array(rows))

    def of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, left where they are."""
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        return self.table.slice(first, last - first).filter(pa.array(self.is_there[first:last]))

    def rest(self) -> tuple[pa.Table, Hashes, Integers]:
        """What has not been fetched."""
        return self.table.filter(pa.array(self.is_there)), self.hashes[self.is_there], self.due[self.is_there]


class _Shelf:
    """Runs, each less than half as long as the one before."""

    def __init__(self, empty: pa.Table) -> None:
        self._empty = empty
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def put(self, table: pa.Table, hashes: Hashes, due: Integers) -> None:
        """Adds rows of keys that have no others here."""
        runs = [(table, hashes, due)]
        while self._runs and self._runs[-1].count <= 2 * sum(len(part) for part, _, _ in runs):
            runs.append(self._runs.pop().rest())
        tables, *columns = zip(*reversed(runs), strict=True)
        hashes, due = (np.concatenate(parts) for parts in columns)
        self._runs.append(_Run(_joined(tables), hashes, due))

    def due(self, limit: int) -> Hashes:
        """The keys to which time has done something at `limit`."""
        return np.concatenate([_NO_HASHES, *(run.hashes[run.due <= limit] for run in self._runs)])

    @property
    def next_due(self) -> int:
        """When time does something to any of them."""
        return min((int(run.due.min(initial=NEVER)) for run in self._runs), default=NEVER)

    def fetch(self, wanted: Hashes) -> pa.Table:
        """Takes away the rows of these keys."""
        return _joined([self._empty, *(run.fetch(wanted) for run in self._runs)])

    def fetch_all(self) -> pa.Table:
        """Takes away everything."""
        runs, self._runs = self._runs, []
        return _joined([self._empty, *(run.rest()[0] for run in runs)])

    def of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, left where they are."""
        return _joined([self._empty, *(run.of(wanted) for run in self._runs)])


_NO_HASHES = np.empty(0, np.uint64)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


class Remembered:
    """`kept`: events, `bounds`: timelines that are ahead of the clock, of the keys at hand; their columns are those of the empty tables
    given. `keys_of`: the key columns of events; `may_rest`: whether keys can be left alone at all."""

    def __init__(
        self, kept: pa.Table, bounds: pa.Table, keys_of: Callable[[pa.Table], list[pa.Array]], *, may_rest: bool
    ) -> None:
        self.kept, self.bounds = kept, bounds
        self._due = np.empty(0, np.int64)
        self._events, self._timelines = _Shelf(kept), _Shelf(bounds)
        self._keys_of, self._may_rest = keys_of, may_rest
        self._most = 0

    def recall(self, new: pa.Table, limit: int, *, everything: bool = False) -> None:
        """Brings to hand what is remembered of the keys of `new`, and of those to which time does something until `limit`; or everything.

        A record without a key concerns all keys; so does the end of time.
        """
        at_hand, resting = len(self.kept), len(self._events)
        total = at_hand + resting
        if everything or not self._may_rest or limit >= NEVER or total < max(LEAST, SMALL * len(new)):
            self._recall_all()
            return
        keys = self._keys_of(new)
        if not resting:
            self._most = 2 * total
        if total > self._most or any(column.null_count for column in keys):
            self._recall_all()
            return
        if at_hand:
            self._events.put(self.kept, hash_keys(self._keys_of(self.kept)), self._due)
        if len(self.bounds):
            self._timelines.put(self.bounds, self._hashes(self.bounds), np.full(len(self.bounds), NEVER))
        wanted = np.unique(np.concatenate([hash_keys(keys), self._events.due(limit)]))
        self.kept, self.bounds = self._events.fetch(wanted), self._timelines.fetch(wanted)

    def _recall_all(self) -> None:
        """Brings everything to hand."""
        if self.is_resting:
            self.kept = _joined([self.kept, self._events.fetch_all()])
            self.bounds = _joined([self.bounds, self._timelines.fetch_all()])

    def _hashes(self, bounds: pa.Table) -> Hashes:
        keys = [name for name in bounds.column_names if name.startswith("key")]
        return hash_keys([bounds.column(name).combine_chunks() for name in keys])

    def remember(self, kept: pa.Table, bounds: pa.Table, due: Integers) -> None:
        """What is left of the keys at hand; `due`, by row of `kept`: when time does something to its key."""
        self.kept, self.bounds, self._due = kept, bounds, due

    @property
    def is_resting(self) -> bool:
        """Whether anything is not at hand."""
        return len(self._events) > 0 or len(self._timelines) > 0

    @property
    def next_due(self) -> int:
        """When time does something to a key that is not at hand."""
        return self._events.next_due

    def restore(self, kept: pa.Table, bounds: pa.Table) -> None:
        """Goes on from these."""
        self.remember(kept, bounds, np.full(len(kept), NO_TIME))

    def bounds_of(self, key: Sequence[Any]) -> pa.Table:
        """Timelines among which all of the key are."""
        if not len(self._timelines):
            return self.bounds
        types = [field.type for field in self.bounds.schema if field.name.startswith("key")]
        wanted = hash_keys([pa.array([value], type_) for value, type_ in zip(key, types, strict=True)])[0]
        return _joined([self.bounds, self._timelines.of(wanted)])

    def __len__(self) -> int:
        return len(self.kept) + len(self._events)
