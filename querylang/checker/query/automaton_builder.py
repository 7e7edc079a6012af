"""The automaton of a pattern: states, transitions, and on each transition the conditions that it decides.

Takes a checked query; gives the table that the matchers run, and which conditions wait for the trailing wait. A state
is a pair: what of the pattern is still to be found further back, and which terms are bound already. Transitions come
from taking the pattern's newest event off it, in every way in which that event may serve its names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from querylang.checker.checked import Both, CheckedQuery, Either, Pattern, Sequence, TermOf
from querylang.plan.automaton import ACCEPT, Automaton, State, Transition
from querylang.plan.expression import terms_of
from querylang.plan.model import Between, Condition, Term, Where, Within, Without, mentioned_terms

MOST_TRANSITIONS = 20_000
"""`and` multiplies: of n terms of one type that are joined by it, about 3 to the n ways."""


class TooLargeError(ValueError):
    """A pattern with more than MOST_TRANSITIONS transitions."""


@dataclass(frozen=True, slots=True)
class Alike:
    """What is left of an `or` of which both sides take the same events; an empty side is None."""

    left: Rest
    right: Rest


Rest = Pattern | Alike | None
"""What is still to be found; None: nothing."""


class Step(NamedTuple):
    """One event of `input` serves the terms `binds`; `rest` is left."""

    input: int
    binds: frozenset[int]
    rest: Rest


def build(query: CheckedQuery) -> tuple[Automaton, tuple[int, ...]]:
    """The automaton, and the indexes of the conditions that only the end of the trailing wait decides.

    Raises TooLargeError.
    """
    assert query.pattern is not None, "a query without mistakes has a pattern"
    late = tuple(index for index, condition in enumerate(query.conditions) if _is_late(condition, query))
    placement = _Placement(query, frozenset(late))
    # an `or` term that no condition names makes no difference: states are told apart without it
    relevant = placement.mentioned | {index for index, term in enumerate(query.terms) if not term.is_optional}
    start: tuple[Rest, frozenset[int]] = (query.pattern, frozenset())
    numbers, waiting = {start: 0}, [start]
    states, size = list[State](), 0
    while len(states) < len(waiting):
        rest, bound = waiting[len(states)]
        transitions = []
        for step in _preferred(_steps(rest, query.terms)):
            after = (bound | step.binds) & relevant
            target = ACCEPT
            if step.rest is not None:
                known = len(numbers)
                target = numbers.setdefault((step.rest, after), known)
                if target == known:
                    waiting.append((step.rest, after))
            checks = placement.checks(bound, after, is_first=not states, is_last=target == ACCEPT)
            transitions.append(Transition(step.input, tuple(sorted(step.binds)), checks, target))
        size += len(transitions)
        if size > MOST_TRANSITIONS:
            raise TooLargeError
        states.append(State(tuple(transitions)))
    return _in_order(states), late


def _in_order(states: list[State]) -> Automaton:
    """The states so that each leads to later ones only, and without dead ends.

    A dead end is what is left of an `or` whose sides cannot take the same events to the end.
    """
    entries = Counter(item.target for state in states for item in state.transitions)
    order = [0]
    for number in order:
        for item in states[number].transitions:
            entries[item.target] -= 1
            if item.target != ACCEPT and not entries[item.target]:
                order.append(item.target)
    alive = {ACCEPT}
    for number in reversed(order):
        if any(item.target in alive for item in states[number].transitions):
            alive.add(number)
    kept = [number for number in order if number in alive]
    place = {number: index for index, number in enumerate(kept)} | {ACCEPT: ACCEPT}
    return Automaton(tuple(_renumbered(states[number], place) for number in kept))


def _renumbered(state: State, place: dict[int, int]) -> State:
    left = (item for item in state.transitions if item.target in place)
    return State(tuple(replace(item, target=place[item.target]) for item in left))


def _preferred(steps: Iterator[Step]) -> list[Step]:
    """More names for one event first: in the *recent* policy an event bound twice stands twice, before older ones."""
    return sorted(steps, key=lambda step: (step.input, -len(step.binds), sorted(step.binds)))


def _steps(rest: Rest, terms: tuple[Term, ...]) -> Iterator[Step]:
    """All ways in which the newest event of what is left can be taken, each once."""
    match rest:
        case None:
            return
        case TermOf(index=index):
            yield Step(terms[index].input, frozenset((index,)), None)
        case Sequence(parts=parts):
            for step in _steps(parts[-1], terms):
                yield step._replace(rest=_sequence(parts[:-1], step.rest))
        case Both(parts=(first, *others)):
            other = _both(tuple(others))
            left, right = list(_steps(first, terms)), list(_steps(other, terms))
            yield from (step._replace(rest=_joined(step.rest, other)) for step in left)
            yield from (step._replace(rest=_joined(first, step.rest)) for step in right)
            yield from (_merged(a, b, _joined(a.rest, b.rest)) for a in left for b in right if a.input == b.input)
        case Either(parts=(first, *others)):
            left, right = list(_steps(first, terms)), list(_steps(_either(tuple(others)), terms))
            yield from left
            yield from right
            yield from _alike(left, right)
        case Alike(left=one, right=two):
            yield from _alike(list(_steps(one, terms)), list(_steps(two, terms)))
        case _:
            raise AssertionError("a join has parts")


def _alike(left: list[Step], right: list[Step]) -> Iterator[Step]:
    """The ways in which both sides of an `or` take one event; they end together."""
    for a in left:
        for b in right:
            if a.input == b.input and (a.rest is None) == (b.rest is None):
                yield _merged(a, b, None if a.rest is None else Alike(a.rest, b.rest))


def _merged(left: Step, right: Step, rest: Rest) -> Step:
    return Step(left.input, left.binds | right.binds, rest)


def _sequence(earlier: tuple[Rest, ...], last: Rest) -> Rest:
    parts = earlier if last is None else (*earlier, last)
    return parts[0] if len(parts) == 1 else Sequence(parts)  # type: ignore[arg-type]  # an Alike is a pattern too here


def _joined(left: Rest, right: Rest) -> Rest:
    if left is None or right is None:
        return right if left is None else left
    return Both((left, right))  # type: ignore[arg-type]  # as above


def _both(parts: tuple[Pattern, ...]) -> Pattern:
    return parts[0] if len(parts) == 1 else Both(parts)


def _either(parts: tuple[Pattern, ...]) -> Pattern:
    return parts[0] if len(parts) == 1 else Either(parts)


# ------------------------------------------------------------------------------------------------ conditions


def _is_late(condition: Condition, query: CheckedQuery) -> bool:
    """Whether the condition reaches the trailing wait."""
    match condition:
        case Where():
            return False
        case Within(between=between):
            return between is not None and between.trailing
        case Without(between=None):
            return query.trailing is not None
        case Without(between=between):
            assert between is not None
            return between.trailing
    assert_never(condition)


class _Placement:
    """On which transitions a condition is checked: as soon as it is decided, and whenever its range grows.

    A range is looked at as far as its names are bound: what is wrong with a part of it is wrong with the whole. A
    condition that names an `or` term is not looked at before that term is bound, so never where it stays unset.
    """

    def __init__(self, query: CheckedQuery, late: frozenset[int]) -> None:
        self._has_leading = query.leading is not None
        self._needs = [
            (index, condition, _needed(condition, query.terms))
            for index, condition in enumerate(query.conditions)
            if index not in late
        ]

    def checks(
        self, before: frozenset[int], after: frozenset[int], *, is_first: bool, is_last: bool
    ) -> tuple[int, ...]:
        """The conditions to check where the bound terms grow from `before` to `after`.

        `is_first`: by the latest event; `is_last`: nothing is left.
        """
        found = []
        for index, condition, needed in self._needs:
            if needed <= after:
                is_new = is_first or not needed <= before
                if isinstance(condition, Where):
                    is_due = is_new
                else:
                    is_due = self._grows(condition, before, after, is_first=is_first, is_new=is_new, is_last=is_last)
                if is_due:
                    found.append(index)
        return tuple(found)

    @property
    def mentioned(self) -> frozenset[int]:
        """The terms without which some condition cannot be checked, or of whose range they are."""
        ranges = [item.between.terms for _, item, _ in self._needs if not isinstance(item, Where) and item.between]
        return frozenset().union(*(needed for _, _, needed in self._needs), *ranges)

    def _grows(
        self,
        condition: Within | Without,
        before: frozenset[int],
        after: frozenset[int],
        *,
        is_first: bool,
        is_new: bool,
        is_last: bool,
    ) -> bool:
        """Whether the condition's range is longer, or is known for the first time."""
        between = condition.between
        if between is None:
            return not is_first or (isinstance(condition, Without) and self._has_leading and is_last)
        if between.leading:
            return is_last
        named = frozenset(between.terms)
        return len(named & after) > 1 and (is_new or bool(named & (after - before)))


def _needed(condition: Condition, terms: tuple[Term, ...]) -> frozenset[int]:
    """The terms without which nothing can be said."""
    optional = frozenset(term for term in mentioned_terms(condition, len(terms)) if terms[term].is_optional)
    match condition:
        case Where(condition=expression):
            return optional | terms_of(expression)
        case Within(between=between) | Without(condition=None, between=between):
            return optional | _if_leading(between)
        case Without(condition=expression, between=between):
            assert expression is not None
            return optional | _if_leading(between) | (terms_of(expression) - {len(terms)})
    assert_never(condition)


def _if_leading(between: Between | None) -> set[int]:
    """All names of a range that begins with the leading wait: its point is known at the end only."""
    return set(between.terms) if between is not None and between.leading else set()
