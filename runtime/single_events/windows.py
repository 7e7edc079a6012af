"""The events in the windows of one query, and what a new event finds among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import Aggregate, Expression
from querylang.plan.model import EventType, Plan, QueryPlan, Where, Without, known
from runtime.admission import Waited
from runtime.instants import NEVER, NO_TIME
from runtime.interpreter import (
    Context,
    EvaluationError,
    Event,
    PlanWorld,
    Value,
    aggregate,
    evaluate,
    holds,
    run_action,
)
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Bindings
from runtime.matching.reference import ReferenceMatcher, ReleasedEvent, windows_at
from runtime.results.matched import Coordinates

# What is known of events and of the matches that they bring.

Key = tuple[Value, ...]
"""A key as Python compares it."""


Arguments = tuple[tuple[Value, ...] | None, ...]
"""By aggregate, the values of its arguments for one candidate; None = one has no value."""


class UnforeseenError(Exception):
    """Only the engine can tell what an event brings, now or later."""


@dataclass(frozen=True, slots=True)
class SingleEvent:
    """An event as it arrives.

    values: by field; none is null
    arrival: µs
    declared: the time in the source's column, µs; NO_TIME = none
    place: None = only the engine knows its coordinates
    """

    type: EventType
    values: Mapping[str, Value]
    arrival: int
    place: Coordinates | None
    declared: int = NO_TIME


@dataclass(frozen=True, slots=True)
class Known(ReleasedEvent):
    """A released event.

    superseded: NEVER, or 0 = by an event before the latest one
    source_time: µs; NO_TIME = none
    place: as in `SingleEvent`
    unique: what `with unique` compares; None = nothing
    arguments: as a candidate of `runtime.single_events.windows`; None = it is not one
    """

    source_time: int = NO_TIME
    place: Coordinates | None = None
    unique: Key | None = None
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class FoundMatch:
    """A match.

    key: its key, as `latest` has it
    latest: its latest event
    members: by term, or of a `find every` by select that is an event; None = unset
    time: of the match, µs
    definitive: the watermark when it was found, µs
    emitted: when it was found, µs
    waited: what it waited for
    rank: orders the matches of a key at the same time
    selected: of a `find every`, the values of the other selects by name
    """

    key: Key
    latest: Known
    members: tuple[Known | None, ...]
    time: int
    definitive: int = NO_TIME
    emitted: int = NO_TIME
    waited: Waited = Waited.NONE
    rank: int = 0
    selected: Mapping[str, Value] = field(default_factory=dict)

    @property
    def has_places(self) -> bool:
        """Whether the coordinates of all its events are known."""
        return all(event is None or event.place is not None for event in (self.latest, *self.members))


# `find every` of one name: each event is asked once, and not again with every later event.


def has_one_name(query: QueryPlan) -> bool:
    """Whether each event is a candidate by itself, whatever other events there are."""
    waits = query.leading is not None or query.trailing is not None
    return len(query.terms) == 1 and not waits and all(isinstance(item, Where) for item in query.conditions)


class OneName:
    """The aggregates of a query that `has_one_name`, as `ReferenceMatcher.aggregated` has them."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        assert query.every is not None, "only `find every` has aggregates"
        (self._term,), self._world = query.terms, PlanWorld(plan, query)
        self._conditions = [item.condition for item in query.conditions if isinstance(item, Where)]
        self._aggregates = [(node, query.every.term_of(node) is not None) for node in aggregates_of(query)]

    def arguments(self, item: int, event: Event, keys: Sequence[Value]) -> Arguments | None:
        """An event as a candidate; None = it is not one.

        item: the number of its input
        keys: the values of its key
        """
        if item != self._term.input:
            return None
        if not all(holds(condition, self._context(event, keys)) for condition in self._conditions):
            return None
        return tuple(self._values(node, event, keys) for node, _ in self._aggregates)

    def aggregates(self, events: Sequence[Known], places: Sequence[int]) -> list[Value]:
        """By aggregate its value; of one that is an event, the place of the event.

        places: of the candidates in the windows, oldest first
        """
        return [self._aggregate(events, places, number) for number, _ in enumerate(self._aggregates)]

    def _aggregate(self, events: Sequence[Known], places: Sequence[int], number: int) -> Value:
        node, is_event = self._aggregates[number]
        rows: list[tuple[Any, ...]] = []
        for place in places:
            asked = events[place].arguments
            assert asked is not None, "it is a candidate"
            values = asked[number]
            if values is not None:
                rows.append((place, *values[1:]) if is_event else values)
        return aggregate(node.function, rows)

    def _values(self, node: Aggregate, event: Event, keys: Sequence[Value]) -> tuple[Value, ...] | None:
        context = self._context(event, keys)
        try:
            values = tuple(evaluate(argument, context) for argument in node.arguments)
        except EvaluationError:
            return None
        return None if None in values and not self._world.nulls_fail else values

    def _context(self, event: Event, keys: Sequence[Value]) -> Context:
        return Context([event, None], keys=keys, world=self._world, invoke=run_action)


