"""Cold rows: rows of keys that the batch does not concern, in sorted runs, found by key hash.

A cold row costs nothing but its memory: runs are searched only for wanted keys, and scanned only if
a timer may have expired. Two keys with the same hash are loaded together; no answer depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.instants import NEVER, NO_TIME
from runtime.number_arrays import Integers

Hashes = NDArray[np.uint64]

SMALL = 4
"""A batch is small if at least so many times its records are stored, and at least LEAST rows."""

LEAST = 4_096


def is_small(records: int, stored: int) -> bool:
    """Whether a batch is so small that it should load only the keys that it concerns."""
    return stored >= max(LEAST, SMALL * records)


_NO_HASHES = np.empty(0, np.uint64)


class _Run:
    """Rows sorted by the hash of their key.

    timer: by row, when arrival time alone does something to its key, µs; NEVER = it does not, or
        the row was taken
    is_stored: by row, whether it has not been taken yet
    """

    def __init__(self, table: pa.Table, hashes: Hashes, timer: Integers) -> None:
        order = np.argsort(hashes, kind="stable")
        self.table = table.take(pa.array(order))
        self.hashes = hashes[order]
        self.timer = timer[order]
        self.is_stored = np.ones(len(order), np.bool_)
        self.count = len(order)
        self._no_timer_before = NO_TIME

    def take(self, wanted: Hashes) -> pa.Table:
        """Removes and returns the rows of these keys; `wanted` is sorted, without duplicates."""
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        sizes = last - first
        rows = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        rows = rows[self.is_stored[rows]]
        self.is_stored[rows] = False
        self.timer[rows] = NEVER
        self.count -= len(rows)
        return self.table.take(pa.array(rows))

    def next_timer(self) -> int:
        """The earliest timer, NEVER if there is none; scans all rows."""
        self._no_timer_before = int(self.timer.min(initial=NEVER))
        return self._no_timer_before

    def expired_keys(self, limit: int) -> Hashes:
        """The hashes of keys with a timer up to `limit`.

        Rows are scanned only if `limit` has reached the earliest timer of the last scan. Nothing is
        lost: rows are only ever removed from a run, so its earliest timer never gets earlier.
        """
        may_be_expired = self._no_timer_before <= limit and self.next_timer() <= limit
        return self.hashes[self.timer <= limit] if may_be_expired else _NO_HASHES

    def rows_of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, which stay stored."""
        first, last = np.searchsorted(self.hashes, wanted, "left"), np.searchsorted(self.hashes, wanted, "right")
        return self.table.slice(first, last - first).filter(pa.array(self.is_stored[first:last]))

    def stored(self) -> tuple[pa.Table, Hashes, Integers]:
        """All rows that have not been taken, with their hashes and timers."""
        is_stored = self.is_stored
        return self.table.filter(pa.array(is_stored)), self.hashes[is_stored], self.timer[is_stored]


class ColdRows:
    """Sorted runs of rows, each run less than half as long as the one before: a row is merged a
    logarithmic number of times."""

    def __init__(self, empty: pa.Table) -> None:
        self._empty = empty
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def add(self, table: pa.Table, hashes: Hashes, timer: Integers) -> None:
        """Stores all rows of some keys, none of which has rows here.

        hashes: by row, the hash of its key
        timer: by row, when arrival time alone does something to its key, µs; NEVER = it does not
        """
        runs = [(table, hashes, timer)]
        while self._runs and self._runs[-1].count <= 2 * sum(len(part) for part, _, _ in runs):
            runs.append(self._runs.pop().stored())
        tables, *columns = zip(*reversed(runs), strict=True)
        hashes, timer = (np.concatenate(parts) for parts in columns)
        self._runs.append(_Run(joined(tables), hashes, timer))

    def expired_keys(self, limit: int) -> Hashes:
        """The hashes of keys with a timer up to `limit`."""
        return np.concatenate([_NO_HASHES, *(run.expired_keys(limit) for run in self._runs)])

    @property
    def next_timer(self) -> int:
        """The earliest timer, µs; NEVER if there is none."""
        return min((run.next_timer() for run in self._runs), default=NEVER)

    def take(self, wanted: Hashes) -> pa.Table:
        """Removes and returns the rows of these keys; `wanted` is sorted, without duplicates."""
        return joined([self._empty, *(run.take(wanted) for run in self._runs)])

    def take_all(self) -> pa.Table:
        """Removes and returns all rows."""
        runs, self._runs = self._runs, []
        return joined([self._empty, *(run.stored()[0] for run in runs)])

    def rows_of(self, wanted: np.uint64) -> pa.Table:
        """The rows of a key, which stay stored."""
        return joined([self._empty, *(run.rows_of(wanted) for run in self._runs)])


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table, each column in one piece."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
