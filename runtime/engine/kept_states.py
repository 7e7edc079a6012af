"""States of queries: what is kept of one key, and what the queries of another plan take over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from runtime.admission import ADMITTED, Outcome
from runtime.column_types import has_column, one_chunk
from runtime.columns.keys import is_of_key
from runtime.engine.event_marks import EVENT
from runtime.engine.query_runner import QueryRunner
from runtime.engine.query_state import (
    QueryParts,
    QueryState,
    Saved,
    fitting_header,
    has_events_only,
    identity_of,
    saved_timers,
)
from runtime.engine.shared_admission import SharedAdmission, renamed, unopened_tables
from runtime.engine.snapshot import ALIKE
from runtime.results.ledger import ENDED_WAITS, FORGOTTEN_EVENTS, FORGOTTEN_WAITS, UNDEPLOYED, Account, count_pending

# What is kept of one key of a query: shown to people, or removed because they ask for it.

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


# The runners of an engine's queries: at its start, from saved state, and when its plan changes.


NOTHING_SAVED: Mapping[str, Saved] = MappingProxyType({})

NOTHING_KEPT: Mapping[str, QueryRunner] = MappingProxyType({})


def saved_states(header: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> dict[str, Saved]:
    """The states of queries in a snapshot, by title; LookupError if one is missing."""
    own: dict[str, dict[str, pa.Table]] = {}
    for key, table in tables.items():
        title, _, name = key.rpartition("/")
        own.setdefault(title, {})[name] = table
    saved = {title: Saved(part, own.get(title, {})) for title, part in header["queries"].items()}
    return saved | {title: saved[first] for title, first in header.get(ALIKE, {}).items()}


def runners_of(
    parts: Sequence[QueryParts],
    saved: Mapping[str, Saved],
    kept: Mapping[str, QueryRunner] = NOTHING_KEPT,
    *,
    gathers_later: bool,
) -> list[QueryRunner]:
    """Runners of queries, in their order; those that make the same of all records share admission.

    saved: by title what a query begins with; without it with nothing
    kept: by title runners that are there already (`untouched`)
    """
    members: dict[tuple[str, str], list[tuple[Saved | None, list[QueryParts]]]] = {}
    private: dict[int, bool] = {}  # queries with equal states have the same object
    titles = [item.query.title for item in parts]
    for title, item in zip(titles, parts, strict=True):
        if title in kept:
            continue
        own = saved.get(title)
        if own is not None and id(own) not in private:
            private[id(own)] = own.is_private
        is_private = own is not None and private[id(own)]
        groups = members.setdefault((item.admission, title if is_private else ""), [])
        for state, some in groups:
            if own is state or (own is not None and state is not None and own.is_like(state)):
                some.append(item)
                break
        else:
            groups.append((own, [item]))
    admissions: dict[str, SharedAdmission] = {}
    unopened = list[SharedAdmission]()
    for groups in members.values():
        for state, some in groups:
            admission = SharedAdmission(some)
            for item in some:
                admissions[item.query.title] = admission
            admission.unopened = state
            if state is not None and has_events_only(admission.parts.query):
                unopened.append(admission)
            elif state is not None:
                admission.state  # noqa: B018 # raises ValueError for one that does not fit
    _refuse_unfit(unopened)
    return [
        kept.get(title) or QueryRunner(item, admissions[title], gathers_later=gathers_later)
        for title, item in zip(titles, parts, strict=True)
    ]


def _refuse_unfit(admissions: Sequence[SharedAdmission]) -> None:
    """ValueError if one of them cannot have the state that it was given.

    What is kept of queries with equal columns, keys and inputs is looked at together: a book has
    thousands of them.
    """
    alike: dict[tuple[str, ...], list[SharedAdmission]] = {}
    for admission in admissions:
        parts, saved = admission.parts, admission.unopened
        assert saved is not None, "they were given one"
        fitting_header(parts, saved.header)
        saved_timers(saved.header)
        alike.setdefault((repr(identity_of(parts)), *parts.schema.names), []).append(admission)
    for own in alike.values():
        unopened_tables(own)


def untouched(
    old: Sequence[QueryRunner], parts: Sequence[QueryParts], heirs: Mapping[str, str]
) -> dict[str, QueryRunner]:
    """By title those runners that stay as they are where other queries follow.

    parts: of the queries that follow
    heirs: as of `handed_on`

    All queries of their admission stay, and no other one that follows could share it.
    """
    new = {item.query.title: item for item in parts}
    changed = {*heirs, *heirs.values()}
    of_admission: dict[SharedAdmission, list[QueryRunner]] = {}
    for runner in old:
        of_admission.setdefault(runner.admission, []).append(runner)

    def stays(runner: QueryRunner) -> bool:
        title = runner.query.title
        return new.get(title) is runner.parts and title not in changed

    staying = [own for own in of_admission.values() if all(map(stays, own))]
    titles = {runner.query.title for own in staying for runner in own}
    others = {item.admission for item in parts if item.query.title not in titles}
    return {runner.query.title: runner for own in staying if own[0].parts.admission not in others for runner in own}


def handed_on(
    old: Iterable[QueryRunner], titles: Iterable[str], heirs: Mapping[str, str]
) -> tuple[dict[str, Saved], Account]:
    """What queries of a plan take over from those before; the account of those that end.

    old: with all keys loaded
    titles: of the new queries
    heirs: by title the title of the query whose state it takes over; others take that of their own
        title
    """
    left = {runner.query.title: runner for runner in old}
    states: dict[SharedAdmission, Saved] = {}
    taken: dict[str, Saved] = {}
    for title in titles:
        before = left.pop(heirs.get(title, title), None)
        if before is not None:
            if before.admission not in states:
                states[before.admission] = Saved(*before.state.snapshot())
            taken[title] = states[before.admission]
    account: Account = Counter()
    for runner in left.values():
        account.update(_ended(runner))
    return taken, account


def _ended(runner: QueryRunner) -> Account:
    """Events that are not definitive yet, and waits that end without having been fulfilled."""
    name, events = runner.query.title, runner.state.keys.events
    account: Account = Counter()
    if runner.query.shared_types:
        account.update(renamed(runner.state.roles.ended(), name))
        events = events.slice(0, 0)
    pending = one_chunk(events.column("_source")).filter(one_chunk(events.column("_pending")))
    for source in pc.value_counts(pending).to_pylist():
        account[name, source["values"], Outcome.PENDING.word] -= source["counts"]
        account[name, source["values"], UNDEPLOYED] += source["counts"]
    waits, _ = runner.state.waits.outlook()
    if waits:
        account[name, "", ENDED_WAITS] += waits
    return account
