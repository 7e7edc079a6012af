"""Events that serve several inputs of one key: their positions, and the matchers that see them.

Where a type is several inputs, by their roles, each of a record's rows has a position of its own.
Rows of one key are neighbours there, and one event. The kernels know one input per event. So keys
with such an event are searched by the reference matcher, and all other keys by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import Expression
from querylang.plan.model import ACCEPT, Automaton, QueryPlan, State
from runtime.admission import lookup_of
from runtime.matching.interface import Found, Matcher, Ordered, Waiting, columns_of, relaid, wider
from runtime.number_arrays import Integers


def served_together(query: QueryPlan) -> Iterator[tuple[int, int]]:
    """The pairs of inputs of one type and key that an event may serve both, as far as their filters
    say."""
    for inputs in query.shared_types.values():
        for one, other in combinations(inputs, 2):
            items = query.inputs[one], query.inputs[other]
            if items[0].keys == items[1].keys and not _exclude_each_other(*(item.filter for item in items)):
                yield one, other


def _exclude_each_other(one: Expression | None, other: Expression | None) -> bool:
    """Whether two filters compare a field with different constants."""
    if one is None or other is None:
        return False
    first, second = lookup_of(one), lookup_of(other)
    are_known = first.values is not None and second.values is not None and first.field == second.field
    return are_known and not {*(first.values or ())} & {*(second.values or ())}


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


@dataclass(frozen=True, slots=True)
class Joined:
    """Positions by event.

    first, last: by event, the first and the last of its positions
    of: by position, its event
    """

    first: Integers
    last: Integers
    of: Integers

    @property
    def has_shared(self) -> bool:
        """Whether any event has several positions."""
        return len(self.first) < len(self.of)

    def ordered(self, events: Ordered) -> Ordered:
        """The same with positions by event; what supersedes an event is that of its first input."""
        of = np.append(self.of, len(self.first))
        return replace(
            events,
            start=of[events.start],
            fresh=of[events.fresh],
            row=events.row[self.first],
            input=events.input[self.first],
            time=events.time[self.first],
            superseded=events.superseded[:0],
            free=of[events.free] if len(events.free) else events.free,
            number=events.number[self.first[self.first < len(events.number)]],
            event=events.event[:0],
        )

    def waiting(self, waiting: Waiting) -> Waiting:
        """The same with positions by event."""
        members = np.where(waiting.members < 0, -1, self.of[waiting.members])
        return replace(waiting, members=members, latest=self.of[waiting.latest])

    def placed(
        self, found: Found, input_of: NDArray[np.int16], inputs: Sequence[int], are_events: Sequence[bool]
    ) -> Found:
        """What was found by event, by position: each member where it serves the input of its term.

        input_of: by position; inputs: by term; are_events: by aggregate
        """
        members, columns = found.members.copy(), columns_of(found.widths, len(inputs))
        for number, places in zip(inputs, columns, strict=True) if members.shape[1] else ():
            for place in range(places.start, places.stop):
                members[:, place] = self._serving(found.members[:, place], number, input_of)
        first = np.append(self.first, len(self.of))
        return replace(
            found,
            latest=self.last[found.latest],
            members=members,
            aggregates=tuple(
                pa.array(self.first[column.fill_null(0).to_numpy()], mask=column.is_null().to_numpy(False))
                if is_event
                else column
                for column, is_event in zip(found.aggregates, are_events, strict=True)
            ),
            free=first[found.free] if len(found.free) else found.free,
            errors=tuple((int(self.last[event]), text) for event, text in found.errors),
        )

    def _serving(self, events: Integers, number: int, input_of: NDArray[np.int16]) -> Integers:
        """The positions of events that serve an input; -1 = no event."""
        places = np.where(events < 0, -1, self.first[events])
        for _ in range(int((self.last - self.first).max())):
            places = np.where((places >= 0) & (input_of[places] != number), places + 1, places)
        return places


def joined_events(events: Ordered) -> Joined:
    """The positions by event; members of pending waits are events of their own."""
    count, placed = len(events.row), int(events.start[-1]) if len(events.start) else 0
    is_first = np.ones(count, np.bool_)
    if len(events.event):
        is_first[1:placed] = events.event[1:placed] != events.event[: max(placed - 1, 0)]
        is_first[events.start[:-1][events.start[:-1] < placed]] = True
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], count) - 1
    return Joined(first, last, np.cumsum(is_first) - 1)


class _Searching(Protocol):
    """What both matchers do."""

    def match(self, events: Ordered) -> Found: ...

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]: ...


class MatcherOfRoles:
    """A matcher for a query of which a type is several inputs.

    plain: for keys without an event that serves several inputs
    shared: for the other keys
    """

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
