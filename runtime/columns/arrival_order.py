"""Sort records by arrival: by (arrival, place, partition, offset).

A table that is sorted already, the usual case, costs one scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.columns.sorting import stable_order

_TIES = ("_place", "_partition", "_offset")
"""What orders records that arrive together."""

PLACE = ("_arrival", *_TIES)
"""A record's place in the order of arrival."""


def in_arrival_order(table: pa.Table) -> pa.Table:
    """The rows in order of arrival."""
    arrival = table.column("_arrival").to_numpy()
    if len(arrival) < 2 or (arrival[1:] > arrival[:-1]).all():
        return table
    ties = [table.column(name).to_numpy() for name in _TIES]
    if _is_sorted(arrival, *ties):
        return table
    order = stable_order(arrival)
    if not _is_sorted(*(column[order] for column in (arrival, *ties))):
        order = np.lexsort((*reversed(ties), arrival))
    return table.take(pa.array(order))


def is_in_order(table: pa.Table) -> bool:
    """Whether the rows are in order of arrival already."""
    return _is_sorted(*(table.column(name).to_numpy() for name in PLACE))


def come_before(table: pa.Table, place: Sequence[int], *, or_are: bool = False) -> NDArray[np.bool_]:
    """Which rows come before a place in the order of arrival.

    place: the values of PLACE
    or_are: the row at that place, too
    """
    is_before, is_same = np.zeros(len(table), np.bool_), np.ones(len(table), np.bool_)
    for name, limit in zip(PLACE, place, strict=True):
        own = table.column(name).to_numpy()
        is_before |= is_same & (own < limit)
        is_same &= own == limit
    return is_before | is_same if or_are else is_before


def _is_sorted(*columns: NDArray[np.int64]) -> bool:
    """Whether the rows are in ascending order by these columns, the first one most significant."""
    undecided = np.ones(len(columns[0]) - 1, np.bool_)
    for column in columns:
        before, after = column[:-1], column[1:]
        if (undecided & (before > after)).any():
            return False
        undecided &= before == after
    return True
