"""Which queries of a program feed which, and which change: routed events, and changes as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from querylang.dataclass import dataclass, field
from querylang.plan.expression import Expression, Invoke, Literal, type_of
from querylang.plan.model import Action, EventType, QueryPlan, Route, Send

# Changes of the queries that run, as data, and what became of them.


@dataclass(frozen=True, slots=True)
class DeployQuery:
    """Run the queries of a text, too."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplaceQuery:
    """Run the queries of a text instead of those of the same names.

    now: the new text answers from its place on, with empty windows, instead of after a handover
    """

    text: str
    now: bool = False


@dataclass(frozen=True, slots=True)
class UndeployQuery:
    """End a query with all its instances."""

    name: str


@dataclass(frozen=True, slots=True)
class SetParameters:
    """Create an instance of a query, or change values of one."""

    query: str
    instance: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveInstance:
    """End an instance of a query."""

    query: str
    instance: str


Change = DeployQuery | ReplaceQuery | UndeployQuery | SetParameters | RemoveInstance

CHANGES: Mapping[str, tuple[str, ...]] = {
    "DeployQuery": ("text",),
    "ReplaceQuery": ("text", "now"),
    "UndeployQuery": ("name",),
    "SetParameters": ("query", "instance", "values"),
    "RemoveInstance": ("query", "instance"),
}
"""By control event that changes the queries, the names of its arguments."""


UNCHANGED = "unchanged"
"""The kind of outcome of a query that has the text already."""

DONE = ("deployed", "replaced", "handed_over", "undeployed", "set", "removed", UNCHANGED)
"""The kinds of outcomes of changes that are done; another one is an `error`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change, for one query instance.

    kind: one of DONE, or `error`
    query: its name; empty = of none
    text: for people
    details: what else there is
    """

    kind: str
    query: str
    instance: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


# Which queries of a program feed which: a routed event is a record for all queries that take it.
#
# `route E(...)` does it, and `send E(...) to "com.apama.queries"`; other channels are outputs only.

QUERIES_CHANNEL = "com.apama.queries"
"""What is sent to it is routed."""

ROUTE_SOURCE = "route:"
"""Begins the name of the source that a query is for those that take what it routes."""

CONTROL_TYPES = frozenset({"SetDelayedEventsLeeway", "Heartbeat", *CHANGES})
"""Names of control events, without a package: data must not change parameters or texts."""


def taken_types(query: QueryPlan) -> frozenset[str]:
    """The event types that the query takes: those of its inputs and of their heartbeats."""
    heartbeats = (item.heartbeat.event for item in query.inputs if item.heartbeat is not None)
    return frozenset((*(item.event for item in query.inputs), *heartbeats))


Actions = Mapping[tuple[str | None, str], Action]
"""By the name of their event type, or None for those of a query, and their own."""


def with_routes(queries: Sequence[QueryPlan], events: Iterable[EventType]) -> tuple[QueryPlan, ...]:
    """The queries with what their blocks can route."""
    actions = _of_events(events)
    return tuple(replace(query, routes=_routed(query, actions)) if query.block else query for query in queries)


def _routed(query: QueryPlan, of_events: Actions) -> tuple[str, ...]:
    """The event types that the block of a query can route, in text order."""
    events = (routed_by(part) for part in _executed(query, of_events))
    return tuple(dict.fromkeys(_name(event) for event in events if event is not None))


def routed_by(part: Any) -> Expression | None:
    """What a part of a block gives to the queries that take it; None = nothing."""
    match part:
        case Route(event=event):
            return event
        case Send(event=event, channel=Literal(value=channel)) if channel == QUERIES_CHANNEL:
            return event
        case _:
            return None


def executed(query: QueryPlan, events: Iterable[EventType]) -> Iterator[Any]:
    """The parts of a query's block and of all actions that it calls, in text order."""
    return _executed(query, _of_events(events))


def _of_events(events: Iterable[EventType]) -> Actions:
    return {(event.name, action.name): action for event in events for action in event.actions}


def _executed(query: QueryPlan, of_events: Actions) -> Iterator[Any]:
    own: Actions = {(None, action.name): action for action in query.actions}
    waiting: list[Any] = [query.block]
    called: set[tuple[str | None, str]] = set()
    while waiting:
        for part in _parts(waiting.pop()):
            yield part
            if isinstance(part, Invoke):
                key = None if part.receiver is None else _name(part.receiver), part.action
                action = own.get(key) or of_events.get(key)
                if action is not None and key not in called:
                    called.add(key)
                    waiting.append(action.body)


