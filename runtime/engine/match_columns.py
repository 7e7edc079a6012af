"""The columns of a call's matches, put into the order of `runtime.results.match_order`.

Matches are found key by key. What is known by position is read in that order, in which positions
ascend. What is known by row is read in the order in which matches are shown, in which rows nearly
ascend. So most reads find what they look for in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.admission.arrays import Released
from runtime.columns.arrivals import AT_THE_END
from runtime.results.match_order import match_order
from runtime.results.matched import Matched, taken

Integers = NDArray[np.int64]


def matches_in_order(
    released: Released,
    latest: Integers,
    members: Integers,
    definitive: Integers,
    records: Integers,
    times: Integers,
    source_times: Integers,
    arrivals: Integers,
    keys: Sequence[pa.Array],
    numbers: Integers,
) -> tuple[Matched, Integers]:
    """Matches in order, and by match its number in the order in which it was found.

    latest, members: positions, as in `runtime.matching.interface.Found`
    definitive: by match, µs
    records: by new record, its number in the call
    times, source_times, arrivals: by row, µs
    keys: by row, the key columns
    numbers: by row, its number among all records; empty = the row's own
    """
    time, emitted, record = (column.take(latest) for column in (released.time, released.emitted, released.record))
    latest_rows = released.order.take(latest)
    order = match_order(
        emitted, record, time, latest, lambda matches: taken(keys, latest_rows[matches].astype(np.int64))
    )
    rows = _rows_of(released, members, order)
    is_last = len(rows) > 0 and np.array_equal(members[:, -1], latest)
    last: Integers = rows[-1] if is_last else latest_rows.take(order).astype(np.int64)
    numbered = _numbered(rows, numbers) if len(numbers) else rows
    matched = Matched(
        latest=numbers.take(last) if len(numbers) else last,
        members=numbered.T,
        time=time.take(order),
        definitive=definitive.take(order),
        emitted=emitted.take(order),
        waited=released.waited.take(latest).take(order),
        step=call_numbers(record.take(order), records),
        rank=latest.take(order),
        times=_of_rows(times, rows),
        source_times=_of_rows(source_times, rows),
        arrivals=_of_rows(arrivals, rows),
        reasons=np.empty((len(order), 0), np.int8),
    )
    return matched, order


def _rows_of(released: Released, members: Integers, order: Integers) -> Integers:
    """By (term, match) the rows of the members, in order; -1 = unset."""
    rows = np.empty((members.shape[1], len(order)), np.int64)
    for term, positions in enumerate(members.T):
        found = released.order.take(positions)
        if len(positions) and positions.min() < 0:
            found[positions < 0] = -1
        rows[term] = found.take(order)
    return rows


def _numbered(rows: Integers, numbers: Integers) -> Integers:
    """The same with the numbers that rows have among all records."""
    found = np.take(numbers, rows)
    if rows.size and rows.min() < 0:
        found[rows < 0] = -1
    return found


def _of_rows(values: Integers, rows: Integers) -> Integers:
    """By (match, term) the values of rows; those of a term are neighbours in memory."""
    taken_values: Integers = np.take(values, rows)
    return taken_values.T


def call_numbers(record: Integers, records: Integers) -> Integers:
    """Numbers of new records as numbers of the call's records; timers and AT_THE_END stay.

    records: by new record, its number in the call; ascending
    """
    if not len(records) or int(records[-1]) == len(records) - 1:
        return record
    is_record = (record >= 0) & (record < AT_THE_END)
    return np.where(is_record, records[np.where(is_record, record, 0)], record)
