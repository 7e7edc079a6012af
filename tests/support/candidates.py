"""All candidates of a pattern, by enumeration: every name bound to every event it could have, then every rule asked.

Written from the rules' text with no thought for speed. An event is its position in the partition's order; a candidate
binds names to positions, unset names are left out. Uses nothing of `runtime`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.support.admission_oracle import Released
from tests.support.conditions import MOMENT, Values, is_true, names_in
from tests.support.patterns import Both, Chain, Either, Leaf, Pattern, Where, Within, Without
from tests.support.scenario import PAYLOAD, SECOND, InputSetup, Scenario, half_of

Candidate = Mapping[str, int]
MOST = 20_000
"""Patterns with more candidates than this at one event are not for enumeration."""

Edge = tuple[int, int | float]
"""An end of a range as (time, place): a point in time stands before (-inf) or after (+inf) all events of its time."""


class TooManyError(Exception):
    """There are more candidates than anybody wants to look at."""


def window(item: InputSetup, index: int, events: Sequence[Released]) -> list[int]:
    """The positions of an input's events in its window at the moment of the last of a partition's events."""
    own = [position for position, event in enumerate(events) if event.input == index]
    recent = own if item.retain is None else own[-item.retain :]
    now = events[-1].time
    live = [position for position in recent if item.within is None or now - events[position].time < item.within]
    if not item.unique:
        return live
    newest = {unique_value(item, events[position]) or position: position for position in live}
    return [position for position in live if position in newest.values()]


def unique_value(item: InputSetup, event: Released) -> tuple[object, ...] | None:
    """What `with unique` compares; None where a part has no value: such an event is nobody's duplicate."""
    value = tuple(half_of(event.row) if name == "half" else getattr(event.row, name) for name in item.unique)
    return None if None in value else value


def windows_of(scenario: Scenario, events: Sequence[Released]) -> dict[str, list[int]]:
    """The window of each event type that is an input."""
    return {item.event: window(item, index, events) for index, item in enumerate(scenario.inputs)}


def structures(pattern: Pattern, windows: Mapping[str, Sequence[int]]) -> list[Candidate]:
    """Every binding that the pattern's shape allows. Raises TooManyError."""
    match pattern:
        case Leaf(event, name):
            found: list[Candidate] = [{name: position} for position in windows[event]]
        case Chain(parts):
            first, *rest = (structures(part, windows) for part in parts)
            found = first
            for later in rest:
                found = joined(found, later, comes_before)
        case Both(left, right):
            found = joined(structures(left, windows), structures(right, windows), lambda _left, _right: True)
        case Either(left, right):
            sides = structures(left, windows), structures(right, windows)
            found = [*sides[0], *sides[1], *joined(*sides, has_same_events)]
    return found


def joined(
    left: Sequence[Candidate], right: Sequence[Candidate], fits: Callable[[Candidate, Candidate], bool]
) -> list[Candidate]:
    """Every pair of two sides' bindings that fit."""
    if len(left) * len(right) > MOST * 10:
        raise TooManyError
    found = [{**one, **other} for one, other in itertools.product(left, right) if fits(one, other)]
    if len(found) > MOST:
        raise TooManyError
    return found


def comes_before(left: Candidate, right: Candidate) -> bool:
    """All of the left side is earlier than all of the right side; then they share no event."""
    return max(left.values()) < min(right.values())


def has_same_events(left: Candidate, right: Candidate) -> bool:
    """Both sides bind exactly the same events."""
    return set(left.values()) == set(right.values())


def recency(names: Sequence[str], candidate: Candidate) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the *recent* policy compares: the events newest first, one a name; then the names' from the last written."""
    newest_first = tuple(sorted(candidate.values(), reverse=True))
    return newest_first, tuple(candidate.get(name, -1) for name in reversed(names))


