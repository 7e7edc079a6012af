"""What is stored with a key's events: running numbers, and what `after match skip` has passed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan
from runtime.admission import Released
from runtime.arrow_types import has_column
from runtime.compiling.compiled import borrowing
from runtime.number_arrays import Integers

# The running numbers of a key's events, for patterns that ask what directly follows an event. Only
# differences matter: where nothing of a key is stored they begin anew. So the newest event of a key
# is kept as long as anything of the key is.

_NONE = np.empty(0, np.int64)

NUMBER = pa.field("_number", pa.int64())
"""The column of an event's running number; null until it is released."""


EVENT = pa.field("_event", pa.int64())
"""The column that tells events apart where a type is several inputs: rows of a key that have the
same number are one event."""


def events_of(table: pa.Table, order: NDArray[np.int32]) -> Integers:
    """By position, the number of its event; empty where no type is several inputs."""
    if not has_column(table, EVENT.name):
        return _NONE
    return table.column(EVENT.name).to_numpy()[order]


def are_numbered(query: QueryPlan) -> bool:
    """Whether the query asks for running numbers."""
    return any(item.follows for state in query.automaton.states for item in state.transitions)


def with_numbers(table: pa.Table, released: Released) -> tuple[pa.Table, Integers]:
    """The rows with the numbers of those that are released, and these numbers by position.

    Without the column there are no numbers.
    """
    if not has_column(table, NUMBER.name):
        return table, np.empty(0, np.int64)
    known = table.column(NUMBER.name).combine_chunks().fill_null(-1).to_numpy().copy()
    numbers = np.empty(len(released.order), np.int64)
    event = events_of(table, released.order)
    number_events(released.start, released.fresh, released.order, event, known, numbers)
    column = pa.array(known, mask=known < 0)
    return table.set_column(table.schema.get_field_index(NUMBER.name), NUMBER, column), numbers


@borrowing
def number_events(
    start: Integers, fresh: Integers, order: NDArray[np.int32], event: Integers, known: Integers, numbers: Integers
) -> None:
    """Sets the numbers of the new events in `known`, which is by row, and all in `numbers`.

    event: by position; those that are equal have one number. Empty if all are different
    """
    for key in range(len(fresh)):
        number = -1
        for position in range(start[key], start[key + 1]):
            row = order[position]
            if position < fresh[key]:
                number = known[row]
            else:
                is_same = len(event) > 0 and position > start[key] and event[position] == event[position - 1]
                number += not is_same
                known[row] = number
            numbers[position] = number


def with_newest(kept: NDArray[np.int32], released: Released) -> NDArray[np.int32]:
    """The rows to keep, with the newest of each key of which any is kept; by key and in order."""
    rows = np.empty(len(kept) + len(released.fresh), np.int32)
    return rows[: add_newest(released.start, released.order, kept, rows)]


@borrowing
def add_newest(start: Integers, order: NDArray[np.int32], kept: NDArray[np.int32], rows: NDArray[np.int32]) -> int:
    """Fills in the rows, and returns how many there are; `kept` is by key and in order."""
    taken = count = 0
    for key in range(len(start) - 1):
        before = taken
        for position in range(start[key], start[key + 1]):
            is_kept = taken < len(kept) and kept[taken] == order[position]
            if is_kept or (taken > before and position == start[key + 1] - 1):
                rows[count] = order[position]
                count += 1
            taken += is_kept
    return count


# Which events of a key `after match skip` has passed over: no later match may bind them. The events
# are those before some place in the key's total order. The place itself is not stored: stored
# events say whether they are before it, and events that are released later are behind it.


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