def _name(event: Expression) -> str:
    """The event type of an expression; an optional one's, too."""
    type_ = type_of(event)
    return type_.name if type_.name or not type_.of else type_.of[0].name


def _parts(part: Any) -> Iterator[Any]:
    """A part of a plan with all that is in it, in text order."""
    if isinstance(part, tuple):
        for item in part:
            yield from _parts(item)
    elif is_dataclass(part):
        yield part
        for item in fields(part):
            yield from _parts(getattr(part, item.name))


def source_types(queries: Sequence[QueryPlan]) -> list[str]:
    """The event types of all inputs that sources have to bring: those that no query routes.

    All of them, if queries route every one.
    """
    inputs = list(dict.fromkeys(item.event for query in queries for item in query.inputs))
    routed = {event for query in queries for event in query.routes}
    return [event for event in inputs if event not in routed] or inputs


def receivers(queries: Sequence[QueryPlan]) -> dict[str, list[str]]:
    """By a query's name, the names of the queries that take what it routes."""
    taking: dict[str, dict[str, None]] = {}
    for query in queries:
        for event in taken_types(query):
            taking.setdefault(event, {})[query.name] = None
    found: dict[str, dict[str, None]] = {}
    for query in queries:
        own = found.setdefault(query.name, {})
        for event in query.routes:
            own |= taking.get(event, {})
    return {name: list(own) for name, own in found.items()}


def routes_between(queries: Sequence[QueryPlan]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Which query feeds which, by their names, and the event types that it routes to it."""
    by_name = {query.name: query for query in queries}
    found = []
    for name, targets in receivers(queries).items():
        for target in targets:
            taken = taken_types(by_name[target])
            events = tuple(event for event in by_name[name].routes if event in taken)
            found.append((name, target, events))
    return found


def chained(queries: Sequence[QueryPlan]) -> frozenset[str]:
    """The names of the queries that feed others or are fed."""
    if not any(query.routes for query in queries):
        return frozenset()
    edges = receivers(queries)
    return frozenset(name for name, targets in edges.items() if targets).union(*edges.values())


def feeders(queries: Sequence[QueryPlan], names: Collection[str]) -> frozenset[str]:
    """The names of other queries that feed those of these names, directly or through others."""
    edges, found = receivers(queries), set(names)
    while more := {name for name, targets in edges.items() if name not in found and not found.isdisjoint(targets)}:
        found |= more
    return frozenset(found.difference(names))


NOT_FED = "was written before queries fed each other: what they route is an output only"
"""In a warning of a state or checkpoint whose queries feed each other by their texts."""


def has_chains(queries: Sequence[QueryPlan]) -> bool:
    """Whether any query takes what another one routes."""
    return bool(chained(queries))


def in_order(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Queries behind those that feed them; without those in a circle, and behind one.

    edges: as of `receivers`
    """
    waits_for = Counter(target for targets in edges.values() for target in targets)
    ready = [name for name in {**edges, **waits_for} if not waits_for[name]]
    for name in ready:  # it grows
        for target in edges.get(name, ()):
            waits_for[target] -= 1
            if not waits_for[target]:
                ready.append(target)
    return ready


def levels(queries: Sequence[QueryPlan]) -> dict[str, int]:
    """By a query's title, how many routes lead to it one after the other, at most.

    Not by its name: while a text hands over, there are two of one name, which may take other types.

    Raises ValueError if queries feed each other in a circle: no checked plan has them.
    """
    edges = receivers(queries)
    ordered = in_order(edges)
    if len(ordered) < len(edges):
        raise ValueError("queries feed each other in a circle")
    by_name: dict[str, list[QueryPlan]] = {}
    for query in queries:
        by_name.setdefault(query.name, []).append(query)
    found, of_event = dict[str, int](), dict[str, int]()
    for query in (query for name in ordered for query in by_name[name]):
        level = max((of_event.get(event, 0) for event in taken_types(query)), default=0)
        found[query.title] = level
        of_event |= {event: max(of_event.get(event, 0), level + 1) for event in query.routes}
    return found


def cycle_of(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Queries that feed each other in a circle, the first one last again; empty = there are none.

    edges: as of `receivers`
    """
    done: set[str] = set()
    for start in edges:
        path: dict[str, None] = {start: None}
        left = [iter(edges[start])]
        while left:
            following = next(left[-1], None)
            if following is None:
                done.add(path.popitem()[0])
                left.pop()
            elif following in path:
                names = list(path)
                return [*names[names.index(following) :], following]
            elif following not in done:
                path[following] = None
                left.append(iter(edges.get(following, ())))
    return []
