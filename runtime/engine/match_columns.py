"""The columns of a call's matches, put into the order of `runtime.results.matched`.

Matches are found key by key. What is known by position is read in that order, in which positions
ascend. What is known by row is read in the order in which matches are shown, in which rows nearly
ascend. So most reads find what they look for in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from runtime.admission.arrays import Released
from runtime.columns.arrivals import AT_THE_END
from runtime.columns.rows import taken_by_term, taken_rows
from runtime.number_arrays import Integers
from runtime.results.matched import Matched, ordered_steps, taken


def matches_in_order(
    released: Released,
    latest: Integers,
    rank: Integers,
    members: Integers,
    definitive: Integers,
    records: Integers,
    times: Integers,
    table: pa.Table,
    keys: Sequence[pa.Array],
) -> tuple[Matched, Integers]:
    """Matches in order, and by match its number in the order in which it was found.

    latest, members: positions, as in `runtime.matching.interface.Found`
    rank: by match, orders those of one step and key
    definitive: by match, µs
    records: by new record, its number in the call
    times: by row, µs
    table: the rows of the call
    keys: by row, the key columns
    """
    columns = released.time, released.emitted, released.record, released.order
    time, emitted, record, latest_rows = (taken_rows(column, latest) for column in columns)
    order, emitted, record = ordered_steps(
        emitted, record, time, rank, lambda matches: taken(keys, latest_rows[matches].astype(np.int64))
    )
    last = taken_rows(latest_rows, order).astype(np.int64)
    rows = _rows_of(released, members, order, latest, last)
    times_of_members = taken_by_term(times, rows.T)
    source_times, arrivals, offsets = (
        table.column(name).to_numpy() for name in ("_source_time", "_arrival", "_offset")
    )
    # Mostly an event happens when its source says, and is found when its time is definitive.
    is_told, is_definitive = np.array_equal(times, source_times), np.array_equal(time, definitive)
    time = taken_rows(time, order)
    matched = Matched(
        latest=last,
        members=rows.T,
        time=time,
        definitive=time if is_definitive else taken_rows(definitive, order),
        emitted=emitted,
        waited=taken_rows(taken_rows(released.waited, latest), order),
        step=call_numbers(record, records),
        rank=taken_rows(rank, order),
        times=times_of_members,
        source_times=times_of_members if is_told else taken_by_term(source_times, rows.T),
        arrivals=taken_by_term(arrivals, rows.T),
        offsets=taken_by_term(offsets, rows.T),
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


def call_numbers(record: Integers, records: Integers) -> Integers:
    """Numbers of new records as numbers of the call's records; timers and AT_THE_END stay.

    records: by new record, its number in the call; ascending
    """
    if not len(records) or int(records[-1]) == len(records) - 1:
        return record
    is_record = (record >= 0) & (record < AT_THE_END)
    return np.where(is_record, records[np.where(is_record, record, 0)], record)
