"""What single events bring, asked in Python, because a call of the engine costs more.

It knows the events in the windows, as the engine does, and searches with the reference matcher. So
open queries answer most events without the engine, which processes them later, many at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from querylang.plan.expression import Type
from querylang.plan.model import Plan, QueryPlan, known
from runtime.columns.arrivals import row_events
from runtime.engine.engine import Engine, StoredEvents
from runtime.instants import NO_TIME
from runtime.interpreter.context import Context, PlanWorld, event_numbers
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.statements import run_action
from runtime.interpreter.values import EvaluationError, Event
from runtime.single_events.known import Finding, Known, SingleEvent, UnforeseenError
from runtime.single_events.single_query import Brought, SingleQuery
from runtime.single_events.windows import part_of_key
from runtime.timestamps import microseconds

_KEYS = (Type.BOOLEAN, Type.INTEGER, Type.FLOAT, Type.STRING)

Found = Sequence[tuple[QueryPlan, Finding]]
"""Matches with their queries."""


def can_foresee(plan: Plan) -> bool:
    """Whether it is known here when events count: by the clock and their own times."""
    sources = [event for event, _ in plan.time_sources()]
    return not plan.stopped and len(sources) == len(set(sources)) and all(map(_is_simple, plan.queries))


def _is_simple(query: QueryPlan) -> bool:
    if query.has_runs or query.forget_keys is not None or any(key.type not in _KEYS for key in query.keys):
        return False
    if query.gaps or query.edition or query.starts is not None or query.ends is not None:
        return False  # control events have changed it
    if query.trailing is not None and query.trailing.most > 1:
        return False
    lengths = [item.wait for item in query.inputs] + [None if query.trailing is None else query.trailing.duration]
    if any(length is not None and known(length) <= 0 for length in lengths):
        return False
    return not any(item.policy or item.heartbeat for item in query.inputs)


class SingleEvents:
    """What is kept for the queries of a plan that `can_foresee`.

    clock: arrival of the latest event, µs
    """

    def __init__(self, engine: Engine) -> None:
        """engine: has processed all records so far

        Raises UnforeseenError.
        """
        self.clock = NO_TIME if engine.clock is None else engine.clock
        stored = engine.stored()
        if any(part.is_unusual for part in stored.values()):
            raise UnforeseenError
        plan = engine.plan
        self._sources, self._world = dict(plan.time_sources()), PlanWorld(plan)
        self._queries = [_loaded(plan, query, stored[query.title]) for query in plan.queries]

    def advance(self, now: int) -> Found | None:
        """Time passes, µs: what timers bring that are due by then; None as in `take`.

        Raises UnforeseenError as `take`.
        """
        self.clock = max(self.clock, now)
        return _together([(part.query, part.expire(now)) for part in self._queries])

    def take(self, event: SingleEvent) -> Found | None:
        """Adds an event that arrives now; gives what it finds. None = the engine knows it.

        Raises UnforeseenError; then this object is of no use any more.
        """
        assert event.arrival >= self.clock, "events come in order of arrival"
        self.clock = event.arrival
        time = self._source_time(event)
        return _together([(part.query, part.take(event, time)) for part in self._queries])

    def _source_time(self, event: SingleEvent) -> int:
        """From the event's own fields if some query says so, else as declared; NO_TIME = none."""
        source = self._sources.get(event.type.name)
        if source is None:
            return event.declared
        context = Context([Event(event.type, dict(event.values))], world=self._world, invoke=run_action)
        try:
            value = evaluate(source, context)
        except EvaluationError:
            return NO_TIME
        return NO_TIME if value is None else int(microseconds(pa.array([value]))[0])


def _together(parts: Sequence[tuple[QueryPlan, Brought]]) -> Found | None:
    if not all(brought.is_known for _, brought in parts):
        return None
    return [(query, found) for query, brought in parts for found in brought.found]


def _loaded(plan: Plan, query: QueryPlan, stored: StoredEvents) -> SingleQuery:
    single = SingleQuery(plan, query)
    pending, until = (stored.table.column(name).to_pylist() for name in ("_pending", "_ripe"))
    for event, is_pending, end in zip(_events(plan, query, stored.table), pending, until, strict=True):
        if is_pending:
            single.load_pending(event, end)
        else:
            single.windows.add(single.windows.key_of(event), event)
    for row in stored.bounds.to_pylist():
        if row["input"] >= 0:
            key = tuple(part_of_key(row[f"key{place}"]) for place, _ in enumerate(query.keys))
            single.load_bound(key, row["input"], row["bound"])
    _load_waits(plan, single, stored.waits)
    single.loaded()
    return single


def _load_waits(plan: Plan, single: SingleQuery, members: pa.Table) -> None:
    """Adds the matches that wait."""
    by_wait: dict[int, list[tuple[Known, int, int, bool]]] = {}
    own = [members.column(name).to_pylist() for name in ("_wait", "_term", "_due", "_is_latest")]
    for event, wait, term, due, is_latest in zip(_events(plan, single.query, members), *own, strict=True):
        by_wait.setdefault(wait, []).append((event, term, due, is_latest))
    for wait in sorted(by_wait):
        parts = by_wait[wait]
        of_terms = {term: event for event, term, _, _ in parts}
        latest = next(event for event, _, _, is_latest in parts if is_latest)
        terms = range(len(single.query.terms))
        single.load_wait(single.windows.finding(latest, [of_terms.get(term) for term in terms]), parts[0][2])


def _events(plan: Plan, query: QueryPlan, table: pa.Table) -> Iterator[Known]:
    """The rows of a table of stored events."""
    world, numbers = PlanWorld(plan, query), event_numbers(plan)
    times = table.column("_time").to_pylist()
    values = {numbers[item.event]: row_events(plan.event(item.event), table, world, times) for item in query.inputs}
    inputs = {numbers[item.event]: number for number, item in enumerate(query.inputs)}
    names = ("_kind", "_arrival", "_source_time", "_source", "_partition", "_offset")
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    for row, (time, kind, arrival, source_time, *place) in enumerate(zip(times, *columns, strict=True)):
        yield Known(
            inputs[kind],
            time,
            values[kind][row],
            arrival=arrival,
            source_time=source_time,
            place=tuple(place),
        )
