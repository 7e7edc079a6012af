"""Events that serve several inputs of one key: their positions, and the matchers that see them.

Where a type is several inputs, by their roles, each of a record's rows has a position of its own.
Rows of one key are neighbours there, and one event. The kernel knows this of patterns where at most
one of an event's positions can come into question at a time. By other patterns, keys with such an
event are searched by the reference matcher, and all other keys by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import replace
from querylang.plan.expression import Expression
from querylang.plan.model import ACCEPT, Automaton, QueryPlan, State
from runtime.admission import lookup_of
from runtime.matching.interface import Found, Matcher, Ordered, Waiting, joined_events, relaid, wider
from runtime.matching.kernel.tables import is_ambiguous


def served_together(query: QueryPlan) -> Iterator[tuple[int, int]]:
    """The pairs of inputs that an event mostly serves both: those of one type and key, as far as
    their filters say."""
    for one, other in _of_one_type(query):
        if query.inputs[one].keys == query.inputs[other].keys:
            yield one, other


def _of_one_type(query: QueryPlan) -> Iterator[tuple[int, int]]:
    """The pairs of inputs that an event may serve both; with different keys where their values are
    equal."""
    for inputs in query.shared_types.values():
        for one, other in combinations(inputs, 2):
            if not _exclude_each_other(query.inputs[one].filter, query.inputs[other].filter):
                yield one, other


def _exclude_each_other(one: Expression | None, other: Expression | None) -> bool:
    """Whether two filters compare a field with different constants."""
    if one is None or other is None:
        return False
    first, second = lookup_of(one), lookup_of(other)
    are_known = first.values is not None and second.values is not None and first.field == second.field
    return are_known and not {*(first.values or ())} & {*(second.values or ())}


def knows_shared_events(query: QueryPlan) -> bool:
    """Whether the kernels find what the reference matcher does where an event serves several
    inputs: they do if no step may take an event in two ways."""
    apart = {frozenset(pair) for pair in _of_one_type(query)}
    taken = [{item.input for item in state.transitions} for state in query.automaton.states]
    takes_two = any(pair <= inputs for pair in apart for inputs in taken)
    return (
        not is_ambiguous(query)
        and not takes_two
        and not any(item.also for state in query.automaton.states for item in state.transitions)
    )


def of_one_input(query: QueryPlan) -> QueryPlan:
    """The same without the transitions that need an event which serves several inputs, and without
    the states that only these lead to, or that only these lead on from."""
    states = [
        replace(state, transitions=tuple(item for item in state.transitions if not item.also))
        for state in query.automaton.states
    ]
    ends = {ACCEPT, *(number for number, state in enumerate(states) if state.accepts is not None)}
    while more := [
        number
        for number, state in enumerate(states)
        if number not in ends and any(item.target in ends for item in state.transitions)
    ]:
        ends.update(more)
    kept = [0]
    for number in kept:
        targets = (item.target for item in states[number].transitions if item.target in ends)
        kept += [target for target in dict.fromkeys(targets) if target != ACCEPT and target not in kept]
    place = {number: index for index, number in enumerate(sorted(kept))} | {ACCEPT: ACCEPT}
    left = tuple(_renumbered(states[number], place) for number in sorted(kept))
    return replace(query, automaton=Automaton(left))


def _renumbered(state: State, place: Mapping[int, int]) -> State:
    """The transitions to states that are left, by their new numbers."""
    left = (item for item in state.transitions if item.target in place)
    return replace(state, transitions=tuple(replace(item, target=place[item.target]) for item in left))


class _Searching(Protocol):
    """What both matchers do."""

    def match(self, events: Ordered) -> Found: ...

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]: ...


class MatcherOfRoles:
    """A matcher for a query of which a type is several inputs.

    plain: for keys without an event that serves several inputs
    shared: for the other keys
    """

    takes_may_end = False

    def __init__(self, plain: Matcher, shared: _Searching) -> None:
        self._plain, self._shared = plain, shared
        self.only_finds = plain.only_finds

    def match(self, events: Ordered) -> Found:
        """Each key by its matcher."""
        is_shared = _keys_with_shared(events)
        if not is_shared.any():
            return self._plain.match(events)
        plain = self._plain.match(_only(events, ~is_shared))
        shared = self._shared.match(_only(events, is_shared))
        return _merged(plain, shared, is_shared)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        """Each wait by the matcher of its key."""
        is_shared = _keys_with_shared(events)[waiting.key]
        if not is_shared.any():
            return self._plain.outlives(events, waiting)
        result = np.ones(len(waiting.key), np.bool_)
        for matcher, chosen in ((self._plain, ~is_shared), (self._shared, is_shared)):
            result[chosen] = matcher.outlives(events, waiting.only(chosen))
        return result


def _keys_with_shared(events: Ordered) -> NDArray[np.bool_]:
    found = np.zeros(len(events.fresh), np.bool_)
    joined = joined_events(events)
    if joined.has_shared:
        several = joined.first[joined.first < joined.last]
        found[np.searchsorted(events.start, several, side="right") - 1] = True
    return found


def _only(events: Ordered, keys: NDArray[np.bool_]) -> Ordered:
    """The same where only these keys have new events."""
    return replace(events, fresh=np.where(keys, events.fresh, events.start[1:]))


def _merged(plain: Found, shared: Found, is_shared: NDArray[np.bool_]) -> Found:
    """What both have found, in order."""
    order = np.argsort(np.concatenate([plain.latest, shared.latest]), kind="stable")
    widths = wider(plain.widths, shared.widths) if plain.widths and shared.widths else plain.widths or shared.widths
    members = [relaid(found.members, found.widths, widths, -1) for found in (plain, shared)]
    return Found(
        latest=np.concatenate([plain.latest, shared.latest])[order],
        members=np.concatenate(members)[order],
        aggregates=tuple(
            pa.concat_arrays([one, other.cast(one.type)]).take(pa.array(order))
            for one, other in zip(plain.aggregates, shared.aggregates, strict=True)
        ),
        free=np.where(is_shared, shared.free, plain.free) if len(plain.free) else plain.free,
        errors=tuple(sorted((*plain.errors, *shared.errors))),
        widths=widths,
    )
