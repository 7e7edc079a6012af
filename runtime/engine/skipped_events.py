"""Which events of a key `after match skip` has passed over: no later match may bind them.

The events are those before some place in the key's total order. The place itself is not stored:
stored events say whether they are before it, and events that are released later are behind it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from runtime.admission.arrays import Released
from runtime.arrow_types import has_column
from runtime.number_arrays import Integers

_NONE = np.empty(0, np.int64)


def first_free(table: pa.Table, released: Released) -> Integers:
    """By key, the first position that may be bound; empty if the query skips no events."""
    if not has_column(table, "_skipped"):
        return _NONE
    is_skipped = table.column("_skipped").fill_null(False).to_numpy(zero_copy_only=False)
    count = np.concatenate([[0], np.cumsum(is_skipped[released.order])])
    start, end = released.start[:-1], released.start[1:]
    return start + count[end] - count[start]


def with_skipped(table: pa.Table, released: Released, free: Integers) -> pa.Table:
    """The table with what is skipped now; `free`: as in `first_free`."""
    if not has_column(table, "_skipped"):
        return table
    is_skipped = np.zeros(len(table), np.bool_)
    position = np.arange(len(released.order))
    is_skipped[released.order] = position < np.repeat(free, np.diff(released.start))
    return table.set_column(table.schema.get_field_index("_skipped"), "_skipped", pa.array(is_skipped))
