"""Sort records by arrival: by (arrival, source, partition, offset).

A table that is sorted already, the usual case, costs one scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.arrow_types import one_chunk
from runtime.columns.sorting import stable_order


def in_arrival_order(table: pa.Table, first_sources: Sequence[str] = ()) -> pa.Table:
    """The rows in order of arrival.

    first_sources: the order of sources for rows with equal arrival; all others follow by name
    """
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
    """Whether the rows are in ascending order by these columns, the first one most significant."""
    undecided = np.ones(len(columns[0]) - 1, np.bool_)
    for column in columns:
        before, after = column[:-1], column[1:]
        if (undecided & (before > after)).any():
            return False
        undecided &= before == after
    return True
