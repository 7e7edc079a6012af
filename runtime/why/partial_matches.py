"""Partial matches: how far events of one key come in a pattern from its first step on, and why.

`runtime.why.funnel` says what a partial match is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import assert_never

import numpy as np

from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.plan.expression import terms_of
from querylang.plan.model import (
    ACCEPT,
    Condition,
    Gap,
    QueryPlan,
    Transition,
    Where,
    Within,
    Without,
    known,
    mentioned_terms,
)
from runtime.matching.reference import EventSearch, ReferenceMatcher
from runtime.why.all_keys import AllKeys
from runtime.why.clauses import Clause, What

_NOTHING = Clause(What.NEVER_CAME)

MOST_VISITS = 5_000
"""So many places are looked at for one first step."""

MOST_WINDOW = 1_000
"""So many events before one are looked at for a `without`, or those since the first step."""


@dataclass(frozen=True, slots=True)
class PatternStep:
    """A step. `transitions`: those that bind its event; none = the trailing wait.

    conditions: asked of a partial match that ends here, in this order
    """

    transitions: tuple[Transition, ...]
    conditions: tuple[int, ...] = ()


def steps_of(query: QueryPlan) -> tuple[PatternStep, ...]:
    """The steps in the order of the pattern, a trailing wait behind them."""
    line = list[tuple[Transition, ...]]()
    state = 0
    while state != ACCEPT:
        item = query.automaton.states[state]
        targets = {transition.target for transition in item.transitions}
        if item.accepts is not None or len(targets) != 1 or len(line) > len(query.terms):
            raise _refused(query)
        line.append(item.transitions)
        (state,) = targets
    if len(line) != len(query.automaton.states) or any(term.group is not None for term in query.terms):
        raise _refused(query)
    line.reverse()
    step_of = {term: number for number, own in enumerate(line) for item in own for term in item.binds}
    asked: list[list[int]] = [[] for _ in line]
    for index, condition in enumerate(query.conditions):
        if index not in query.decided_late:
            first, is_for_each = _first_asked(query, condition, step_of)
            for number in range(first, len(line) if is_for_each else first + 1):
                asked[number].append(index)
    ordered = [tuple(sorted(own, key=lambda index: _rank(query.conditions[index], index))) for own in asked]
    steps = [PatternStep(own, conditions) for own, conditions in zip(line, ordered, strict=True)]
    return tuple(steps) if query.trailing is None else (*steps, PatternStep((), query.decided_late))


def _refused(query: QueryPlan) -> InputError:
    return InputError(
        f"query '{query.name}': a pattern with repeats, optional steps or `and` has no steps in one order; "
        "`why` explains its events one by one"
    )


def _terms_of(query: QueryPlan, condition: Condition) -> set[int]:
    """The terms without which a condition is not asked.

    Of a `where` clause all, if one of them may be unset, as those of an `or` are; else those of the
    part between two `and`s.
    """
    terms = mentioned_terms(condition, len(query.terms))
    if isinstance(condition, Where) and not any(query.terms[term].is_optional for term in terms):
        return set(terms_of(condition.condition))
    return terms


def _first_asked(query: QueryPlan, condition: Condition, step_of: dict[int, int]) -> tuple[int, bool]:
    """The first step at which a condition is asked, and whether it is at later ones, too."""
    terms = _terms_of(query, condition)
    between = condition.between if isinstance(condition, Within | Without) else None
    if isinstance(condition, Gap):
        return min(step_of[term] for term in condition.after), True
    last = max((step_of[term] for term in terms), default=0)
    if between is not None:
        gaps = [query.gaps[number] for number in between.middle]
        last = max([last, *(min(step_of[term] for term in gap.after) for gap in gaps)])
    return last, isinstance(condition, Within | Without) and between is None


# How far partial matches come.

Rank = tuple[int, ...]
_NEVER_CAME: Rank = (0, 0)
_ORDER: Rank = (4, 0)
WAITS: Rank = (9, 0)

_Bound = dict[int, tuple[int, ...]]
_Failing = tuple[Rank, Clause]


def _rank(condition: Condition, index: int) -> Rank:
    """When a condition is asked; what fails later has come further. A window has 1."""
    match condition:
        case Within():
            return 2, index
        case Gap():
            return 3, index
        case Where():
            return 5, index
        case Without():
            return 6, index
    assert_never(condition)


@dataclass(slots=True)
class Way:
    """How far a partial match can be continued.

    steps: how many steps it has then
    positions: of the events behind it, of the earliest way
    rank, clause: why it ends there
    """

    steps: int
    positions: tuple[int, ...] = ()
    rank: Rank = _NEVER_CAME
    clause: Clause = _NOTHING

    def fails(self, rank: Rank, clause: Clause) -> None:
        """Another way ends at the same step."""
        if rank > self.rank:
            self.rank, self.clause = rank, clause

    def joins(self, position: int, rest: Way) -> None:
        """Another way goes over an event."""
        if rest.steps > self.steps:
            self.steps, self.positions, self.rank, self.clause = (
                rest.steps,
                (position, *rest.positions),
                rest.rank,
                rest.clause,
            )
        elif rest.steps == self.steps:
            self.positions = min(self.positions, (position, *rest.positions))
            self.fails(rest.rank, rest.clause)


class PartialMatches:
    """The partial matches of a query, one key after the other."""

    def __init__(
        self, query: QueryPlan, steps: Sequence[PatternStep], found: AllKeys, matcher: ReferenceMatcher, *, flush: bool
    ) -> None:
        self.query, self.steps, self._found, self._matcher = query, steps, found, matcher
        self.events, self._has_ended = found.events, flush
        self.times, self._numbers = found.events.times.tolist(), found.events.numbers.tolist()
        self._superseded, self._also = found.events.superseded.tolist(), found.events.also
        self._input = found.events.first_inputs.tolist()
        self._alone = [(item,) for item in range(len(query.inputs))]
        self._retain = [None if item.retain is None else known(item.retain) for item in query.inputs]
        self._counts = {
            item: np.cumsum(found.events.serve(item)).tolist()
            for item, retain in enumerate(self._retain)
            if retain is not None
        }
        self._within = [None if item.within is None else known(item.within) for item in query.inputs]
        self._whole = _whole_within(query)
        self._known_binds: dict[tuple[int, tuple[int, ...]], list[Transition]] = {}
        self._needed = [_needed_terms(query, steps, number) for number in range(len(steps))]
        self._compared = [tuple(sorted(_terms_of(query, item))) for item in query.conditions]
        self._visits = 0

    @property
    def is_cut(self) -> bool:
        """Whether not all partial matches of the last first step were looked at."""
        return self._visits > MOST_VISITS

    def limit_of(self, position: int) -> int | None:
        """For how long after a first step something can follow, µs; None = there is no limit."""
        own = [self._within[number] for item in self._binds(0, position) for number in item.inputs]
        longest = None if None in own else max((item for item in own if item is not None), default=None)
        return min((item for item in (longest, self._whole) if item is not None), default=None)

    def _binds(self, number: int, position: int) -> list[Transition]:
        """The transitions of a step that an event can take: by each input it serves."""
        also = self._also.get(position)
        served = self._alone[self._input[position]]
        if also is not None:
            served = (*served, *(item for item, _ in also))
        name = number, served
        if name not in self._known_binds:
            fitting = [item for item in self.steps[number].transitions if set(item.inputs) <= set(served)]
            self._known_binds[name] = fitting
        return self._known_binds[name]

    def of_key(self, key: range) -> Iterator[tuple[int, Way]]:
        """By event that could be a first step: how far it comes."""
        self._key = key
        self._places = [self._places_of(step, key) for step in self.steps]
        self._nowhere = EventSearch(self._matcher, self.events, key.start, range(key.start, key.start + 1))
        self._held: dict[tuple[object, ...], bool] = {}
        for first in self._places[0]:
            self._visits, self._first = 0, first
            self._ways: dict[tuple[object, ...], Way] = {}
            way = Way(0)
            for transition in self._binds(0, first):
                self._try(way, 0, first, transition, dict.fromkeys(transition.binds, (first,)), None)
            yield first, way
        self.events.forget(key.stop)

    def _places_of(self, step: PatternStep, key: range) -> list[int]:
        """The events of a key that could be a step."""
        found = np.zeros(len(key), np.bool_)
        for item in {item.input for item in step.transitions}:
            found |= self.events.serve(item)[key.start : key.stop]
        return [int(place) for place in np.flatnonzero(found) + key.start]

    def _try(
        self, way: Way, number: int, position: int, transition: Transition, bound: _Bound, before: int | None
    ) -> None:
        """Continues a partial match with an event as the step of a number, if nothing fails.

        before: the event that has to be right before it; None = any may be
        """
        failing = self._failing(number, position, bound, before)
        if failing is None:
            way.joins(position, self._from(number, position, transition, bound))
        elif way.steps == number:
            way.fails(*failing)

    def _from(self, number: int, position: int, transition: Transition, bound: _Bound) -> Way:
        """How far a partial match comes whose last event is the step of a number.

        Partial matches with the same last event and the same events that later conditions
        mention come equally far: the first step is the same for all that are compared here.
        """
        own = (bound.get(term) for term in self._needed[number])
        name = number, position, transition.follows, *own
        if name not in self._ways:
            self._ways[name] = self._continued(number, position, transition, bound)
        return self._ways[name]

    def _continued(self, number: int, position: int, last: Transition, bound: _Bound) -> Way:
        way, following = Way(number + 1), number + 1
        if following == len(self.steps):
            return way
        if not self.steps[following].transitions:
            self._outlive(way, position, bound)
            return way
        places, limit = self._places[following], self.limit_of(self._first)
        for at in range(bisect_right(places, position), len(places)):
            later = places[at]
            self._visits += 1
            if self.is_cut:
                break
            for transition in self._binds(following, later):
                extended = {**bound, **dict.fromkeys(transition.binds, (later,))}
                self._try(way, following, later, transition, extended, position if last.follows else None)
            # Behind the end of its window nothing continues, nor fails for what is asked later.
            is_over = limit is not None and self.times[later] - self.times[self._first] >= limit
            if is_over or way.steps == len(self.steps):
                break
        return way

    # What fails.

    def _failing(self, number: int, position: int, bound: _Bound, before: int | None) -> _Failing | None:
        """What keeps a partial match from being one; its last event is the step of a number."""
        gone = self._out_of_window(position, bound)
        if gone is not None:
            return gone
        is_next = before is None or self._numbers[before] == self._numbers[position] - 1
        conditions = self.query.conditions
        for index in self.steps[number].conditions:
            rank = _rank(conditions[index], index)
            if not is_next and rank > _ORDER:
                break
            if not self._permits(index, position, bound):
                return rank, Clause.of_condition(self.query, index)
        return None if is_next else (_ORDER, Clause(What.ORDER))

    def _permits(self, index: int, position: int, bound: _Bound) -> bool:
        """Whether a condition holds of one with this last event; a `where` is asked once."""
        condition = self.query.conditions[index]
        if not isinstance(condition, Where):
            search = self._search(position) if isinstance(condition, Without) else self._nowhere
            return self._matcher.permits(self.events, index, bound, search, is_last=True)
        name = index, position, *(bound.get(term) for term in self._compared[index])
        if name not in self._held:
            self._matcher.look_up_as_of(self.events[position])
            self._held[name] = self._matcher.permits(self.events, index, bound, self._nowhere, is_last=True)
        return self._held[name]

    def _search(self, position: int) -> EventSearch:
        start = max(self._key.start, min(self._first, position + 1 - MOST_WINDOW))
        return EventSearch(self._matcher, self.events, position, range(start, position + 1))

    def _out_of_window(self, latest: int, bound: _Bound) -> _Failing | None:
        """The first of the events that has left its window when the latest one comes."""
        served = sorted({(positions[0], self.query.terms[term].input) for term, positions in bound.items()})
        places = {position: order for order, position in enumerate(dict.fromkeys(position for position, _ in served))}
        for position, item in served:
            order = places[position]
            within, retain = self._within[item], self._retain[item]
            if within is not None and self.times[latest] - self.times[position] >= within:
                return (1, order, 0, item), Clause(What.WINDOW, item)
            by = self._superseded[position]
            if self._input[position] != item:
                by = next(by for other, by in self._also[position] if other == item)
            if by <= latest:
                return (1, order, 1, item), Clause(What.UNIQUE, item)
            if retain is not None and self._counts[item][latest] - self._counts[item][position] >= retain:
                return (1, order, 2, item), Clause(What.RETAIN, item)
        return None

    def _outlive(self, way: Way, position: int, bound: _Bound) -> None:
        """Whether a whole partial match outlives the trailing wait."""
        assert self.query.trailing is not None, "there is a trailing wait"
        due, end = self.times[position] + known(self.query.trailing.duration), position + 1
        while end < self._key.stop and self.times[end] < due:
            end += 1
        search, later = self._search(position), range(position + 1, end)
        for index in self.steps[-1].conditions:
            if not self._matcher.survives(index, self.events, bound, due, search, later, is_new=True):
                way.fails(_rank(self.query.conditions[index], index), Clause.of_condition(self.query, index))
                return
        if self._has_ended or due <= self._found.definitive(position):
            way.joins(position, Way(way.steps + 1))
        else:
            way.fails(WAITS, Clause(What.WAIT))


def _whole_within(query: QueryPlan) -> int | None:
    """The shortest `within` of all events of the pattern, µs; None = there is not one."""
    return min(
        (
            known(item.duration)
            for index, item in enumerate(query.conditions)
            if isinstance(item, Within) and item.between is None and index not in query.decided_late
        ),
        default=None,
    )


def _needed_terms(query: QueryPlan, steps: Sequence[PatternStep], number: int) -> tuple[int, ...]:
    """The terms up to a step whose events matter for what can follow it.

    They are mentioned later, may be what a later `without` looks for, as one of several inputs
    of their type, or may leave their window before the first step leaves its own.
    """
    later = [query.conditions[index] for step in steps[number + 1 :] for index in step.conditions]
    needed, sought = set[int](), {query.inputs[item.input].event for item in later if isinstance(item, Without)}
    for condition in later:
        needed |= _terms_of(query, condition)
        between = condition.between if isinstance(condition, Within | Without) else None
        for gap in query.gaps if between is not None or isinstance(condition, Gap) else ():
            needed |= {*gap.before, *gap.after}
    first = [query.inputs[item.input].within for item in steps[0].transitions]
    longest = None if any(item is None for item in first) else max(known(item) for item in first if item is not None)
    for term in (term for step in steps[: number + 1] for item in step.transitions for term in item.binds):
        item = query.inputs[query.terms[term].input]
        is_shorter = item.within is not None and (longest is None or known(item.within) < longest)
        if is_shorter or item.retain is not None or item.unique or item.event in sought:
            needed.add(term)
    before = {term for step in steps[: number + 1] for item in step.transitions for term in item.binds}
    return tuple(sorted(needed & before))
