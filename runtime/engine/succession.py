"""The runners of an engine's queries: at its start, from saved state, and when its plan changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from querylang.dataclass import dataclass
from runtime.admission import Outcome
from runtime.arrow_types import one_chunk
from runtime.engine.query_runner import QueryRunner
from runtime.engine.query_state import CUT_OFF, QueryParts
from runtime.engine.shared_admission import SharedAdmission, renamed
from runtime.engine.snapshot import ALIKE
from runtime.results.ledger import ENDED_WAITS, UNDEPLOYED, Account


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a query as plain data: what `QueryState.snapshot` gives."""

    header: Mapping[str, Any]
    tables: dict[str, pa.Table]

    def is_like(self, other: Saved) -> bool:
        """Whether both have the same content."""
        if self is other:
            return True
        own, others = self.tables, other.tables
        return (
            self.header == other.header
            and own.keys() == others.keys()
            and all(map(_are_equal, own.values(), others.values()))
        )

    @property
    def is_private(self) -> bool:
        """Whether it has more than what admission stores: blocks that were cut off."""
        return bool(pc.any(pc.equal(self.tables["bounds"].column("input"), CUT_OFF)).as_py())


NOTHING_SAVED: Mapping[str, Saved] = MappingProxyType({})


def saved_states(header: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> dict[str, Saved]:
    """The states of queries in a snapshot, by title; LookupError if one is missing."""
    own: dict[str, dict[str, pa.Table]] = {}
    for key, table in tables.items():
        title, _, name = key.rpartition("/")
        own.setdefault(title, {})[name] = table
    saved = {title: Saved(part, own.get(title, {})) for title, part in header["queries"].items()}
    return saved | {title: saved[first] for title, first in header.get(ALIKE, {}).items()}


def runners_of(parts: Sequence[QueryParts], saved: Mapping[str, Saved], *, gathers_later: bool) -> list[QueryRunner]:
    """Runners of queries, in their order; those that make the same of all records share admission.

    saved: by title what a query begins with; without it with nothing
    """
    members: dict[tuple[str, str], list[tuple[Saved | None, list[QueryParts]]]] = {}
    private: dict[int, bool] = {}  # queries with equal states have the same object
    for item in parts:
        own = saved.get(item.query.title)
        if own is not None and id(own) not in private:
            private[id(own)] = own.is_private
        is_private = own is not None and private[id(own)]
        groups = members.setdefault((item.admission, item.query.title if is_private else ""), [])
        for state, some in groups:
            if own is state or (own is not None and state is not None and own.is_like(state)):
                some.append(item)
                break
        else:
            groups.append((own, [item]))
    admissions: dict[str, SharedAdmission] = {}
    for groups in members.values():
        for state, some in groups:
            admission = SharedAdmission(some)
            if state is not None:
                admission.state.restore(state.header, state.tables)
            admissions |= dict.fromkeys((item.query.title for item in some), admission)
    return [QueryRunner(item, admissions[item.query.title], gathers_later=gathers_later) for item in parts]


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


def _are_equal(one: pa.Table, other: pa.Table) -> bool:
    return len(one) == len(other) and one.equals(other)


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
