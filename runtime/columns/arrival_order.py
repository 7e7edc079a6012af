"""The order in which records count as having arrived: (arrival, source, partition, offset).

Takes a table of arrivals in any order; gives the same rows in order. Tables that are in order already, the usual case, cost a scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.arrow_types import one_chunk
from runtime.columns.sorting import stable_order


def in_arrival_order(table: pa.Table, first_sources: Sequence[str] = ()) -> pa.Table:
    """The rows sorted; sources at equal moments in the order of `first_sources`, then by name."""
    arrival = table.column("_arrival").to_numpy()
    if len(arrival) < 2:
        return table
    later = arrival[1:] > arrival[:-1]
    if later.all():
        return table
    source = _source_ranks(table, first_sources)
    partition, offset = table.column("_partition").to_numpy(), table.column("_offset").to_numpy()
    if _is_sorted(arrival, source, partition, offset):
        return table
    order = stable_order(arrival)
    if not _is_sorted(arrival[order], source[order], partition[order], offset[order]):
        order = np.lexsort((offset, partition, source, arrival))
    return table.take(pa.array(order))


def _source_ranks(table: pa.Table, first_sources: Sequence[str]) -> NDArray[np.int64]:
    encoded = one_chunk(table.column("_source"))
    names = encoded.dictionary.to_pylist()
    place = {name: number for number, name in enumerate(first_sources)}
    ranked = sorted(range(len(names)), key=lambda code: (place.get(names[code], len(place)), names[code]))
    rank = np.empty(len(names), np.int64)
    rank[ranked] = np.arange(len(names))
    return rank[encoded.indices.to_numpy()]


def _is_sorted(*columns: NDArray[np.int64]) -> bool:
    """Whether rows never go down, comparing the columns from left to right."""
    undecided = np.ones(len(columns[0]) - 1, np.bool_)
    for column in columns:
        before, after = column[:-1], column[1:]
        if (undecided & (before > after)).any():
            return False
        undecided &= before == after
    return True
