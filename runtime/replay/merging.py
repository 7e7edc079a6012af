"""Merge tables of records that are sorted by arrival, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from runtime.columns.arrivals import Arrivals, in_arrival_order
from runtime.instants import NEVER


class _Stream:
    """A sorted stream of tables; `head`: what was read of it and not yet merged."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self.head: pa.Table | None = None
        self.is_over = False
        self.read_on()

    def read_on(self) -> None:
        """Read the next table behind the head, if there is one."""
        for table in self._tables:
            if len(table):
                self.head = table if self.head is None else concatenated([self.head, table])
                return
        self.is_over = True

    @property
    def reached(self) -> int:
        """Everything before this arrival, µs, is in the head."""
        if self.is_over:
            return NEVER
        return int(_arrival(self.head)[-1])

    def before(self, moment: int) -> pa.Table | None:
        """Takes the rows that arrive before a moment from the head; None = there are none."""
        if self.head is None:
            return None
        count = len(self.head) if moment >= NEVER else int(np.searchsorted(_arrival(self.head), moment))
        taken = self.head.slice(0, count)
        self.head = self.head.slice(count) if count < len(self.head) else None
        return taken if count else None


def merged(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """The rows of all streams in order of arrival.

    Each stream is in order of arrival. Memory is that of one table per stream.
    """
    if len(streams) == 1:
        yield from streams[0]
        return
    active = [_Stream(tables) for tables in streams]
    while any(stream.head is not None for stream in active):
        reached = min(stream.reached for stream in active)
        ready = [table for stream in active if (table := stream.before(reached)) is not None]
        if ready:
            yield in_arrival_order(concatenated(ready))
        for stream in active:  # what arrives at this very moment may continue in the next table
            if not stream.is_over and (stream.head is None or stream.reached == reached):
                stream.read_on()


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of all tables; a column that one lacks is null there."""
    return Arrivals.concat([Arrivals(table) for table in tables]).table


def _arrival(table: pa.Table | None) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    assert table is not None, "a stream that is not over has a head"
    arrival: np.ndarray[tuple[int], np.dtype[np.int64]] = table.column("_arrival").to_numpy()
    return arrival
