"""What is stored with events: running numbers, what `after match skip` has passed, and what has
become of records that are several events.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan
from runtime.admission import ADMITTED, Outcome, Released, of_layers
from runtime.column_types import Integers, has_column, one_chunk
from runtime.compiling.compiled import borrowing
from runtime.engine.snapshot import fitted, integer, refuse_nulls, refuse_outside
from runtime.results.ledger import ROLE_DISCARDED, UNDEPLOYED, Account, count_records

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


# Records that are events of several inputs of a query: each is one record in its ledger. Such a
# record is a row for each input whose filter it passes, with that input's key. The ledger counts it
# once: as used if any row is used, else as pending, else with the outcome of the first written
# input that refused it for more than its filter. So what is known of a record is stored as long as
# one of its rows is pending.

_TIMED = (Outcome.EARLY, Outcome.LATE, Outcome.OUT_OF_ORDER)
"""Refusals for a record's time: each input has its own, and each is a row of discarded records."""

_IS_TIMED = np.isin(np.arange(len(Outcome) + 1), _TIMED)
"""By outcome, whether it is one of these."""

_NOT_REFUSED = Outcome.FILTERED
"""In place of a refusal: no input has refused the record for more than its filter."""

OPEN_SCHEMA = pa.schema(
    [
        ("event", pa.int64()),
        ("source", pa.string()),
        ("pending", pa.int64()),
        ("is_used", pa.bool_()),
        ("admitted", pa.int8()),
        ("refused", pa.int8()),
        ("refused_by", pa.int64()),
    ]
)
"""A row per record of which a row is pending, by the number of the event.

pending: how many of its rows are
admitted: its outcome if it is used
refused, refused_by: the refusal of the first written input that has refused it, and that input
"""


class RoleRecords:
    """What is stored of the records of one query.

    first: the number that the first record of the next call gets as an event
    """

    def __init__(self) -> None:
        self.first = 0
        self._open = OPEN_SCHEMA.empty_table()

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, outcomes: NDArray[np.int8], inputs: NDArray[Any], sources: pa.DictionaryArray, adjusted: NDArray[np.int8]
    ) -> Account:
        """Adds the records of a call, after `resolve`; the changes of the ledger.

        outcomes: by layer and record, as of now; PENDING = its row is
        inputs: by layer and record, the input; -1 = none
        sources: by record
        adjusted: by record, the reason why its time was; 0 = it was not
        """
        final = of_layers(outcomes)
        account = count_records("", sources, final)
        timed = np.flatnonzero(_IS_TIMED.take(outcomes).any(axis=0))
        extra = _IS_TIMED[outcomes[:, timed]].sum(axis=0) - _IS_TIMED[final[timed]]
        names = sources.dictionary.to_pylist()
        for record, count in zip(timed.tolist(), extra.tolist(), strict=True):
            if count:
                account["", names[sources.indices[record].as_py()], ROLE_DISCARDED] += count
        is_pending = outcomes == Outcome.PENDING
        records = np.flatnonzero(is_pending.any(axis=0))
        if len(records):
            refused = of_layers(np.where(is_pending | np.isin(outcomes, ADMITTED), np.int8(_NOT_REFUSED), outcomes))[
                records
            ]
            layer = (outcomes[:, records] == refused).argmax(axis=0)
            new = pa.table(
                [
                    pa.array(records + self.first),
                    sources.take(pa.array(records)).dictionary_decode(),
                    pa.array(is_pending[:, records].sum(axis=0)),
                    pa.array(np.isin(outcomes[:, records], ADMITTED).any(axis=0)),
                    pa.array(np.array(ADMITTED, np.int8)[adjusted[records]]),
                    pa.array(refused),
                    pa.array(inputs[layer, records].astype(np.int64)),
                ],
                schema=OPEN_SCHEMA,
            )
            self._open = pa.concat_tables([self._open, new]).combine_chunks()
        self.first += outcomes.shape[1]
        return account

    def resolve(self, events: Integers, inputs: NDArray[Any], outcomes: NDArray[np.int8]) -> Account:
        """Rows that are pending no more; the changes of the ledger, for a query without a name.

        events: by row the number of its event
        inputs: by row
        outcomes: by row, what became of it: USED, or a refusal
        """
        account: Account = Counter()
        if not len(events):
            return account
        stored = self._open.column("event").to_numpy()
        place = np.searchsorted(stored, events)
        assert (stored[place] == events).all(), "each pending row has a record"
        columns = [one_chunk(self._open.column(name)) for name in OPEN_SCHEMA.names]
        pending, is_used, refused, by = (columns[at].to_numpy(zero_copy_only=False).copy() for at in (2, 3, 5, 6))
        before = self._now(pending, is_used, refused)
        np.subtract.at(pending, place, 1)
        is_used[place[outcomes == Outcome.USED]] = True
        for row in np.flatnonzero(outcomes != Outcome.USED).tolist():
            at = place[row]
            if refused[at] == _NOT_REFUSED or inputs[row] < by[at]:
                refused[at], by[at] = outcomes[row], inputs[row]
        after = self._now(pending, is_used, refused)
        sources = columns[1]
        for at in np.flatnonzero(before != after).tolist():
            source = sources[at].as_py()
            account["", source, Outcome(int(before[at])).word] -= 1
            account["", source, Outcome(int(after[at])).word] += 1
            if after[at] in _TIMED:
                account["", source, ROLE_DISCARDED] -= 1
        left = pa.table(
            [*columns[:2], pa.array(pending), pa.array(is_used), columns[4], pa.array(refused), pa.array(by)],
            schema=OPEN_SCHEMA,
        )
        self._open = left.filter(pa.array(pending > 0)).combine_chunks()
        return account

    def _now(self, pending: Integers, is_used: NDArray[np.bool_], refused: NDArray[np.int8]) -> NDArray[np.int8]:
        """The outcome of each record in the ledger."""
        admitted = one_chunk(self._open.column("admitted")).to_numpy()
        left = np.where(pending > 0, np.int8(Outcome.PENDING), refused)
        return np.where(is_used, admitted, left).astype(np.int8)

    def ended(self) -> Account:
        """The changes of the ledger when the query ends."""
        account: Account = Counter()
        for row in self._open.to_pylist():
            if not row["is_used"]:
                account["", row["source"], Outcome.PENDING.word] -= 1
                account["", row["source"], UNDEPLOYED] += 1
        return account

    def table(self) -> pa.Table:
        """All records of which a row is pending, for `restore`."""
        return self._open

    def restore(self, first: object, table: pa.Table) -> None:
        """Replaces all by a saved state; raises ValueError if it does not fit."""
        found = fitted(table, OPEN_SCHEMA, "records").combine_chunks().sort_by("event")
        refuse_nulls(found, OPEN_SCHEMA.names, "records")
        for name in ("admitted", "refused"):
            refuse_outside(found, name, 0, max(Outcome), "records")
        self.first, self._open = integer(first), found.combine_chunks()
