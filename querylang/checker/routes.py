"""Check what queries route to each other: no circles, no control events, heartbeats with keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from querylang.checker.checked import Diagnostics, Written
from querylang.errors import Mistake
from querylang.plan.model import Duration, Input, QueryPlan
from querylang.plan.routing import CONTROL_TYPES, cycle_of, taken_types
from querylang.plan.text import duration_text

Texts = Mapping[str, Sequence[Written]]
"""By a query's name, what its text writes."""


def check_routes(queries: Sequence[QueryPlan], texts: Texts, diagnostics: Diagnostics) -> None:
    """Report what queries must not route to each other, and warn of what is likely to be late."""
    routed = {name: {item.event: item for item in reversed(items) if item.event} for name, items in texts.items()}
    if not any(routed.values()):
        return
    for written in (item for own in routed.values() for item in own.values()):
        assert written.event is not None, "what is routed has a type"
        assert written.span is not None, "what is routed has a place"
        if written.event.rpartition(".")[2] in CONTROL_TYPES:
            diagnostics.report(Mistake.ROUTE_CONTROL, written.span, event=written.event)
    takers = {query.name: taken_types(query) for query in queries}
    edges = {
        name: [taker for taker, taken in takers.items() if taken & own.keys()] for name, own in sorted(routed.items())
    }
    _refuse_circle(edges, takers, routed, diagnostics)
    for query in queries:
        for item in query.inputs:
            _check_heartbeat(query, item, routed, diagnostics)
    if diagnostics.mistakes:
        return
    delays = _Delays(queries, edges)
    for query in queries:
        for item in query.inputs:
            _warn_of_late(item, query, delays, routed, diagnostics)


Routed = Mapping[str, Mapping[str, Written]]
"""By the name of a query and an event type, where the query routes it first."""


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


def _check_heartbeat(query: QueryPlan, item: Input, routed: Routed, diagnostics: Diagnostics) -> None:
    """A heartbeat that queries route needs the whole key: it comes from one match of one key."""
    if item.heartbeat is None or item.heartbeat.keys or not item.keys:
        return
    for own in routed.values():
        written = own.get(item.heartbeat.event)
        if written is not None and written.span is not None:
            words = {"event": item.heartbeat.event, "input": item.event, "query": query.name}
            diagnostics.report(Mistake.ROUTE_HEARTBEAT, written.span, **words)


class _Delays:
    """How late what a query routes can be, by the waits on its longest way, in µs."""

    def __init__(self, queries: Sequence[QueryPlan], edges: Mapping[str, Sequence[str]]) -> None:
        self._queries = {query.name: query for query in queries}
        self._sources: dict[str, list[str]] = {}
        for source, targets in edges.items():
            for target in targets:
                self._sources.setdefault(target, []).append(source)
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Of one query; there are no circles."""
        if name not in self._known:
            query = self._queries.get(name)
            before = max((self.of(source) for source in self._sources.get(name, ())), default=0)
            self._known[name] = before + (0 if query is None else _own_delay(query))
        return self._known[name]


def _own_delay(query: QueryPlan) -> int:
    waits = max((_length(item.wait) for item in query.inputs), default=0)
    return waits + (0 if query.trailing is None else _length(query.trailing.duration) * query.trailing.most)


def _length(duration: Duration | None) -> int:
    """A wait in µs; of one that a parameter gives nothing is known."""
    return duration if isinstance(duration, int) else 0


def _warn_of_late(item: Input, query: QueryPlan, delays: _Delays, routed: Routed, diagnostics: Diagnostics) -> None:
    """An event with a time of its own that comes later than the input waits for it."""
    if item.time_from is None or not isinstance(item.wait, int):
        return
    for source, own in routed.items():
        written = own.get(item.event)
        if written is not None and written.span is not None and 0 < delays.of(source) >= item.wait:
            diagnostics.warn(
                Mistake.ROUTE_LATE,
                written.span,
                query=query.name,
                wait=duration_text(item.wait),
                event=item.event,
                delay=duration_text(delays.of(source)),
            )