class Judge:
    """Decides conditions over the events of one partition, at the moment of the last of them."""

    def __init__(self, scenario: Scenario, events: Sequence[Released]) -> None:
        self.scenario = scenario
        self.names = scenario.names
        self.events = events
        self.windows = windows_of(scenario, events)

    def candidates(self) -> list[Candidate]:
        """Those that the shape allows, the most recent first."""
        found = structures(self.scenario.pattern, self.windows)
        return sorted(found, key=lambda candidate: recency(self.names, candidate), reverse=True)

    def holds(self, candidate: Candidate) -> bool:
        """All conditions that are decided when the latest event comes."""
        return all(
            self.is_met(clause, candidate, self.windows)
            for clause in self.scenario.clauses
            if not reaches_wait(self.scenario, clause)
        )

    def is_met(
        self, clause: Where | Within | Without, candidate: Candidate, windows: Mapping[str, Sequence[int]]
    ) -> bool:
        """Whether a condition holds; one that mentions an unset name is ignored."""
        if any(name in self.names and name not in candidate for name in names_of(clause)):
            return True
        match clause:
            case Where(condition):
                return is_true(condition, self.bound(candidate))
            case Within(length, between):
                times = [self.time_of(name, candidate) for name in between or candidate]
                return max(times) - min(times) < length
            case Without():
                return not any(self.blocks(clause, candidate, position) for position in windows[clause.event])

    def blocks(self, clause: Without, candidate: Candidate, position: int) -> bool:
        """Whether this event is one that there must not be."""
        if position in candidate.values() or not self.is_inside(clause, candidate, position):
            return False
        bound = self.bound(candidate) | {clause.name: self.values_of(position)}
        return clause.condition is None or is_true(clause.condition, bound)

    def is_inside(self, clause: Without, candidate: Candidate, position: int) -> bool:
        """Whether an event lies strictly inside the range."""
        ends = [self.edge_of(name, candidate) for name in clause.between or self.whole(candidate)]
        return min(ends) < (self.events[position].time, position) < max(ends)

    def whole(self, candidate: Candidate) -> list[str]:
        """The names whose range is the whole pattern; a wait without a name goes by its place."""
        waits = {"<": self.scenario.leading, ">": self.scenario.trailing}
        return [*candidate, *(name for name, wait in waits.items() if wait is not None)]

    def edge_of(self, name: str, candidate: Candidate) -> Edge:
        """The position of a name in the order."""
        if name in candidate:
            return self.events[candidate[name]].time, candidate[name]
        is_leading = name == "<" or (self.scenario.leading is not None and name == self.scenario.leading.name)
        return self.time_of(name, candidate), float("inf") if is_leading else float("-inf")

    def time_of(self, name: str, candidate: Candidate) -> int:
        """The time of a name's event, or of a wait's point."""
        if name in candidate:
            return self.events[candidate[name]].time
        times = [self.events[position].time for position in candidate.values()]
        leading, trailing = self.scenario.leading, self.scenario.trailing
        if leading is not None and name in {"<", leading.name}:
            return min(times) - leading.length
        assert trailing is not None, name
        return max(times) + trailing.length

    def values_of(self, position: int) -> Values:
        """The fields of an event, and its time: what its type's own action `getTime` gives, if it has one."""
        event = self.events[position]
        has_action = self.scenario.inputs[event.input].time == "annotation"
        time = event.row.time if has_action else event.time
        values = {name: getattr(event.row, name) for name in PAYLOAD} | {"id": event.offset}
        return values | {MOMENT: None if time is None else time / SECOND}

    def bound(self, candidate: Candidate) -> dict[str, Values]:
        """The fields behind each name that is set."""
        return {name: self.values_of(position) for name, position in candidate.items()}


def names_of(clause: Where | Within | Without) -> Iterator[str]:
    """The names of the pattern and of waits in a clause's expression and its `between`."""
    match clause:
        case Where(condition):
            yield from names_in(condition)
        case Within(_, between):
            yield from between
        case Without(_, own, condition, between):
            yield from between
            if condition is not None:
                yield from names_in(condition) - {own}


def reaches_wait(scenario: Scenario, clause: Where | Within | Without) -> bool:
    """Whether a condition cannot be decided before the trailing wait ends."""
    if scenario.trailing is None or isinstance(clause, Where):
        return False
    if clause.between:
        return scenario.trailing.name in clause.between
    return isinstance(clause, Without)
