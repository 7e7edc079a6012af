"""The guaranteed order of matches: by step, then key, match time, and candidate (oldest first)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runtime.columns.keys import plain_columns
from runtime.columns.rows import stable_order, taken_rows
from runtime.number_arrays import Integers

MOST_TIES = 16
"""One match in so many may share its moment with another before steps are sorted as columns."""


def match_order(
    emitted: Integers, step: Integers, time: Integers, rank: Integers, keys_of: Callable[[Integers], Sequence[pa.Array]]
) -> Integers:
    """The matches' indexes in their order; by match: as in `runtime.results.schemas.ORDER`, µs.

    keys_of: the key columns of some matches, given by index
    """
    return ordered_steps(emitted, step, time, rank, keys_of)[0]


def ordered_steps(
    emitted: Integers, step: Integers, time: Integers, rank: Integers, keys_of: Callable[[Integers], Sequence[pa.Array]]
) -> tuple[Integers, Integers, Integers]:
    """As `match_order`, and `emitted` and `step` in this order.

    Few matches share a moment with another. So keys are looked up, and compared, for those only.
    """
    order = np.arange(len(emitted))
    is_same = emitted[1:] == emitted[:-1]
    if ((emitted[1:] < emitted[:-1]) | is_same & (step[1:] < step[:-1])).any():
        order = stable_order(emitted)
        ordered = taken_rows(emitted, order)
        is_same = ordered[1:] == ordered[:-1]
        if MOST_TIES * np.count_nonzero(is_same) > len(order):  # moments are coarse
            order = stable_order(emitted, step)
            is_same &= step[order[1:]] == step[order[:-1]]
        emitted, step = ordered, taken_rows(step, order)
    else:
        is_same &= step[1:] == step[:-1]
    if not is_same.any():
        return order, emitted, step
    is_tied = np.append(is_same, False)
    is_tied[1:] |= is_same
    tied = np.flatnonzero(is_tied)
    rows = order[tied]
    columns = [emitted[tied], step[tied], *plain_columns(keys_of(rows)), time[rows], rank[rows]]
    by = pa.table({str(place): column for place, column in enumerate(columns)})
    chosen = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names])
    order[tied] = rows[chosen.to_numpy()]
    step = step.copy()
    step[tied] = columns[1][chosen.to_numpy()]
    return order, emitted, step
