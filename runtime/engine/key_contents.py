"""What is kept of one key of a query: shown to people, or removed because they ask for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from runtime.admission import ADMITTED, Outcome
from runtime.arrow_types import has_column, one_chunk
from runtime.columns.keys import is_of_key
from runtime.engine.event_marks import EVENT
from runtime.engine.query_state import QueryParts, QueryState
from runtime.results.ledger import FORGOTTEN_EVENTS, FORGOTTEN_WAITS, Account, count_pending

Key = Sequence[pa.Scalar]


@dataclass(frozen=True, slots=True)
class ClauseValues:
    """The values that a clause stores of a key.

    clause: for people
    names: what the values are, as they are written
    times: the values, each with its latest time, µs
    length: how long after that they matter, µs
    """

    clause: str
    names: Sequence[str]
    times: Sequence[tuple[tuple[object, ...], int]]
    length: int


@dataclass(frozen=True, slots=True)
class KeyContents:
    """What is kept of a key.

    events: with the columns of `runtime.engine.query_state`, by time
    waits: the members of pending matches, as `runtime.matching.trailing_waits` has them
    bounds: number of rows beside its events: watermarks and the like
    clauses: the values that clauses store
    """

    events: pa.Table
    waits: pa.Table
    bounds: int
    clauses: Sequence[ClauseValues] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return not (len(self.events) or len(self.waits) or self.bounds or self.values)

    @property
    def values(self) -> int:
        """How many values are stored."""
        return sum(len(item.times) for item in self.clauses)

    @property
    def pending(self) -> int:
        """How many of the events are pending."""
        return int(np.count_nonzero(_is_pending(self.events)))

    @property
    def wait_count(self) -> int:
        """How many matches wait."""
        return len(np.unique(self.waits.column("_wait").to_numpy()))


def query_sizes(state: QueryState) -> dict[str, int]:
    """How much is kept of all keys, which are loaded."""
    pending = int(np.count_nonzero(_is_pending(state.keys.events)))
    counts = {"keys": state.keys.keys(), "events": len(state.keys), "pending": pending}
    counts |= {"waits": state.waits.outlook()[0]}
    values = state.values()
    return counts | ({"values": sum(map(len, values.values()))} if values else {})


def key_contents(parts: QueryParts, state: QueryState, key: Key) -> KeyContents:
    """What is kept of a key; all keys are loaded."""
    events, waits = _split(parts, state, key)
    chosen = state.keys.events.filter(pa.array(events)).sort_by("_time")
    bounds = int(np.count_nonzero(_of_bounds(state.keys.bounds, key)))
    found = [ClauseValues(item.clause, item.names, item.of_key(key), item.length) for item in state.values().values()]
    clauses = [item for item in found if item.times]
    return KeyContents(chosen, state.waits.members.filter(pa.array(waits)), bounds, clauses)


def forget_key(parts: QueryParts, state: QueryState, key: Key) -> tuple[KeyContents, Account]:
    """Remove all that is kept of a key; gives what it was, and the changes of the ledger.

    A later record of the key is as the first of a new one. All keys are loaded.
    """
    found = key_contents(parts, state, key)
    if found.is_empty:
        state.clocks.forget(key)
        return found, Counter()
    events, waits = _split(parts, state, key)
    bounds = state.keys.bounds.filter(pa.array(~_of_bounds(state.keys.bounds, key)))
    state.keys.restore(state.keys.events.filter(pa.array(~events)).combine_chunks(), bounds.combine_chunks())
    state.waits.restore(renumbered(state.waits.members.filter(pa.array(~waits))))
    for item in state.values().values():
        item.forget(key)
    state.clocks.forget(key)
    account = _account(parts.query.title, found)
    if parts.query.shared_types:
        pending = found.events.filter(pa.array(_is_pending(found.events)))
        outcomes = np.full(len(pending), Outcome.FORGOTTEN, np.int8)
        changes = state.roles.resolve(pending.column(EVENT.name).to_numpy(), parts.inputs_of(pending), outcomes)
        account = Counter({entry: count for entry, count in account.items() if entry[2] in _BESIDE})
        account.update({(parts.query.title, source, word): count for (_, source, word), count in changes.items()})
    return found, account


_BESIDE = (FORGOTTEN_EVENTS, FORGOTTEN_WAITS)


def _split(parts: QueryParts, state: QueryState, key: Key) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which events, and which members of pending matches, are of a key."""
    tables = state.keys.events, state.waits.members
    first, second = (is_of_key(parts.keys_of(table), key) if len(table) else np.empty(0, np.bool_) for table in tables)
    return first, second


def _of_bounds(bounds: pa.Table, key: Key) -> NDArray[np.bool_]:
    columns = [one_chunk(bounds.column(f"key{place}")) for place in range(len(key))]
    return is_of_key(columns, key) if len(bounds) else np.empty(0, np.bool_)


def _is_pending(events: pa.Table) -> NDArray[np.bool_]:
    return events.column("_pending").to_numpy().astype(np.bool_)


def renumbered(members: pa.Table) -> pa.Table:
    """The members of waits, whose numbers are those from 0 on, in their order."""
    position = members.schema.get_field_index("_wait")
    numbers = np.unique(members.column("_wait").to_numpy(), return_inverse=True)[1].astype(np.int64)
    return members.set_column(position, members.schema.field(position), pa.array(numbers)).combine_chunks()


def _account(title: str, found: KeyContents) -> Account:
    """Pending events were forgotten; the others have been used, and are counted beside the sum."""
    is_pending = _is_pending(found.events)
    names = [name for name in ("_source", "_adjusted") if has_column(found.events, name)]
    pending = found.events.filter(pa.array(is_pending)).select(names)
    account = count_pending(title, pending, -1)
    admitted = {outcome.word for outcome in ADMITTED}
    for (query, source, word), count in list(account.items()):
        if word in admitted:  # they are not used any more
            account[query, source, Outcome.FORGOTTEN.word] += count
            account[query, source, word] = 0
    for source in found.events.filter(pa.array(~is_pending)).column("_source").to_pylist():
        account[title, source, FORGOTTEN_EVENTS] += 1
    if found.wait_count:
        account[title, "", FORGOTTEN_WAITS] += found.wait_count
    return account
