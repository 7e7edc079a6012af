"""The reference matcher: plain Python, one event at a time, easy to verify.

It runs every query: matches by the *recent* policy (`docs/matching.md`), the aggregates of a `find
every`, and which trailing waits no event has ended. The kernel must agree with it on every stream.
It gets the released events of one key in total order; admission, filters and eviction are done
elsewhere.
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
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate, holds
from runtime.interpreter.statements import run_action
from runtime.interpreter.values import EvaluationError, Event, Value
from runtime.matching.find_every import aggregates_of


@dataclass(frozen=True, slots=True)
class Released:
    """A released event.

    input: the index of its input
    time: µs UTC
    superseded: the position of the next event that supersedes it (`with unique`); NEVER = none
    """

    input: int
    time: int
    value: Event
    superseded: int = NEVER


Bindings = Mapping[int, int]
"""By term, the position of its event; a term that is not bound is missing."""


class ReferenceMatcher:
    """Finds the matches of one query; keeps nothing between calls."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._world = PlanWorld(plan, query)
        self._conditions = query.conditions
        self._aggregates = aggregates_of(query)
        self._may_mention_keys = any(_may_mention_keys(node) for node in (*_expressions(query), *self._aggregates))
        self._leading = None if query.leading is None else known(query.leading.duration)

    def matches(self, events: Sequence[Released], key: range, first_new: int) -> list[tuple[int, Bindings]]:
        """At most one match per new event: its position and what the terms are bound to.

        `key`: the positions of one key, in total order; those from `first_new` on are new.
        """
        found: list[tuple[int, Bindings]] = []
        for latest in range(first_new, key.stop):
            search = _Search(self, events, latest, key)
            bindings = search.winner(0, latest, {})
            if bindings is not None:
                found.append((latest, bindings))
        return found

    def aggregated(self, events: Sequence[Released], key: range, first_new: int) -> list[tuple[int, tuple[Value, ...]]]:
        """New events that are part of a candidate, each with the aggregates over all candidates."""
        found: list[tuple[int, tuple[Value, ...]]] = []
        for latest in range(first_new, key.stop):
            searched = list(_Search(self, events, latest, key).candidates(0, latest, {}))
            if any(latest in bindings.values() for bindings in searched):
                oldest_first = sorted(searched, key=self.recency)
                orders = (oldest_first if node.function in BY_RECENCY else searched[::-1] for node in self._aggregates)
                nodes = zip(self._aggregates, orders, strict=True)
                found.append((latest, tuple(self._aggregate(events, node, order) for node, order in nodes)))
        return found

    def outlives(
        self, events: Sequence[Released], bindings: Bindings, latest: int, due: int, key: range, *, is_new: bool
    ) -> bool:
        """Whether no condition that the trailing wait decides has ended it by now.

        bindings: the match's members; their positions need not be in `key`
        due: µs, the end of the wait
        key: the positions of the key; of a wait that is not new, those of its new events
        is_new: the wait begins in this call, so the events in the windows are checked too
        """
        search = _Search(self, events, latest, key=key if is_new else range(0))
        for index in self._query.decided_late:
            condition = self._conditions[index]
            assert not isinstance(condition, Where), "a `where` does not reach a wait"
            named = self._named(condition, bindings)
            if named is None:
                continue
            if isinstance(condition, Within):
                times = self._times(events, condition.between, bindings, due)
                if is_new and max(times) - min(times) >= known(condition.duration):
                    return False
                continue
            low, after = self._low(events, condition.between, bindings, named) if is_new else (-1, -NEVER)
            later = [position for position in key if position > latest] if is_new else list(key)
            inside = [
                position
                for position in (*search.in_window, *later)
                if position > low and events[position].time > after and events[position].time < due
            ]
            if self._blocks(events, condition, bindings, inside):
                return False
        return True

    def recency(self, bindings: Bindings) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the *recent* policy compares: positions newest first, one per name; then by name."""
        terms = range(len(self._query.terms))
        return tuple(sorted(bindings.values(), reverse=True)), tuple(bindings.get(term, -1) for term in reversed(terms))

    def permits(
        self, events: Sequence[Released], index: int, bindings: Bindings, search: _Search, *, is_last: bool
    ) -> bool:
        """Whether a condition is true as far as its names are bound; `is_last`: no more will be."""
        condition = self._conditions[index]
        match condition:
            case Where(condition=expression):
                return self._is_true(events, expression, bindings)
            case Within(duration=duration, between=between):
                times = self._times(events, between, bindings, None)
                return max(times) - min(times) < known(duration)
            case Without(between=between):
                named = [
                    bindings[term] for term in (bindings if between is None else between.terms) if term in bindings
                ]
                is_leading = is_last and self._leading is not None and (between is None or between.leading)
                low, after = self._low(events, between, bindings, named) if is_leading else (min(named), -NEVER)
                inside = [
                    position
                    for position in search.in_window
                    if low < position < max(named) and events[position].time > after
                ]
                return not self._blocks(events, condition, bindings, inside)

    def _blocks(
        self, events: Sequence[Released], condition: Without, bindings: Bindings, inside: Sequence[int]
    ) -> bool:
        """Whether one of these events is a `without` event; members of the candidate are not."""
        number = len(self._query.terms)
        others = [
            position
            for position in inside
            if events[position].input == condition.input and position not in bindings.values()
        ]
        if condition.condition is None:
            return bool(others)
        return any(self._is_true(events, condition.condition, {**bindings, number: position}) for position in others)

    def _low(
        self, events: Sequence[Released], between: Between | None, bindings: Bindings, named: Sequence[int]
    ) -> tuple[int, int]:
        """Where a range begins: after this position, and after this time."""
        if self._leading is not None and (between is None or between.leading):
            return -1, min(events[position].time for position in bindings.values()) - self._leading
        return min(named), -NEVER

    def _times(
        self, events: Sequence[Released], between: Between | None, bindings: Bindings, due: int | None
    ) -> list[int]:
        """The times of a range's names as far as they are bound, those of its waits included."""
        terms = bindings if between is None else [term for term in between.terms if term in bindings]
        times = [events[bindings[term]].time for term in terms]
        if between is not None and between.leading:
            assert self._leading is not None, "the range names a leading wait"
            times.append(min(events[position].time for position in bindings.values()) - self._leading)
        if between is not None and between.trailing:
            assert due is not None, "the range names a trailing wait"
            times.append(due)
        return times

    def _named(self, condition: Condition, bindings: Bindings) -> list[int] | None:
        """The positions of the range's names; None: the condition mentions a name that is unset."""
        if not mentioned_terms(condition, len(self._query.terms)) <= bindings.keys():
            return None
        between = condition.between if isinstance(condition, Within | Without) else None
        return [bindings[term] for term in (bindings if between is None else between.terms)]

    def _is_true(self, events: Sequence[Released], expression: Expression, bindings: Bindings) -> bool:
        return holds(expression, self._context(events, bindings))

    def _aggregate(self, events: Sequence[Released], node: Aggregate, candidates: Sequence[Bindings]) -> Value:
        rows = []
        for bindings in candidates:
            context = self._context(events, bindings)
            try:
                rows.append(tuple(evaluate(argument, context) for argument in node.arguments))
            except EvaluationError:
                continue
        return aggregate(node.function, rows)

    def _context(self, events: Sequence[Released], bindings: Bindings) -> Context:
        terms = range(len(self._query.terms) + 1)
        values = [events[bindings[term]].value if term in bindings else None for term in terms]
        return Context(
            values, keys=self._keys(events[next(iter(bindings.values()))]), world=self._world, invoke=run_action
        )

    def _keys(self, event: Released) -> Sequence[Value]:
        """The values of the key, which each of its events has."""
        if not self._may_mention_keys:
            return ()
        context = Context([event.value], world=self._world, invoke=run_action)
        return [evaluate(key, context) for key in self._query.inputs[event.input].keys]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the query."""
        return self._query.inputs

    def transitions(self, state: int, kind: int) -> Iterator[list[Transition]]:
        """A state's transitions for an input in groups of ties, more names first."""
        fitting = [item for item in self._query.automaton.states[state].transitions if item.input == kind]
        for _, tied in groupby(fitting, key=lambda item: len(item.binds)):
            yield list(tied)


