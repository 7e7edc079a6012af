"""Check what queries route to each other: no circles, no control events, heartbeats with keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from querylang.checker.checked import Diagnostics, Written
from querylang.errors import Mistake
from querylang.plan.model import Duration, Input, QueryPlan
from querylang.plan.routing import CONTROL_TYPES, cycle_of, in_order, taken_types
from querylang.plan.text import duration_text
from querylang.source import Span

Texts = Mapping[str, Sequence[Written]]
"""By a query's name, what its text writes."""


def check_routes(
    queries: Sequence[QueryPlan], texts: Texts, places: Mapping[str, Span], diagnostics: Diagnostics
) -> None:
    """Report what queries must not route to each other, and warn of what is likely to be late.

    places: where each query is, by its name
    """
    routed = {query.name: _routed(query, texts.get(query.name, ()), places[query.name]) for query in queries}
    if not any(routed.values()):
        return
    for written in (item for own in routed.values() for item in own.values()):
        assert written.event is not None, "what is routed has a type"
        assert written.span is not None, "what is routed has a place"
        if written.event.rpartition(".")[2] in CONTROL_TYPES:
            diagnostics.report(Mistake.ROUTE_CONTROL, written.span, event=written.event)
    takers = {query.name: taken_types(query) for query in queries}
    taking: dict[str, list[str]] = {}
    for name, taken in takers.items():
        for event in taken:
            taking.setdefault(event, []).append(name)
    edges = {
        name: list(dict.fromkeys(taker for event in own for taker in taking.get(event, ())))
        for name, own in sorted(routed.items())
    }
    _refuse_circle(edges, takers, routed, diagnostics)
    routes: dict[str, list[tuple[str, Span]]] = {}
    for name, own in routed.items():
        for event, written in own.items():
            if written.span is not None:
                routes.setdefault(event, []).append((name, written.span))
    for query in queries:
        for item in query.inputs:
            _check_heartbeat(query, item, routes, diagnostics)
    if diagnostics.mistakes:
        return
    delays = _delays(queries, edges)
    for query in queries:
        for item in query.inputs:
            _warn_of_late(item, query, delays, routes, diagnostics)


def _routed(query: QueryPlan, written: Sequence[Written], place: Span) -> dict[str, Written]:
    """By event type, where the query routes it first.

    The plan knows the types of all expressions, and what actions of events route. The text knows
    what a plan lacks that depends on event types which nothing defines.
    """
    found = {item.event: item for item in reversed(written) if item.event is not None}
    unsaid = next((item.span for item in written if item.word == "route" and item.event is None), None)
    more = (event for event in query.routes if event not in found)
    return found | {event: Written("route", event=event, span=unsaid or place) for event in more}


Routed = Mapping[str, Mapping[str, Written]]
"""By the name of a query and an event type, where the query routes it first."""

Routes = Mapping[str, Sequence[tuple[str, Span]]]
"""By event type, the queries that route it, each with the first place."""


def _refuse_circle(
    edges: Mapping[str, Sequence[str]],
    takers: Mapping[str, frozenset[str]],
    routed: Routed,
    diagnostics: Diagnostics,
) -> None:
    """Report one circle, at each of its routes: what one query routes would run for ever."""
    circle = cycle_of(edges)
    hops = [(source, target, _between(source, target, takers, routed)) for source, target in pairwise(circle)]
    for place, (_, _, written) in enumerate(hops):
        assert written.span is not None, "what is routed has a place"
        turned = hops[place:] + hops[:place]
        path = ", ".join(f"'{source}' routes '{item.event}' to '{target}'" for source, target, item in turned)
        others = {f"{item.span.source.path}:{item.span.line}": None for _, _, item in turned[1:] if item.span}
        also = f" ({', '.join(others)})" if others else ""
        diagnostics.report(Mistake.ROUTE_CYCLE, written.span, path=f"{path}{also}")


def _between(source: str, target: str, takers: Mapping[str, frozenset[str]], routed: Routed) -> Written:
    """The first of what one query routes that the other takes."""
    return next(written for event, written in routed[source].items() if event in takers[target])


def _check_heartbeat(query: QueryPlan, item: Input, routes: Routes, diagnostics: Diagnostics) -> None:
    """A heartbeat that queries route needs the whole key: it comes from one match of one key."""
    if item.heartbeat is None or item.heartbeat.keys or not item.keys:
        return
    for _, span in routes.get(item.heartbeat.event, ()):
        diagnostics.report(Mistake.ROUTE_HEARTBEAT, span, input=item.event, query=query.name)


def _delays(queries: Sequence[QueryPlan], edges: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How late what a query routes can be, by the waits on its longest way, in µs; no circles."""
    own = {query.name: _own_delay(query) for query in queries}
    before: dict[str, int] = {}
    found: dict[str, int] = {}
    for name in in_order(edges):
        found[name] = before.get(name, 0) + own.get(name, 0)
        for target in edges.get(name, ()):
            before[target] = max(before.get(target, 0), found[name])
    return found


def _own_delay(query: QueryPlan) -> int:
    waits = max((_length(item.wait) for item in query.inputs), default=0)
    return waits + (0 if query.trailing is None else _length(query.trailing.duration) * query.trailing.most)


def _length(duration: Duration | None) -> int:
    """A wait in µs; of one that a parameter gives nothing is known."""
    return duration if isinstance(duration, int) else 0


def _warn_of_late(
    item: Input, query: QueryPlan, delays: Mapping[str, int], routes: Routes, diagnostics: Diagnostics
) -> None:
    """An event with a time of its own that comes later than the input waits for it."""
    if item.time_from is None or not isinstance(item.wait, int):
        return
    for source, span in routes.get(item.event, ()):
        delay = delays[source]
        if delay > 0 and delay >= item.wait:
            words = {"query": query.name, "event": item.event}
            lengths = {"wait": duration_text(item.wait), "delay": duration_text(delay)}
            diagnostics.warn(Mistake.ROUTE_LATE, span, **words, **lengths)
