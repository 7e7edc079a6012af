"""The matcher that is easy to believe: plain Python, one event at a time, one partition at a time.

Takes the events of one partition in their total order and the query's automaton; gives the matches by the *recent*
policy (`docs/matching.md`). It takes every query. The kernel matcher must agree with it on every stream.

Leaves to others: which events are admitted, filtered and released, and which released ones may be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querylang.automaton import ACCEPT, Transition
from querylang.plan import EventType, Input, Plan, QueryPlan
from runtime.interpreter import Values, holds


@dataclass(frozen=True, slots=True)
class Event:
    """A released event: the index of its input, its time (µs UTC) and its fields by name (None: null)."""

    input: int
    time: int
    values: Values


Positions = tuple[int, ...]
"""Positions of the terms' events in `window + released`, in the order of `QueryPlan.terms`."""


class ReferenceMatcher:
    """Finds the matches of one query; holds nothing between calls."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._types: tuple[EventType, ...] = tuple(plan.event(query.inputs[term.input].event) for term in query.terms)

    def matches(self, window: Sequence[Event], released: Sequence[Event]) -> list[tuple[int, Positions]]:
        """At most one match for each event of `released`: the event's position and those of the terms' events.

        `window`: what was released before and may still matter; `released`: what is new. Both in total order, all of
        `window` before all of `released`. Positions count through `window + released`.
        """
        events = [*window, *released]
        found: list[tuple[int, Positions]] = []
        for latest in range(len(window), len(events)):
            positions = self._match(events, latest)
            if positions is not None:
                found.append((latest, positions))
        return found

    def _match(self, events: Sequence[Event], latest: int) -> Positions | None:
        """The winning candidate that contains the latest event, if any."""
        current = in_windows(events, latest, self._query.inputs)
        return self._search(events, current, 0, latest, {})

    def _search(
        self, events: Sequence[Event], current: Sequence[int], state: int, before: int, bound: dict[int, int]
    ) -> Positions | None:
        """Depth first, newer events first: the first candidate that this finds is the most recent one.

        `current`: positions of the windows' events, newest first; `before`: only positions up to this one may be
        consumed; in the start state it is the latest event, which must be. `bound`: the position of each bound term.
        """
        for position in current:
            if position > before:
                continue
            for transition in self._query.automaton.states[state].transitions:
                extended = self._consume(events, transition, position, bound)
                if extended is None:
                    continue
                if transition.target == ACCEPT:
                    return tuple(extended[term] for term in range(len(self._query.terms)))
                positions = self._search(events, current, transition.target, position - 1, extended)
                if positions is not None:
                    return positions
            if state == 0:
                break
        return None

    def _consume(
        self, events: Sequence[Event], transition: Transition, position: int, bound: dict[int, int]
    ) -> dict[int, int] | None:
        """What is bound after the transition has taken the event at `position`; None where it may not."""
        event = events[position]
        if event.input != transition.input:
            return None
        extended = bound | dict.fromkeys(transition.binds, position)
        newest = events[max(extended.values())]
        if self._query.within is not None and newest.time - event.time >= self._query.within:
            return None
        values = [events[extended[term]].values if term in extended else None for term in range(len(self._types))]
        conditions = (self._query.conditions[check] for check in transition.checks)
        return extended if all(holds(condition, values, self._types) for condition in conditions) else None


def in_windows(events: Sequence[Event], latest: int, inputs: Sequence[Input]) -> list[int]:
    """Positions of the events that are in their input's window at the moment of the latest event, newest first.

    Younger than `within` (strict) and among the `retain` most recent of their input.
    """
    seen = [0] * len(inputs)
    current: list[int] = []
    for position in range(latest, -1, -1):
        event = events[position]
        window = inputs[event.input]
        seen[event.input] += 1
        young = window.within is None or events[latest].time - event.time < window.within
        retained = window.retain is None or seen[event.input] <= window.retain
        if young and retained:
            current.append(position)
    return current
