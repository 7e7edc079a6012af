"""The matcher that is easy to believe: plain Python, one event at a time, one partition at a time.

Takes the events of one partition in their total order and the query's automaton; gives the matches by the *recent*
policy (`docs/matching.md`), what a `find every` aggregates, and which trailing waits no event has ended. It takes every
query. The kernel matcher must agree with it on every stream.

Leaves to others: which events are admitted, filtered and released, and which released ones may be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from querylang.plan.automaton import ACCEPT, Transition
from querylang.plan.expression import Aggregate, Expression, Invoke, KeyOf, walk
from querylang.plan.model import (
    Between,
    Condition,
    Input,
    Plan,
    QueryPlan,
    Where,
    Within,
    Without,
    known,
    mentioned_terms,
)
from runtime.instants import NEVER
from runtime.interpreter.aggregates import BY_RECENCY, aggregate
from runtime.interpreter.context import Context, Names
from runtime.interpreter.expressions import evaluate, holds
from runtime.interpreter.statements import run_action
from runtime.interpreter.values import EvaluationError, Event, Value
from runtime.matching.find_every import aggregates_of


@dataclass(frozen=True, slots=True)
class Released:
    """A released event: the index of its input, its time (µs UTC), its value.

    `superseded`: the position of the next event that takes its place under `with unique`; NEVER: none does.
    """

    input: int
    time: int
    value: Event
    superseded: int = NEVER


Bound = Mapping[int, int]
"""The position of each bound term."""


class ReferenceMatcher:
    """Finds the matches of one query; holds nothing between calls."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._world = Names(plan, query)
        self._conditions = query.conditions
        self._aggregates = aggregates_of(query)
        self._may_ask_for_keys = any(_may_ask_for_keys(node) for node in (*_expressions(query), *self._aggregates))
        self._leading = None if query.leading is None else known(query.leading.duration)

    def matches(self, events: Sequence[Released], among: range, first_new: int) -> list[tuple[int, Bound]]:
        """At most one match for each new event: its position and those of the terms' events.

        `among`: the partition's positions, in total order; those from `first_new` on are new.
        """
        found: list[tuple[int, Bound]] = []
        for latest in range(first_new, among.stop):
            search = _Search(self, events, latest, among)
            bound = search.winner(0, latest, {})
            if bound is not None:
                found.append((latest, bound))
        return found

    def aggregated(
        self, events: Sequence[Released], among: range, first_new: int
    ) -> list[tuple[int, tuple[Value, ...]]]:
        """For each new event that is part of a candidate: what the aggregates over all candidates come to."""
        found: list[tuple[int, tuple[Value, ...]]] = []
        for latest in range(first_new, among.stop):
            searched = list(_Search(self, events, latest, among).candidates(0, latest, {}))
            if any(latest in bound.values() for bound in searched):
                oldest_first = sorted(searched, key=self.recency)
                orders = (oldest_first if node.function in BY_RECENCY else searched[::-1] for node in self._aggregates)
                nodes = zip(self._aggregates, orders, strict=True)
                found.append((latest, tuple(self._aggregate(events, node, order) for node, order in nodes)))
        return found

    def outlives(
        self, events: Sequence[Released], bound: Bound, latest: int, due: int, among: range, *, is_new: bool
    ) -> bool:
        """Whether no condition that reaches the trailing wait has ended it by now.

        `bound`: the match set, also of positions that are not `among` the partition's; `due`: the end of the wait.
        `is_new`: it begins here, so what is in the windows is judged; else only the events `among` these positions.
        """
        search = _Search(self, events, latest, among=among if is_new else range(0))
        for index in self._query.decided_late:
            condition = self._conditions[index]
            assert not isinstance(condition, Where), "a `where` does not reach a wait"
            named = self._named(condition, bound)
            if named is None:
                continue
            if isinstance(condition, Within):
                times = self._times(events, condition.between, bound, due)
                if is_new and max(times) - min(times) >= known(condition.duration):
                    return False
                continue
            low, after = self._low(events, condition.between, bound, named) if is_new else (-1, -NEVER)
            later = [place for place in among if place > latest] if is_new else list(among)
            inside = [
                place
                for place in (*search.current, *later)
                if place > low and events[place].time > after and events[place].time < due
            ]
            if self._blocks(events, condition, bound, inside):
                return False
        return True

    def recency(self, bound: Bound) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the *recent* policy compares: positions newest first, one a name; then by name, the last one first."""
        terms = range(len(self._query.terms))
        return tuple(sorted(bound.values(), reverse=True)), tuple(bound.get(term, -1) for term in reversed(terms))

    def permits(self, events: Sequence[Released], index: int, bound: Bound, search: _Search, *, is_last: bool) -> bool:
        """Whether a condition is true as far as its names are bound; `is_last`: all that will be bound is."""
        condition = self._conditions[index]
        match condition:
            case Where(condition=expression):
                return self._is_true(events, expression, bound)
            case Within(duration=duration, between=between):
                times = self._times(events, between, bound, None)
                return max(times) - min(times) < known(duration)
            case Without(between=between):
                named = [bound[term] for term in (bound if between is None else between.terms) if term in bound]
                is_leading = is_last and self._leading is not None and (between is None or between.leading)
                low, after = self._low(events, between, bound, named) if is_leading else (min(named), -NEVER)
                inside = [place for place in search.current if low < place < max(named) and events[place].time > after]
                return not self._blocks(events, condition, bound, inside)

    def _blocks(self, events: Sequence[Released], condition: Without, bound: Bound, inside: Sequence[int]) -> bool:
        """Whether one of these events is a `without` event; what the candidate itself binds is none."""
        number = len(self._query.terms)
        others = [place for place in inside if events[place].input == condition.input and place not in bound.values()]
        if condition.condition is None:
            return bool(others)
        return any(self._is_true(events, condition.condition, {**bound, number: place}) for place in others)

    def _low(
        self, events: Sequence[Released], between: Between | None, bound: Bound, named: Sequence[int]
    ) -> tuple[int, int]:
        """Where a range begins: behind this position, and after this time."""
        if self._leading is not None and (between is None or between.leading):
            return -1, min(events[place].time for place in bound.values()) - self._leading
        return min(named), -NEVER

    def _times(self, events: Sequence[Released], between: Between | None, bound: Bound, due: int | None) -> list[int]:
        """The times of a range's names as far as they are bound, those of its waits included."""
        terms = bound if between is None else [term for term in between.terms if term in bound]
        times = [events[bound[term]].time for term in terms]
        if between is not None and between.leading:
            assert self._leading is not None, "the range names a leading wait"
            times.append(min(events[place].time for place in bound.values()) - self._leading)
        if between is not None and between.trailing:
            assert due is not None, "the range names a trailing wait"
            times.append(due)
        return times

    def _named(self, condition: Condition, bound: Bound) -> list[int] | None:
        """The positions of the range's names; None: the condition mentions a name that is unset."""
        if not mentioned_terms(condition, len(self._query.terms)) <= bound.keys():
            return None
        between = condition.between if isinstance(condition, Within | Without) else None
        return [bound[term] for term in (bound if between is None else between.terms)]

    def _is_true(self, events: Sequence[Released], expression: Expression, bound: Bound) -> bool:
        return holds(expression, self._context(events, bound))

    def _aggregate(self, events: Sequence[Released], node: Aggregate, candidates: Sequence[Bound]) -> Value:
        rows = []
        for bound in candidates:
            context = self._context(events, bound)
            try:
                rows.append(tuple(evaluate(argument, context) for argument in node.arguments))
            except EvaluationError:
                continue
        return aggregate(node.function, rows)

    def _context(self, events: Sequence[Released], bound: Bound) -> Context:
        terms = range(len(self._query.terms) + 1)
        values = [events[bound[term]].value if term in bound else None for term in terms]
        return Context(
            values, keys=self._keys(events[next(iter(bound.values()))]), world=self._world, invoke=run_action
        )

    def _keys(self, event: Released) -> Sequence[Value]:
        """The partition's key, which each of its events has."""
        if not self._may_ask_for_keys:
            return ()
        context = Context([event.value], world=self._world, invoke=run_action)
        return [evaluate(key, context) for key in self._query.inputs[event.input].keys]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the query."""
        return self._query.inputs

    def transitions(self, state: int, kind: int) -> Iterator[list[Transition]]:
        """What a state may do with an event of an input: ways that bind more names first, those of equal number together."""
        able = [item for item in self._query.automaton.states[state].transitions if item.input == kind]
        for _, ways in groupby(able, key=lambda item: len(item.binds)):
            yield list(ways)


def _expressions(query: QueryPlan) -> Iterator[Expression]:
    for item in query.conditions:
        if isinstance(item, Where | Without) and item.condition is not None:
            yield item.condition


def _may_ask_for_keys(expression: Expression) -> bool:
    """Whether it mentions a key, or calls an action, which may."""
    return any(isinstance(node, KeyOf | Invoke) for node in walk(expression))


class _Search:
    """The search for candidates at the moment of one event. `current`: positions in the windows, newest first."""

    def __init__(self, matcher: ReferenceMatcher, events: Sequence[Released], latest: int, among: range) -> None:
        self._matcher = matcher
        self._events = events
        places = [place for place in among if place <= latest]
        self.current = in_windows(events, latest, matcher.inputs, places)

    def winner(self, state: int, before: int, bound: Bound) -> Bound | None:
        """The most recent candidate that goes on from here.

        Depth first, newer events first: the first one found is the winner. Only where one event may serve different
        names, equally many, do all of these ways have to be gone.

        `before`: only positions up to this one may be consumed; in the start state it is the latest event, which must be.
        """
        for position in self.current:
            if position > before:
                continue
            for ways in self._matcher.transitions(state, self._events[position].input):
                found = [done for way in ways if (done := self._through(way, position, bound)) is not None]
                if found:
                    return max(found, key=self._matcher.recency)
            if state == 0:
                break
        return None

    def _through(self, way: Transition, position: int, bound: Bound) -> Bound | None:
        extended = self._consumed(way, position, bound)
        if extended is None or way.target == ACCEPT:
            return extended
        return self.winner(way.target, position - 1, extended)

    def candidates(self, state: int, before: int, bound: Bound) -> Iterator[Bound]:
        """All candidates that go on from here, whatever their latest event."""
        for position in self.current:
            if position > before:
                continue
            for ways in self._matcher.transitions(state, self._events[position].input):
                for way in ways:
                    extended = self._consumed(way, position, bound)
                    if extended is None:
                        continue
                    if way.target == ACCEPT:
                        yield extended
                    else:
                        yield from self.candidates(way.target, position - 1, extended)

    def _consumed(self, way: Transition, position: int, bound: Bound) -> Bound | None:
        """What is bound after the transition has taken the event at `position`; None where a condition forbids it."""
        extended = {**bound, **dict.fromkeys(way.binds, position)}
        is_last = way.target == ACCEPT
        checks = (self._matcher.permits(self._events, index, extended, self, is_last=is_last) for index in way.checks)
        return extended if all(checks) else None


def in_windows(events: Sequence[Released], latest: int, inputs: Sequence[Input], places: Sequence[int]) -> list[int]:
    """Positions of the events that are in their input's window at the moment of the latest event, newest first.

    Younger than `within` (strict), among the `retain` most recent of their input, and no newer one has taken their place.
    `places`: the partition's positions up to the latest.
    """
    seen = [0] * len(inputs)
    current: list[int] = []
    for position in reversed(places):
        event = events[position]
        window = inputs[event.input]
        seen[event.input] += 1
        is_young = window.within is None or events[latest].time - event.time < known(window.within)
        is_retained = window.retain is None or seen[event.input] <= known(window.retain)
        if is_young and is_retained and event.superseded > latest:
            current.append(position)
    return current
