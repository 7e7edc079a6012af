"""Rows of keys that rest, in sorted runs: what is there is found by the hash of its key, and what rests costs next to nothing.

Takes tables whose rows belong to keys; gives back all rows of wanted keys. Two keys of one hash are only fetched together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.instants import NEVER, NO_TIME

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

SMALL = 4
"""A call is small if so many times its records are remembered, and at least LEAST rows."""

LEAST = 4_096


def is_small(records: int, remembered: int) -> bool:
    """Whether so few records should leave alone what they do not concern."""
    return remembered >= max(LEAST, SMALL * records)


_NO_HASHES = np.empty(0, np.uint64)


class _Run:
    """Rows in order of their keys' hash; `due`: when time alone does something to the row's key (NEVER: not, or fetched)."""

    def __init__(self, table: pa.Table, hashes: Hashes, due: Integers) -> None:
        order = np.argsort(hashes, kind="stable")
        self.table = table.take(pa.array(order))
        self.hashes = hashes[order]
        self.due = due[order]
        self.is_there = np.ones(len(order), np.bool_)
        self.count = len(order)
        self._not_before = NO_TIME  # no row is due before it

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

    def look(self) -> int:
        """When time does something to any of them; remembers it."""
        self._not_before = int(self.due.min(initial=NEVER))
        return self._not_before

    def due_at(self, limit: int) -> Hashes:
        """The keys to which time has done something at `limit`; all rows are looked at only when some may be due."""
        is_due = self._not_before <= limit and self.look() <= limit
        return self.hashes[self.due <= limit] if is_due else _NO_HASHES

    def of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, left where they are."""
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        return self.table.slice(first, last - first).filter(pa.array(self.is_there[first:last]))

    def rest(self) -> tuple[pa.Table, Hashes, Integers]:
        """What has not been fetched."""
        return self.table.filter(pa.array(self.is_there)), self.hashes[self.is_there], self.due[self.is_there]


class Shelf:
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
        self._runs.append(_Run(joined(tables), hashes, due))

    def due(self, limit: int) -> Hashes:
        """The keys to which time has done something at `limit`."""
        return np.concatenate([_NO_HASHES, *(run.due_at(limit) for run in self._runs)])

    @property
    def next_due(self) -> int:
        """When time does something to any of them."""
        return min((run.look() for run in self._runs), default=NEVER)

    def fetch(self, wanted: Hashes) -> pa.Table:
        """Takes away the rows of these keys."""
        return joined([self._empty, *(run.fetch(wanted) for run in self._runs)])

    def fetch_all(self) -> pa.Table:
        """Takes away everything."""
        runs, self._runs = self._runs, []
        return joined([self._empty, *(run.rest()[0] for run in runs)])

    def of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, left where they are."""
        return joined([self._empty, *(run.of(wanted) for run in self._runs)])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table, each column in one piece."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
