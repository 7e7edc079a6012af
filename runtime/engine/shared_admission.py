"""Select, admit, store and evict the records of a call, once for all queries of equal inputs.

Queries share an admission if they make the same of every record (`QueryParts.admission`) and have
the same state: those that were there from the beginning, or whose states have become equal. What
the patterns look back on may differ, so what any of them needs is kept. A query that keeps
something of its own beside events has an admission of its own: waits, skipped events, blocks that
were cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.admission.arrays import Released, Timers
from runtime.admission.per_key import Admitted, admit
from runtime.admission.rules import Outcome, after_admission
from runtime.arrow_types import has_column, one_chunk
from runtime.columns.keys import unique_numbers
from runtime.engine.call_rows import (
    CallRecords,
    CallRows,
    Wanted,
    assemble,
    cut_off_blocks,
    wanted_records,
    with_ends,
)
from runtime.engine.eviction import Carry, evict
from runtime.engine.moved_records import moved_records
from runtime.engine.query_parts import QueryParts
from runtime.engine.query_state import QueryState
from runtime.engine.running_numbers import with_numbers
from runtime.engine.skipped_events import first_free
from runtime.matching.interface import Ordered
from runtime.matching.windows import WindowColumns, superseded_by
from runtime.number_arrays import Integers
from runtime.results.ledger import Account, count_pending, count_records


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """The records of a call, admitted.

    carry: for eviction, as long as no query changes it
    events: what matchers read
    has_new: whether any event is released in this call
    has_null: whether selection refused any record
    account: changes of the ledger, for a query without a name
    """

    wanted: Wanted
    carry: Carry
    events: Ordered
    has_new: bool
    has_null: bool
    account: Account


class SharedAdmission:
    """Admission and state of queries whose inputs and states are equal; at least one."""

    def __init__(self, parts: Sequence[QueryParts]) -> None:
        first = parts[0]
        self.parts = replace(first, windows=_wide_enough([item.windows for item in parts])) if len(parts) > 1 else first
        self.state = QueryState(self.parts)

    def admitted(self, records: CallRecords, *, everything: bool = False) -> AdmittedCall:
        """Admits the records of a call. `evict` has to follow.

        everything: loads cold keys too
        """
        parts, state = self.parts, self.state
        wanted = wanted_records(parts, records)
        state.keys.load(wanted.new, records.limit, everything=everything)
        was_pending = _pending_sources(state.keys.events)
        rows = assemble(parts, state, records, wanted)
        admitted = self.released(rows, records.limit)
        superseded = self._superseded(rows, admitted.released)
        free = first_free(rows.table, admitted.released)
        table = with_ends(rows.table, parts.plan, rows.rows, admitted.released)
        table, numbers = with_numbers(table, admitted.released)
        carry = Carry(rows.with_table(table), admitted, superseded, cut_off_blocks(state, rows), free)
        events = self._ordered(carry, numbers)
        has_new = bool((events.start[1:] > events.fresh).any())
        account = self._account(records, wanted, carry, was_pending)
        return AdmittedCall(wanted, carry, events, has_new, _has_null(wanted.selection.outcome), account)

    def released(self, rows: CallRows, limit: int, timers: Timers | None = None) -> Admitted:
        """What is admitted and released up to a moment; parameters as of `admit`."""
        judged = rows.clocks.verdicts.refused, rows.clocks.verdicts.bound
        policies = self.parts.policies
        return admit(rows.rows, rows.punctuation, policies, rows.timelines, limit, judged, timers, rows.ready)

    def evict(self, carry: Carry, clock: int) -> int:
        """Evicts what cannot matter any more at `clock`; returns how many keys were forgotten."""
        return evict(self.parts, self.state, carry, clock)

    def parted(self, parts: QueryParts) -> SharedAdmission:
        """An admission with the same state, for one of the queries alone."""
        other = SharedAdmission([parts])
        other.state = deepcopy(self.state, {id(self.parts): parts})
        return other

    def _superseded(self, rows: CallRows, released: Released) -> Integers:
        if not self.parts.windows.is_unique.any():
            return np.empty(0, np.int64)
        value, count = unique_numbers(self.parts.plan, self.parts.query, rows.table, rows.rows.input)
        return superseded_by(released.start, released.order, value, count)

    def _ordered(self, carry: Carry, numbers: Integers) -> Ordered:
        """The matcher's input: released events, then members of pending matches.

        numbers: by position of released events, their running numbers; empty if nothing asks
        """
        table, released, times = carry.rows.table, carry.admitted.released, carry.admitted.times
        row, input_of, time = released.order, released.input, released.time
        members = len(self.state.waits)
        if members:
            behind = np.arange(len(table) - members, len(table), dtype=np.int32)
            row = np.concatenate([row, behind])
            input_of = np.concatenate([input_of, carry.rows.rows.input[behind]])
            time = np.concatenate([time, times[behind]])
        return Ordered(
            start=released.start,
            fresh=released.fresh,
            row=row,
            input=input_of,
            time=time,
            superseded=carry.superseded,
            free=carry.free,
            table=table.append_column("_time", pa.array(times)),
            number=numbers,
        )

    def _account(self, records: CallRecords, wanted: Wanted, carry: Carry, was_pending: pa.Table) -> Account:
        """The changes of the ledger; `was_pending`: sources of events that were pending before."""
        verdict, adjusted = carry.admitted.released.verdict, carry.rows.clocks.verdicts.adjusted
        outcome = after_admission(wanted.selection.outcome, wanted.records, verdict, adjusted)
        account = count_records("", one_chunk(records.table.column("_source")), outcome)
        is_pending = _counted(carry.rows.table).take(pa.array(carry.admitted.released.pending))
        account.update(moved_records(self.parts.query, records, wanted, verdict, adjusted))
        account.update(count_pending("", was_pending, -1))
        account.update(count_pending("", is_pending, 1))
        return account


def _has_null(outcome: NDArray[np.int8]) -> bool:
    return bool((outcome == Outcome.NULL_KEY).any() or (outcome == Outcome.NULL_TIME).any())


def renamed(account: Account, query: str) -> Account:
    """An account of a query without a name as that of a query."""
    return Account({(query, source, word): count for (_, source, word), count in account.items()})


def _wide_enough(windows: Sequence[WindowColumns]) -> WindowColumns:
    """Windows of the same inputs, so wide that they keep what any of the queries looks back on."""
    return windows[0]._replace(
        reach=np.maximum.reduce([item.reach for item in windows]),
        is_used_later=np.logical_or.reduce([item.is_used_later for item in windows]),
        is_looked_for=np.logical_or.reduce([item.is_looked_for for item in windows]),
    )


def _counted(table: pa.Table) -> pa.Table:
    """The columns that pending events are counted by."""
    return table.select([name for name in ("_source", "_adjusted") if has_column(table, name)])


def _pending_sources(events: pa.Table) -> pa.Table:
    return _counted(events).filter(events.column("_pending"))
