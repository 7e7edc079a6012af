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
from runtime.columns.taking import taken_rows
from runtime.results.match_order import match_order
from runtime.results.matched import Matched, taken

Integers = NDArray[np.int64]


def matches_in_order(
    released: Released,
    latest: Integers,
    rank: Integers,
    members: Integers,
    definitive: Integers,
    records: Integers,
    times: Integers,
    source_times: Integers,
    arrivals: Integers,
    keys: Sequence[pa.Array],
) -> tuple[Matched, Integers]:
    """Matches in order, and by match its number in the order in which it was found.

    latest, members: positions, as in `runtime.matching.interface.Found`
    rank: by match, orders those of one step and key
    definitive: by match, µs
    records: by new record, its number in the call
    times, source_times, arrivals: by row, µs
    keys: by row, the key columns
    """
    columns = released.time, released.emitted, released.record, released.order
    time, emitted, record, latest_rows = (taken_rows(column, latest) for column in columns)
    order = match_order(emitted, record, time, rank, lambda matches: taken(keys, latest_rows[matches].astype(np.int64)))
    last = taken_rows(latest_rows, order).astype(np.int64)
    rows = _rows_of(released, members, order, latest, last)
    times_of_members = _of_rows(times, rows)
    # Mostly an event happens when its source says.
    is_told = np.array_equal(times, source_times)
    matched = Matched(
        latest=last,
        members=rows.T,
        time=taken_rows(time, order),
        definitive=taken_rows(definitive, order),
        emitted=taken_rows(emitted, order),
        waited=taken_rows(taken_rows(released.waited, latest), order),
        step=call_numbers(taken_rows(record, order), records),
        rank=taken_rows(rank, order),
        times=times_of_members,
        source_times=times_of_members if is_told else _of_rows(source_times, rows),
        arrivals=_of_rows(arrivals, rows),
        reasons=np.empty((len(order), 0), np.int8),
    )
    return matched, order


def _rows_of(released: Released, members: Integers, order: Integers, latest: Integers, last: Integers) -> Integers:
    """By (term, match) the rows of the members, in order; -1 = unset.

    last: in order, the rows of the latest events, which mostly are the members of the last term
    """
    rows = np.empty((members.shape[1], len(order)), np.int64)
    for term, positions in enumerate(members.T):
        if np.array_equal(positions, latest):
            rows[term] = last
            continue
        is_unset = len(positions) > 0 and positions.min() < 0
        found = released.order.take(positions) if is_unset else taken_rows(released.order, positions)
        if is_unset:
            found[positions < 0] = -1
        rows[term] = taken_rows(found, order)
    return rows


def _of_rows(values: Integers, rows: Integers) -> Integers:
    """By (match, term) the values of rows; those of a term are neighbours in memory."""
    if rows.size and rows.min() < 0:
        return np.take(values, rows).T
    return taken_rows(values, rows.reshape(-1)).reshape(rows.shape).T


def call_numbers(record: Integers, records: Integers) -> Integers:
    """Numbers of new records as numbers of the call's records; timers and AT_THE_END stay.

    records: by new record, its number in the call; ascending
    """
    if not len(records) or int(records[-1]) == len(records) - 1:
        return record
    is_record = (record >= 0) & (record < AT_THE_END)
    return np.where(is_record, records[np.where(is_record, record, 0)], record)
