"""Count records that were moved to the clock, and those that are late only because of that."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan.model import QueryPlan, known
from runtime.admission.rules import Outcome
from runtime.arrow_types import one_chunk
from runtime.engine.call_rows import CallRecords, Wanted
from runtime.instants import NEVER
from runtime.policies.per_input import is_clocked
from runtime.results.ledger import Account

_CONCERNED = (Outcome.USED, Outcome.HEARTBEAT, Outcome.CONTROL, Outcome.NULL_KEY, Outcome.NULL_TIME)
"""What a query makes of records that it counts; the others mean the same whenever they arrive."""


def moved_records(
    query: QueryPlan,
    records: CallRecords,
    wanted: Wanted,
    refused: NDArray[np.int8],
    adjusted: NDArray[np.int8],
) -> Account:
    """The counts `before_clock` and `late_by_idle` of a query, without its name.

    refused, adjusted: by wanted record, the reason; 0 = none
    """
    account: Account = Account()
    moved = records.moves.is_moved
    if not moved.any():
        return account
    sources = one_chunk(records.table.column("_source"))
    concerned = np.isin(wanted.selection.outcome, _CONCERNED)
    _count(account, sources, np.flatnonzero(moved & concerned), "before_clock")
    late = wanted.records[(refused == Outcome.LATE) | (adjusted == Outcome.LATE)]
    late = late[records.moves.without_idle[late] < records.arrival[late]]
    limit = _late_limits(query)[wanted.selection.input[late]]
    in_time = wanted.selection.time[late] >= records.moves.without_idle[late] - limit
    _count(account, sources, late[in_time], "late_by_idle")
    return account


def _late_limits(query: QueryPlan) -> NDArray[np.int64]:
    """By input, how far a time may be behind its arrival, µs; NEVER = no limit."""
    limits = []
    for item in query.inputs:
        if is_clocked(item) and item.policy is not None:
            limits.append(NEVER if item.policy.max_delay is None else item.policy.max_delay)
        else:
            limits.append(NEVER if item.wait is None else min(known(item.wait), NEVER))
    return np.array(limits, np.int64)


def _count(account: Account, sources: pa.DictionaryArray, rows: NDArray[np.int64], word: str) -> None:
    counts = np.bincount(sources.indices.to_numpy()[rows])
    for place in np.flatnonzero(counts).tolist():
        account["", sources.dictionary[place].as_py(), word] += int(counts[place])
