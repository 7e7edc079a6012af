"""`at most n per d by ...`: which matches are given, and how many were suppressed before each.

Of matches with equal values, in the same key, those are given before which fewer than n were given
in the time d. The times of the last n are stored by value, and how many matches were suppressed
since the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.expression import type_of
from querylang.plan.model import Plan, QueryPlan, known
from querylang.plan.text import Names, expression_text
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.keys import group_rows, key_types
from runtime.compiling.compiled import borrowing
from runtime.engine.stored_values import Numbered, StoredValues
from runtime.number_arrays import Integers

_OWN = (pa.field("_times", pa.list_(pa.int64())), pa.field("_suppressed", pa.int64()))
"""What is stored beside the time of the last match that was given, µs.

_times: of the last ones, at most n, oldest first
_suppressed: how many matches were suppressed since the last one
"""


def given_times(plan: Plan, query: QueryPlan) -> StoredValues | None:
    """Room for the times of matches that are given; None = all are."""
    if query.at_most is None:
        return None
    names = Names.of(query)
    return StoredValues(
        "`at most`",
        key_types(plan, query),
        [(expression_text(value, names), arrow_type(type_of(value), plan)) for value in query.at_most.values],
        _OWN,
        known(query.at_most.duration),
    )


def limited(
    query: QueryPlan, stored: StoredValues, compared: Sequence[pa.Array], time: Integers
) -> tuple[NDArray[np.bool_], Integers]:
    """By match, whether it is given, and how many were suppressed since the one before.

    compared: the key and the values, by match in the order of matches
    time: by match, µs
    """
    assert query.at_most is not None, "there is a limit"
    numbered = stored.take(compared, len(time))
    start, rows = group_rows(numbered.of_rows, numbered.count)
    begin, end, times, since = _known(numbered)
    kept_end, kept = np.zeros(numbered.count, np.int64), np.empty(len(times) + len(time), np.int64)
    is_given, suppressed = np.zeros(len(time), np.bool_), np.zeros(len(time), np.int64)
    count, length = known(query.at_most.count), known(query.at_most.duration)
    give(start, rows, time, count, length, begin, end, times, since, kept_end, kept, is_given, suppressed)
    if numbered.count:
        offsets = np.concatenate([[0], kept_end]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(kept[: offsets[-1]]))
        stored.store(numbered, [pa.array(kept[kept_end - 1]), lists, pa.array(since)])
    return is_given, suppressed


def _known(numbered: Numbered) -> tuple[Integers, Integers, Integers, Integers]:
    """What was stored: by number the begin and end of its times; all times; by number how many were
    suppressed."""
    begin, end, since = (np.zeros(numbered.count, np.int64) for _ in range(3))
    lists = one_chunk(numbered.known.column("_times"))
    offsets = lists.offsets.to_numpy()
    begin[numbered.of_known], end[numbered.of_known] = offsets[:-1], offsets[1:]
    since[numbered.of_known] = one_chunk(numbered.known.column("_suppressed")).to_numpy()
    return begin, end, lists.values.to_numpy(), since


@borrowing
def give(
    start: Integers,
    rows: NDArray[np.int32],
    time: Integers,
    count: int,
    length: int,
    begin: Integers,
    end: Integers,
    times: Integers,
    since: Integers,
    kept_end: Integers,
    kept: Integers,
    is_given: NDArray[np.bool_],
    suppressed: Integers,
) -> None:
    """Fills `is_given`, `suppressed`, `since`, and by number the times that are kept.

    start, rows: by number, its matches in order; their times ascend
    begin, end, times: by number, the times that were stored, oldest first
    since: by number, how many matches were suppressed since the last one that was given
    kept_end, kept: as `end` and `times`; each number begins where the one before ends
    """
    out = 0
    for number in range(len(start) - 1):
        # 1. The times that were stored; those from `first` on are younger than `length`.
        bottom = first = out
        for place in range(begin[number], end[number]):
            kept[out] = times[place]
            out += 1
        # 2. Each match is given if fewer than `count` of the times are that young.
        for place in range(start[number], start[number + 1]):
            match = rows[place]
            while first < out and kept[first] <= time[match] - length:
                first += 1
            if out - first < count:
                suppressed[match] = since[number] if out > first else 0
                since[number] = 0
                is_given[match] = True
                kept[out] = time[match]
                out += 1
            else:
                since[number] += 1
        # 3. Older times than the last `count` never matter again.
        first = max(first, out - count)
        for place in range(first, out):
            kept[bottom + place - first] = kept[place]
        out = bottom + out - first
        kept_end[number] = out
