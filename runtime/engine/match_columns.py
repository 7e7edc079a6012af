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
    source_times: Integers,
    arrivals: Integers,
    keys: Sequence[pa.Array],
    numbers: Integers,
) -> tuple[Matched, Integers]:
    """Matches in order, and by match its number in the order in which it was found.

    latest, members: positions, as in `runtime.matching.interface.Found`
    definitive: by match, µs
    records: by new record, its number in the call
    source_times, arrivals: by row, µs
    keys: by row, the key columns
    numbers: by row, its number among all records; empty = the row's own
    """
    time, emitted, record = (column.take(latest) for column in (released.time, released.emitted, released.record))
    latest_rows = released.order.take(latest)
    order = match_order(
        emitted, record, time, latest, lambda matches: taken(keys, latest_rows[matches].astype(np.int64))
    )
    rows = _rows_of(released, members, order)
    numbered = rows if not len(numbers) else [_numbered(term, numbers) for term in rows]
    latest_rows = latest_rows.take(order)
    matched = Matched(
        latest=numbers.take(latest_rows) if len(numbers) else latest_rows.astype(np.int64),
        members=_by_term(numbered, len(order)),
        time=time.take(order),
        definitive=definitive.take(order),
        emitted=emitted.take(order),
        waited=released.waited.take(latest).take(order),
        step=call_numbers(record.take(order), records),
        rank=latest.take(order),
        times=_by_term([released.time.take(term).take(order) for term in members.T], len(order)),
        source_times=_by_term([source_times.take(term) for term in rows], len(order)),
        arrivals=_by_term([arrivals.take(term) for term in rows], len(order)),
        reasons=np.empty((len(order), 0), np.int8),
    )
    return matched, order


def _rows_of(released: Released, members: Integers, order: Integers) -> list[Integers]:
    """By term the rows of the members, in order; -1 = unset."""
    rows = []
    for term in members.T:
        found = released.order.take(term)
        if len(term) and term.min() < 0:
            found[term < 0] = -1
        rows.append(found.take(order).astype(np.int64))
    return rows


def _numbered(rows: Integers, numbers: Integers) -> Integers:
    found = numbers.take(rows)
    if len(rows) and rows.min() < 0:
        found[rows < 0] = -1
    return found


def _by_term(columns: Sequence[Integers], count: int) -> Integers:
    """The columns as (match, term); those of a term are neighbours in memory."""
    return np.array(columns, np.int64).reshape(len(columns), count).T


def call_numbers(record: Integers, records: Integers) -> Integers:
    """Numbers of new records as numbers of the call's records; timers and AT_THE_END stay.

    records: by new record, its number in the call; ascending
    """
    if not len(records) or int(records[-1]) == len(records) - 1:
        return record
    is_record = (record >= 0) & (record < AT_THE_END)
    return np.where(is_record, records[np.where(is_record, record, 0)], record)