# `find every`: what one match selects.


class Selects:
    """The selects of a query."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        assert query.every is not None, "only `find every` selects"
        self._every, self._world = query.every, PlanWorld(plan, query)
        self._values = [query.every.expanded(select.value) for select in query.every.selects]
        self._having = [query.every.expanded(condition) for condition in query.every.having]
        self._aggregates = aggregates_of(query)

    def finding(
        self, events: Sequence[Known], latest: Known, aggregates: Sequence[Any], keys: Sequence[Value]
    ) -> FoundMatch | None:
        """The match; None if a `having` is not true.

        aggregates: by aggregate its value; of one that is an event, its position in `events`
        """
        chosen: dict[str, Known | None] = {}
        known: dict[Aggregate, Value] = {}
        of_aggregates: dict[Expression, Known | None] = {}
        for node, value in zip(self._aggregates, aggregates, strict=True):
            if self._every.term_of(node) is None:
                known[node] = value
            else:
                event = None if value is None else events[value]
                of_aggregates[node] = event
                known[node] = None if event is None else event.value
        selects: dict[int, Value] = {}
        values: dict[str, Value] = {}
        for index, select in enumerate(self._every.selects):
            if select.value in of_aggregates:
                chosen[select.name] = of_aggregates[select.value]
                selects[index] = known[select.value]  # type: ignore[index]
            else:
                selects[index] = values[select.name] = self._value(self._values[index], known, selects, keys)
        if not all(self._value(condition, known, selects, keys) for condition in self._having):
            return None
        return FoundMatch(tuple(keys), latest, tuple(chosen.values()), latest.time, selected=values)

    def _value(
        self, expression: Expression, known: dict[Aggregate, Value], selects: dict[int, Value], keys: Sequence[Value]
    ) -> Value:
        """None = it has no value."""
        context = Context(keys=keys, selects=selects, aggregates=known, world=self._world, invoke=run_action)
        try:
            return evaluate(expression, context)
        except EvaluationError:
            return None


_MOST_CANDIDATES = 2_000
"""A search among more is left to the engine."""

_MOST_AGGREGATED = 200
"""So is a `find every` of several names with more candidates, each of which costs more."""

_FEW = 32
"""So many events of a key are kept at least before those outside of their windows are removed."""

_LEAST_SWEPT = 1_000
"""So many events are kept at least before expired ones are looked for in all keys."""


class Windows:
    """The windows by key; the events of each in total order."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._query = query
        self._world = PlanWorld(plan, query)
        self._matcher = ReferenceMatcher(plan, query)
        self._selects = None if query.every is None else Selects(plan, query)
        self._one_name = OneName(plan, query) if query.every is not None and has_one_name(query) else None
        starts = query.automaton.states[0].transitions
        # Of a `find every` any event may be part of a candidate.
        self._may_end = set(range(len(query.inputs)))
        if query.every is None:
            self._may_end = {transition.input for transition in starts}
        has_without = any(isinstance(condition, Without) for condition in query.conditions)
        self._depth = (max(1, len(query.terms) - 1) if query.every is None else len(query.terms)) + has_without
        is_searched = query.every is not None and self._one_name is None
        self._most_candidates = _MOST_AGGREGATED if is_searched else _MOST_CANDIDATES
        # A skip is not known here, so more is found than there is.
        self._is_for_engine = bool(query.selects) or query.skip is not None or query.finds_all
        self._events: dict[Key, list[Known]] = {}
        self._count, self._most = 0, _LEAST_SWEPT
        # By key, if not `_FEW`: more events are looked through for those that have left.
        self._crowded: dict[Key, int] = {}

    def is_selected(self, event: Known) -> bool:
        """Whether an event passes the filter of its input."""
        item = self._query.inputs[event.input]
        return item.filter is None or holds(item.filter, self._context(event.value))

    def key_of(self, event: Known) -> Key:
        """The key of an event. Raises UnforeseenError."""
        return tuple(map(part_of_key, self._keys_of(event)))

    def add(self, key: Key, event: Known) -> None:
        """An event that is released."""
        item = self._query.inputs[event.input]
        events = self._events.setdefault(key, [])
        if item.unique:
            event = replace(event, unique=self._unique(item.unique, event))
            self._supersede(events, event)
        if self._one_name is not None:
            keys = self._keys_of(event)
            event = replace(event, arguments=self._one_name.arguments(event.input, event.value, keys))
        events.append(event)
        self._count += 1

    def take(self, key: Key, event: Known, definitive: int) -> list[FoundMatch] | None:
        """Adds an event that is released; gives the matches, or those that begin to wait.

        None = the engine knows them

        definitive: no later event is earlier, µs
        """
        self.add(key, event)
        if self._count > self._most:
            self._sweep(definitive)
        return self._found(key) if event.input in self._may_end else []

    def _found(self, key: Key) -> list[FoundMatch] | None:
        """What the latest event of a key finds."""
        events = self._events[key]
        if len(events) > self._crowded.get(key, _FEW) or len(events) ** self._depth > self._most_candidates:
            self._count -= len(events)
            events[:] = self._current(events)
            self._count += len(events)
            self._crowded[key] = max(_FEW, 2 * len(events))
            if len(events) ** self._depth > self._most_candidates:
                return None
        latest = len(events) - 1
        if self._selects is not None:
            selects, keys = self._selects, self._keys_of(events[latest])
            aggregated = self._aggregated(events, latest)
            chosen = [selects.finding(events, events[latest], values, keys) for values in aggregated]
            return [item for item in chosen if item is not None]
        matches = self._matcher.matches(events, range(len(events)), latest).matches
        if matches and self._is_for_engine:
            return None
        found = []
        for _, bindings in matches:
            if self._query.trailing is None or self._begins_to_wait(events, bindings):
                terms = range(len(self._query.terms))
                members = [events[bindings[term][0]] if term in bindings else None for term in terms]
                found.append(self.finding(events[latest], members))
        return found

    def _aggregated(self, events: Sequence[Known], latest: int) -> list[Sequence[Value]]:
        """The aggregates over all candidates, if the latest event is part of one."""
        if self._one_name is None:
            return [values for _, values in self._matcher.aggregated(events, range(len(events)), latest)]
        if events[latest].arguments is None:
            return []
        newest_first = list(windows_at(events, latest, self._query.inputs, range(len(events))))
        candidates = [place for place in reversed(newest_first) if events[place].arguments is not None]
        return [self._one_name.aggregates(events, candidates)]

    def _begins_to_wait(self, events: Sequence[Known], bindings: Bindings) -> bool:
        """Whether no condition on a match's trailing wait is false already."""
        assert self._query.trailing is not None, "the query has a trailing wait"
        due, places = events[-1].time + known(self._query.trailing.duration), range(len(events))
        return self._matcher.outlives(events, bindings, len(events) - 1, due, places, is_new=True)

    def outlives(self, found: FoundMatch, event: Known) -> bool:
        """Whether a match still waits after another event of its key."""
        members = {term: member for term, member in enumerate(found.members) if member is not None}
        events = [*members.values(), event]
        positions = {id(member): position for position, member in enumerate(events)}
        bindings = {term: (positions[id(member)],) for term, member in members.items()}
        latest = positions[id(found.latest)]
        later = range(len(events) - 1, len(events))
        return self._matcher.outlives(events, bindings, latest, found.time, later, is_new=False)

    def finding(self, latest: Known, members: Sequence[Known | None]) -> FoundMatch:
        """A match of these events."""
        return FoundMatch(tuple(self._keys_of(latest)), latest, tuple(members), latest.time)

    def _keys_of(self, event: Known) -> list[Value]:
        return self._values(self._query.inputs[event.input].keys, event.value)

    def _unique(self, unique: Sequence[Expression], event: Known) -> Key | None:
        """What `with unique` compares; None = there is no value."""
        context = self._context(event.value)
        try:
            values = [evaluate(part, context) for part in unique]
        except EvaluationError:
            return None
        return None if None in values else tuple(map(part_of_key, values))

    def _supersede(self, events: list[Known], new: Known) -> None:
        """The older event with these unique values leaves its window; it counts for `retain`."""
        for place, other in enumerate(events):
            is_old = other.input == new.input and other.unique == new.unique and other.superseded == NEVER
            if is_old and new.unique is not None:
                events[place] = replace(other, superseded=0)

    def _values(self, expressions: Sequence[Expression], event: Event) -> list[Value]:
        context = self._context(event)
        try:
            return [evaluate(part, context) for part in expressions]
        except EvaluationError:
            raise UnforeseenError from None

    def _context(self, event: Event) -> Context:
        return Context([event], world=self._world, invoke=run_action)

    def _sweep(self, clock: int) -> None:
        """Remove the events that have left their windows."""
        for key, events in list(self._events.items()):
            events[:] = self._current([event for event in events if self._is_young(event, clock)])
            if not events:
                del self._events[key]
        self._crowded.clear()
        self._count = sum(map(len, self._events.values()))
        self._most = max(_LEAST_SWEPT, 2 * self._count)

    def _current(self, events: Sequence[Known]) -> list[Known]:
        """Those of one key that matter in their windows after the latest of them."""
        counted = [event if event.superseded == NEVER else replace(event, superseded=NEVER) for event in events]
        latest, places = len(events) - 1, range(len(events))
        newest_first = list(windows_at(counted, latest, self._query.inputs, places)) if events else []
        return [events[place] for place in reversed(newest_first)]

    def _is_young(self, event: Known, clock: int) -> bool:
        within = self._query.inputs[event.input].within
        return within is None or clock - event.time < known(within)


def part_of_key(value: Any) -> Value:
    """A part of a key, as Python compares it."""
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124  NaN, which is one key
            raise UnforeseenError
        return value + 0.0  # -0.0 and 0.0 are one key
    if not isinstance(value, bool | int | str):
        raise UnforeseenError
    return value
