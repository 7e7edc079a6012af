"""`where`, `within` and `without`: whether a candidate fulfils them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.oracle.events import Event
from tests.oracle.expressions import (
    End,
    Field,
    Fold,
    Node,
    NoValueError,
    Prev,
    Scope,
    Whole,
    conjuncts,
    names_of,
    nodes,
    seconds,
    value,
)
from tests.oracle.placements import Placement, Windows, events_of
from tests.oracle.shapes import Kind


class Verdict(Enum):
    """What a condition says of one assignment."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_ASKED = "not asked"
    """It is about something that is not there."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An assignment with what its conditions look at.

    windows: by type the events that a `without` looks at
    """

    placement: Placement
    kinds: Mapping[str, Kind]
    windows: Windows

    def scope(self, given: Mapping[str, Event]) -> Scope:
        bound = self.placement.names
        single = {name: one for name, one in bound.items() if isinstance(one, Event)}
        runs = {name: one for name, one in bound.items() if isinstance(one, tuple)}
        return Scope({**single, **given}, runs, self.placement.members())

    def moments(self, name: str) -> list[Moment]:
        """Where a name of a `between` is; empty: it is unset, or a run of no event."""
        if name in self.placement.names:
            return [Moment(event.time, event.place) for event in events_of(self.placement.names[name])]
        point = self.placement.points[name]
        return [] if point is None else [Moment(point)]


@dataclass(frozen=True, slots=True)
class Moment:
    """An event, or a wait's point, which has a time only."""

    time: int
    place: int | None = None

    def is_before(self, event: Event) -> bool:
        return self.time < event.time if self.place is None else self.place < event.place

    def is_after(self, event: Event) -> bool:
        return self.time > event.time if self.place is None else self.place > event.place


@dataclass(frozen=True, slots=True)
class Where:
    condition: Node

    def text(self) -> str:
        return f"where {condition_text(self.condition)}"

    def reaches(self, _wait: str) -> bool:
        """Whether it concerns the point of the trailing wait."""
        return False

    def holds(self, candidate: Candidate) -> bool:
        parts = conjuncts(self.condition) if is_addition(self.condition, candidate.kinds) else [self.condition]
        return all(ask(part, candidate, {}) is not Verdict.FAILS for part in parts)


@dataclass(frozen=True, slots=True)
class Within:
    """`within d [between (a b)]`: strictly less than d from the first to the last."""

    length: int
    between: tuple[str, ...] = ()

    def text(self) -> str:
        return f"within {seconds(self.length)}{between_text(self.between)}"

    def reaches(self, wait: str) -> bool:
        return wait in self.between

    def holds(self, candidate: Candidate) -> bool:
        moments = named_moments(self.between, candidate) if self.between else whole_pattern(candidate, points=False)
        times = [moment.time for moment in moments or ()]
        return moments is None or max(times) - min(times) < self.length


@dataclass(frozen=True, slots=True)
class Without:
    """`without T as x [where p] [between (a b)]`."""

    type: str
    name: str
    where: Node | None = None
    between: tuple[str, ...] = ()

    def text(self) -> str:
        where = "" if self.where is None else f" where {condition_text(self.where)}"
        return f"without {self.type} as {self.name}{where}{between_text(self.between)}"

    def reaches(self, wait: str) -> bool:
        return not self.between or wait in self.between

    def holds(self, candidate: Candidate) -> bool:
        moments = named_moments(self.between, candidate) if self.between else whole_pattern(candidate)
        if moments is None:
            return True
        return not any(self.blocks(event, moments, candidate) for event in candidate.windows[self.type])

    def blocks(self, event: Event, moments: Sequence[Moment], candidate: Candidate) -> bool:
        """Whether the event lies strictly inside and is meant."""
        if event in candidate.placement.members():
            return False
        is_inside = any(one.is_before(event) for one in moments) and any(one.is_after(event) for one in moments)
        return is_inside and (self.where is None or is_meant(self.where, event, self.name, candidate))


Condition = Where | Within | Without


def condition_text(condition: Node) -> str:
    """Without brackets around what its top-level `and`s join."""
    return " and ".join(part.text() for part in conjuncts(condition))


def between_text(names: Sequence[str]) -> str:
    return f" between ({' '.join(names)})" if names else ""


def named_moments(names: Sequence[str], candidate: Candidate) -> list[Moment] | None:
    """The moments of all these names; None if one of them is unset."""
    each = [candidate.moments(name) for name in names]
    return [moment for moments in each for moment in moments] if all(each) else None


def whole_pattern(candidate: Candidate, *, points: bool = True) -> list[Moment]:
    """All events, and the points of the leading and the trailing wait, where they are in sight."""
    bound = [*candidate.placement.names, *(candidate.placement.points if points else ())]
    return [moment for name in bound for moment in candidate.moments(name)]


def is_meant(where: Node, event: Event, name: str, candidate: Candidate) -> bool:
    """Whether `p` of a `without` is true for the event; one that cannot be asked is not."""
    empty = [other for other in names_of(where) if candidate.placement.names.get(other) == ()]
    about = {item.name for item in nodes(where, folds=False) if isinstance(item, Field | Prev)}
    if about.intersection(empty):
        return False
    return ask(where, candidate, {name: event}) is Verdict.HOLDS


def is_addition(condition: Node, kinds: Mapping[str, Kind]) -> bool:
    """Whether it uses anything that Apama's language does not have."""
    own = any(isinstance(item, Prev | End | Fold | Whole) for item in nodes(condition))
    return own or any(kinds[name] is not Kind.PLAIN for name in names_of(condition))


def ask(condition: Node, candidate: Candidate, given: Mapping[str, Event]) -> Verdict:
    """What one condition says; `given`: the event of a `without`."""
    scope = candidate.scope(given)
    bound = {**candidate.placement.names, **given}
    if any(bound[name] is None for name in names_of(condition)) or lacks(condition, scope):
        return Verdict.NOT_ASKED
    each = [name for name in about_each(condition) if isinstance(bound[name], tuple)]
    askings = [
        dict(zip(each, events, strict=True)) for events in zip(*(scope.runs[name] for name in each), strict=True)
    ]
    if each and not askings:
        return Verdict.HOLDS
    verdicts = [ask_once(condition, scope.with_events(asking)) for asking in (askings if each else [{}])]
    if Verdict.FAILS in verdicts:
        return Verdict.FAILS
    return Verdict.HOLDS if Verdict.HOLDS in verdicts else Verdict.NOT_ASKED


def about_each(condition: Node) -> list[str]:
    """The names outside of folds, each once, as written."""
    fields = (item for item in nodes(condition, folds=False) if isinstance(item, Field | Prev))
    return [*dict.fromkeys(item.name for item in fields)]


def lacks(condition: Node, scope: Scope) -> bool:
    """Whether it asks for the first or last of an empty run, or for a `prev` of a plain name that does not exist."""
    for item in nodes(condition):
        match item:
            case End() if not scope.runs[item.name]:
                return True
            case Prev() if item.name in scope.single and scope.before(scope.single[item.name]) is None:
                return True
    return False


def ask_once(condition: Node, scope: Scope) -> Verdict:
    """What it says with one event for each name."""
    asked = (scope.single[item.name] for item in nodes(condition) if isinstance(item, Prev))
    if any(scope.before(event) is None for event in asked):
        return Verdict.NOT_ASKED
    try:
        return Verdict.HOLDS if value(condition, scope) else Verdict.FAILS
    except NoValueError:
        return Verdict.FAILS