def _expressions(query: QueryPlan) -> Iterator[Expression]:
    for item in query.conditions:
        if isinstance(item, Where | Without) and item.condition is not None:
            yield item.condition


def _may_mention_keys(expression: Expression) -> bool:
    """Whether an expression mentions a key, or calls an action, which may mention one."""
    return any(isinstance(node, KeyOf | Invoke) for node in walk(expression))


class _Search:
    """The search with one event as the latest.

    in_window: positions in the windows, newest first
    """

    def __init__(self, matcher: ReferenceMatcher, events: Sequence[Released], latest: int, key: range) -> None:
        self._matcher = matcher
        self._events = events
        positions = [position for position in key if position <= latest]
        self.in_window = in_windows(events, latest, matcher.inputs, positions)

    def winner(self, state: int, newest: int, bindings: Bindings) -> Bindings | None:
        """The most recent candidate that completes these bindings from this state on.

        Depth first, newer events first: the first candidate found is the winner. Only if one event
        may serve different names, equally many, all tied transitions are explored and the best
        candidate is kept.

        `newest`: only positions up to this one may be consumed; the start state must consume it: it
        is the latest event.
        """
        for position in self.in_window:
            if position > newest:
                continue
            for tied in self._matcher.transitions(state, self._events[position].input):
                completed = (self._follow(transition, position, bindings) for transition in tied)
                found = [candidate for candidate in completed if candidate is not None]
                if found:
                    return max(found, key=self._matcher.recency)
            if state == 0:
                break
        return None

    def _follow(self, transition: Transition, position: int, bindings: Bindings) -> Bindings | None:
        """The most recent candidate after the transition has consumed the event at `position`."""
        extended = self._consume(transition, position, bindings)
        if extended is None or transition.target == ACCEPT:
            return extended
        return self.winner(transition.target, position - 1, extended)

    def candidates(self, state: int, newest: int, bindings: Bindings) -> Iterator[Bindings]:
        """All candidates that complete these bindings from this state on."""
        for position in self.in_window:
            if position > newest:
                continue
            for tied in self._matcher.transitions(state, self._events[position].input):
                for transition in tied:
                    extended = self._consume(transition, position, bindings)
                    if extended is None:
                        continue
                    if transition.target == ACCEPT:
                        yield extended
                    else:
                        yield from self.candidates(transition.target, position - 1, extended)

    def _consume(self, transition: Transition, position: int, bindings: Bindings) -> Bindings | None:
        """The bindings after consuming the event at `position`; None if a condition is false."""
        extended = {**bindings, **dict.fromkeys(transition.binds, position)}
        is_last = transition.target == ACCEPT
        permits = self._matcher.permits
        checks = (permits(self._events, index, extended, self, is_last=is_last) for index in transition.checks)
        return extended if all(checks) else None


def in_windows(events: Sequence[Released], latest: int, inputs: Sequence[Input], positions: Sequence[int]) -> list[int]:
    """Positions of the events in their input's window just after the latest event, newest first.

    Younger than `within` (strict), among the `retain` most recent of their input, not superseded by
    a newer event. `positions`: those of the key up to the latest.
    """
    seen = [0] * len(inputs)
    current: list[int] = []
    for position in reversed(positions):
        event = events[position]
        window = inputs[event.input]
        seen[event.input] += 1
        is_young = window.within is None or events[latest].time - event.time < known(window.within)
        is_retained = window.retain is None or seen[event.input] <= known(window.retain)
        if is_young and is_retained and event.superseded > latest:
            current.append(position)
    return current
