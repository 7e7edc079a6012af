"""Queries that feed each other, and the buckets in which they meet.

A routed event has to reach the bucket that has the key of the query that takes it. Queries that
feed each other, directly or through others, are a *component*. Where each of them has the key of
the match in the fields that are the next one's key, an event is in its bucket already: the
component is a partition group of its own, divided by that key. Otherwise its queries *cross*: each
is in the group of its own key, and what they route goes from bucket to bucket within a micro-batch.
Not every driver can do that. Where it cannot, all records of the component go to one bucket.

A query keeps its group: its state is found there. So a query that begins later comes into the group
of those that it feeds or is fed by, crosses with them, or is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from job_engine.wire.clock_sources import ClockSource, sources_of
from querylang.errors import InputError, listed
from querylang.plan import expression as nodes
from querylang.plan.model import Assign, EventType, Plan, QueryPlan, plain_field
from querylang.plan.routing import executed, routed_by, taken_types
from runtime.columns.keys import has_keys_apart, key_identity, key_sources
from runtime.input_policies import shares_clock

GroupName = tuple[str, bool, tuple[str, ...] | None]
"""As `PartitionGroup.name`."""

Gathered = tuple[tuple[str, GroupName], ...]
"""By title, the groups of queries that are not in the one of their own keys."""

CHAINS = "chains"
"""The identity of the group of queries that feed each other across keys."""


def own_name(query: QueryPlan, sources: Sequence[ClockSource]) -> GroupName:
    """The group of a query that is not gathered with others."""
    is_shared = shares_clock(query) or has_keys_apart(query)
    return json.dumps(key_identity(query)), is_shared, sources_of(query, sources) if sources else None


def group_names(
    queries: Iterable[QueryPlan], sources: Sequence[ClockSource], gathered: Gathered
) -> dict[str, GroupName]:
    """The names of the groups that queries belong to, by their titles."""
    known = dict(gathered)
    return {query.title: known.get(query.title) or own_name(query, sources) for query in queries}


def across_keys(sources: Sequence[ClockSource]) -> GroupName:
    """The group of queries that feed each other across keys: all its records are in one bucket."""
    return CHAINS, True, tuple(sorted(source.name for source in sources)) if sources else None


def crossing_name(query: QueryPlan, sources: Sequence[ClockSource]) -> GroupName:
    """The group of a query that crosses: with all others that do, it has one clock."""
    identity, is_shared, _ = own_name(query, sources)
    return identity, is_shared, across_keys(sources)[2]


def crossing_queries(
    queries: Sequence[QueryPlan], names: Mapping[str, GroupName], events: Sequence[EventType]
) -> list[QueryPlan]:
    """The queries that feed each other, or are fed, across keys.

    names: of their groups, by title
    """
    components = ((members, {names[query.title] for query in members}) for members in _components(queries))
    return [query for members, own in components if not _is_one_chain(members, own, events) for query in members]


def _is_one_chain(members: Sequence[QueryPlan], names: Collection[GroupName], events: Sequence[EventType]) -> bool:
    """Whether queries that feed each other meet in a group that was made for that.

    names: of their groups
    """
    return next(iter(names))[0].startswith(CHAINS) and _are_together(members, names, events)


def gathered_anew(plan: Plan, sources: Sequence[ClockSource], *, crosses: bool = False) -> Gathered:
    """The gathered queries of a new job; `crosses`: as of `Program`."""
    return gathered_behind(plan, sources, {}, (), crosses=crosses)


def gathered_behind(
    plan: Plan,
    sources: Sequence[ClockSource],
    known: Mapping[str, GroupName],
    others: Sequence[QueryPlan],
    *,
    crosses: bool = False,
) -> Gathered:
    """The gathered queries behind a change.

    plan: what runs then
    known: by title, the groups of the queries whose state there is
    others: queries that have ended, while some of their records may be still to be processed
    crosses: as of `Program`

    Raises InputError if queries would feed each other whose states are in different buckets.
    """
    found = {query.title: known[query.title] for query in plan.queries if query.title in known}
    for members in _components(plan.queries):
        groups = dict.fromkeys(known[query.title] for query in members if query.title in known)
        if crosses and _cross(members, known, (*plan.queries, *others), plan.events, sources):
            found |= {query.title: known.get(query.title) or crossing_name(query, sources) for query in members}
            continue
        if len(groups) > 1:
            raise InputError(_apart(members, "their states are in different buckets"))
        name = next(iter(groups)) if groups else _new_name(members, plan.events, sources)
        if groups:
            _refuse_strangers(members, name, sources)
        if not name[1]:
            there = [query for query in (*plan.queries, *others) if found.get(query.title) == name]
            if not _meet(members, plan.events) or _common_keys([*there, *members]) is None:
                raise InputError(_apart(members, "their keys differ, and the state is divided by key"))
        found |= {query.title: name for query in members}
    found |= {query.title: known[query.title] for query in others if query.title in known and query.title not in found}
    own = {query.title: own_name(query, sources) for query in (*plan.queries, *others) if query.title in found}
    return tuple(sorted((title, name) for title, name in found.items() if name != own[title]))


def gathered_together(
    gathered: Gathered, epochs: Sequence[tuple[Plan, Mapping[str, str]]], sources: Sequence[ClockSource]
) -> Gathered:
    """The gathered queries where none cross any more: those that did are in one bucket.

    epochs: the queries of each, and by title the title of the query whose state one takes over
    """
    names = group_names((query for plan, _ in epochs for query in plan.queries), sources, gathered)
    moved = {
        query.title
        for plan, _ in epochs
        for members in _components(plan.queries)
        if not _are_together(members, {names[query.title] for query in members}, plan.events)
        for query in members
    }
    pairs = [pair for _, heirs in epochs for pair in heirs.items()] if moved else []
    while more := {title for pair in pairs if not moved.isdisjoint(pair) for title in pair} - moved:
        moved |= more  # who takes over a state is in its group
    return tuple(sorted((dict(gathered) | dict.fromkeys(moved, across_keys(sources))).items()))


def _are_together(members: Sequence[QueryPlan], names: Collection[GroupName], events: Sequence[EventType]) -> bool:
    """Whether what queries that feed each other route is in its bucket already.

    names: of their groups
    """
    if len(names) > 1:
        return False
    is_in_one_bucket = next(iter(names))[1]
    return is_in_one_bucket or (_meet(members, events) and _common_keys(members) is not None)


def _cross(
    members: Sequence[QueryPlan],
    known: Mapping[str, GroupName],
    queries: Sequence[QueryPlan],
    events: Sequence[EventType],
    sources: Sequence[ClockSource],
) -> bool:
    """Whether queries that feed each other cross: where their keys differ.

    Those whose state there is have to be in groups with the clock of all that cross.

    known, queries: as of `gathered_behind`, with those that have ended
    """
    names = {known[query.title] for query in members if query.title in known}
    if not names:
        return _common_keys(members) is None or not _meet(members, events)
    if _is_one_chain(members, names, events):
        return False
    return all(_can_cross(query, known, queries, sources) for query in members if query.title in known)


def _can_cross(
    query: QueryPlan, known: Mapping[str, GroupName], queries: Sequence[QueryPlan], sources: Sequence[ClockSource]
) -> bool:
    """Whether the group of a query has the clock of all that cross, and its own key."""
    name = known[query.title]
    if name[1] or not name[0].startswith(CHAINS):
        return name == crossing_name(query, sources)
    others = (other for other in queries if known.get(other.title) == name)
    return name[2] == across_keys(sources)[2] and _common_keys([query, *others]) is not None


def _apart(members: Sequence[QueryPlan], reason: str) -> str:
    names = listed(list(dict.fromkeys(f"'{query.name}'" for query in members)))
    return (
        f"{names} would feed each other, and {reason}: begin with a new checkpoint, or `send` what is routed to a"
        " channel"
    )


def _refuse_strangers(members: Sequence[QueryPlan], name: GroupName, sources: Sequence[ClockSource]) -> None:
    if name[2] is not None and not {item for query in members for item in sources_of(query, sources)} <= {*name[2]}:
        raise InputError(_apart(members, "they wait for different sources"))


def _targets(queries: Sequence[QueryPlan]) -> dict[str, list[QueryPlan]]:
    """By the title of a query that feeds others, these."""
    taking: dict[str, list[QueryPlan]] = {}
    for query in queries if any(query.routes for query in queries) else ():
        for event in taken_types(query):
            taking.setdefault(event, []).append(query)
    found = {query.title: [item for event in query.routes for item in taking.get(event, ())] for query in queries}
    return {title: targets for title, targets in found.items() if targets}


def _components(queries: Sequence[QueryPlan]) -> Iterator[list[QueryPlan]]:
    """The queries that feed each other, directly or through others, together."""
    of: dict[str, set[str]] = {}
    for title, targets in _targets(queries).items():
        for target in targets:
            own, other = (of.setdefault(item, {item}) for item in (title, target.title))
            if own is not other:
                own |= other
                of |= dict.fromkeys(other, own)
    for titles in {id(titles): titles for titles in of.values()}.values():
        yield [query for query in queries if query.title in titles]


def _new_name(members: Sequence[QueryPlan], events: Sequence[EventType], sources: Sequence[ClockSource]) -> GroupName:
    keys = _common_keys(members)
    if keys is None or not _meet(members, events):
        return across_keys(sources)
    return f"{CHAINS} {json.dumps(sorted(keys.items()))}", False, across_keys(sources)[2]


def _common_keys(queries: Sequence[QueryPlan]) -> dict[str, list[Any]] | None:
    """By event type, the fields that are the key of all queries that take it; None = they differ.

    Equal keys then have equal hashes, whichever query asks.
    """
    types = {(tuple(key.type for key in query.keys), query.optional_keys) for query in queries}
    if len(types) != 1 or any(shares_clock(query) or has_keys_apart(query) for query in queries):
        return None
    found: dict[str, list[Any]] = {}
    for query in queries:
        is_plain = all(plain_field(source) for keys in key_sources(query).values() for source in keys)
        for event, keys in key_identity(query):
            if not is_plain or found.setdefault(event, keys) != keys:
                return None
    return found


def _meet(members: Sequence[QueryPlan], events: Sequence[EventType]) -> bool:
    """Whether each event that one of them routes is in its bucket already."""
    targets = _targets(members)
    return all(_is_local(query, target, events) for query in members for target in targets.get(query.title, ()))


def _is_local(query: QueryPlan, target: QueryPlan, events: Sequence[EventType]) -> bool:
    """Whether what a query routes has the key of its match where the target has its key."""
    parts = list(executed(query, events))
    is_changing = any(isinstance(part, Assign) and not isinstance(part.target, nodes.LocalOf) for part in parts)
    fields = {event.name: [field.name for field in event.fields] for event in events}
    keys, taken = key_sources(target), taken_types(target)
    for event in (found for part in parts if (found := routed_by(part)) is not None):
        if nodes.type_of(event).required.name not in taken:
            continue
        if not isinstance(event, nodes.New) or len(keys.get(event.type.name, ())) != len(query.keys):
            return False
        names = fields[event.type.name]
        for place, key in enumerate(keys.get(event.type.name, ())):
            name = plain_field(key)
            if name is None or not _is_key(event.arguments[names.index(name)], place, query, is_changing=is_changing):
                return False
    return True


def _is_key(value: nodes.Expression, place: int, query: QueryPlan, *, is_changing: bool) -> bool:
    """Whether a value of a block is the key of its match at a place.

    is_changing: whether the block may have changed fields of events before
    """
    match value:
        case nodes.KeyOf(index=index):
            return index == place
        case nodes.SelectOf(index=index) if not is_changing:
            return _is_key(query.selected[index].value, place, query, is_changing=False)
        case nodes.Aggregate(function="first" | "last", arguments=(argument,)):
            return _is_key(argument, place, query, is_changing=is_changing)
        case nodes.FieldOf(term=term, field=field) if not is_changing:
            return _is_key_field(term, field, place, query)
        case nodes.MemberOf(receiver=receiver, field=field) if not is_changing:
            return _is_key_field(_term(receiver, query), field, place, query)
        case _:
            return False


def _term(value: nodes.Expression, query: QueryPlan) -> int | None:
    """The term that an event of a block is bound to; None = it is not known."""
    match value:
        case nodes.EventOf(term=term) | nodes.EndOf(term=term):
            return term
        case nodes.SelectOf(index=index):
            return _term(query.selected[index].value, query)
        case nodes.Aggregate(function="first" | "last", arguments=(argument,)):
            return _term(argument, query)
        case _:
            return None


def _is_key_field(term: int | None, field: str, place: int, query: QueryPlan) -> bool:
    return term is not None and plain_field(query.inputs[query.terms[term].input].keys[place]) == field


def router_of(queries: Sequence[QueryPlan]) -> QueryPlan:
    """A query that has the keys of all queries of a group, for questions about keys only."""
    first, *others = queries
    if all(key_sources(query) == key_sources(first) for query in others):
        return first
    return replace(first, inputs=tuple(dict.fromkeys(item for query in queries for item in query.inputs)))
