"""The automaton of a pattern: states, transitions, and on each transition the conditions to check.

The automaton reads a pattern backwards, from the latest event. A state is a pair: the remainder of
the pattern that is still to be found further back, and the terms that are bound already. A
transition binds the newest event of the remainder; there is one for each set of terms that this
event may be bound to. For `A as a -> (B as b and A as c)`:

    state 0   A binds c → 1,  B binds b → 2
    state 1   B binds b → 3
    state 2   A binds c → 3
    state 3   A binds a → accepted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from querylang.checker.query.pattern_tree import Both, Either, Pattern, Sequence, TermOf
from querylang.plan.automaton import ACCEPT, Automaton, State, Transition
from querylang.plan.expression import terms_of
from querylang.plan.model import Between, Condition, Term, Where, Within, Without, mentioned_terms

MOST_TRANSITIONS = 20_000
"""Limit of an automaton's size; `n` terms of one type joined by `and` need about 3 to the power of
`n`.
"""


class TooLargeError(ValueError):
    """A pattern with more than MOST_TRANSITIONS transitions."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Remainders of two sides of an `or` that have bound the same events, and must end together."""

    left: Remainder
    right: Remainder


Remainder = TermOf | Sequence["Remainder"] | Both["Remainder"] | Either["Remainder"] | Paired
"""The part of a pattern that is still to be found further back."""


class Step(NamedTuple):
    """One event of `input` is bound to the terms `binds`.

    `remainder` None: the pattern is complete.
    """

    input: int
    binds: frozenset[int]
    remainder: Remainder | None


def build(
    pattern: Pattern,
    terms: tuple[Term, ...],
    conditions: tuple[Condition, ...],
    decided_late: tuple[int, ...],
    *,
    has_leading: bool,
) -> Automaton:
    """The automaton of a pattern; raises TooLargeError.

    - `decided_late`: conditions that no transition checks.
    - `has_leading`: the pattern begins with a `wait`.
    """
    placement = _Placement(terms, conditions, decided_late, has_leading=has_leading)
    # An `or` term that no condition names does not distinguish states.
    relevant = placement.mentioned | {index for index, term in enumerate(terms) if not term.is_optional}
    start: tuple[Remainder, frozenset[int]] = (pattern, frozenset())
    numbers, found = {start: 0}, [start]
    states, size = list[State](), 0
    while len(states) < len(found):
        remainder, bound = found[len(states)]
        transitions = []
        for step in _preferred(_steps(remainder, terms)):
            after = (bound | step.binds) & relevant
            target = ACCEPT
            if step.remainder is not None:
                next_number = len(numbers)
                target = numbers.setdefault((step.remainder, after), next_number)
                if target == next_number:
                    found.append((step.remainder, after))
            checks = placement.checks(bound, after, is_first=not states, is_last=target == ACCEPT)
            transitions.append(Transition(step.input, tuple(sorted(step.binds)), checks, target))
        size += len(transitions)
        if size > MOST_TRANSITIONS:
            raise TooLargeError
        states.append(State(tuple(transitions)))
    return _in_order(states)


def decided_late(conditions: tuple[Condition, ...], *, has_trailing: bool) -> tuple[int, ...]:
    """The conditions whose range includes the trailing wait, so that only its end decides them."""
    return tuple(index for index, item in enumerate(conditions) if _reaches_trailing(item, has_trailing=has_trailing))


def _in_order(states: list[State]) -> Automaton:
    """Sort the states so that each leads only to later ones; drop those that cannot reach ACCEPT.

    Such a state is a Paired remainder whose sides cannot bind the same events to the end.
    """
    entries = Counter(item.target for state in states for item in state.transitions)
    order = [0]
    for number in order:
        for item in states[number].transitions:
            entries[item.target] -= 1
            if item.target != ACCEPT and not entries[item.target]:
                order.append(item.target)
    accepting = {ACCEPT}
    for number in reversed(order):
        if any(item.target in accepting for item in states[number].transitions):
            accepting.add(number)
    kept = [number for number in order if number in accepting]
    place = {number: index for index, number in enumerate(kept)} | {ACCEPT: ACCEPT}
    return Automaton(tuple(_renumbered(states[number], place) for number in kept))


def _renumbered(state: State, place: dict[int, int]) -> State:
    left = (item for item in state.transitions if item.target in place)
    return State(tuple(replace(item, target=place[item.target]) for item in left))


def _preferred(steps: Iterator[Step]) -> list[Step]:
    """More names for one event first: the *recent* policy prefers that to an older second event."""
    return sorted(steps, key=lambda step: (step.input, -len(step.binds), sorted(step.binds)))


def _steps(remainder: Remainder, terms: tuple[Term, ...]) -> Iterator[Step]:
    """All ways in which the newest event of the remainder can be bound, each once."""
    match remainder:
        case TermOf(index=index):
            yield Step(terms[index].input, frozenset((index,)), None)
        case Sequence(parts=parts):
            for step in _steps(parts[-1], terms):
                yield step._replace(remainder=_sequence(parts[:-1], step.remainder))
        case Both(parts=(first, *others)):
            other = _both(tuple(others))
            left, right = list(_steps(first, terms)), list(_steps(other, terms))
            yield from (step._replace(remainder=_joined(step.remainder, other)) for step in left)
            yield from (step._replace(remainder=_joined(first, step.remainder)) for step in right)
            yield from (
                _merged(a, b, _joined(a.remainder, b.remainder)) for a in left for b in right if a.input == b.input
            )
        case Either(parts=(first, *others)):
            left, right = list(_steps(first, terms)), list(_steps(_either(tuple(others)), terms))
            yield from left
            yield from right
            yield from _paired(left, right)
        case Paired(left=one, right=two):
            yield from _paired(list(_steps(one, terms)), list(_steps(two, terms)))
        case _:
            raise AssertionError("a join has parts")


def _paired(left: list[Step], right: list[Step]) -> Iterator[Step]:
    """The ways in which both sides of an `or` bind one event; the sides end together."""
    for a in left:
        for b in right:
            if a.input != b.input:
                continue
            if a.remainder is None and b.remainder is None:
                yield _merged(a, b, None)
            elif a.remainder is not None and b.remainder is not None:
                yield _merged(a, b, Paired(a.remainder, b.remainder))


def _merged(left: Step, right: Step, remainder: Remainder | None) -> Step:
    return Step(left.input, left.binds | right.binds, remainder)


def _sequence(earlier: tuple[Remainder, ...], last: Remainder | None) -> Remainder:
    parts = earlier if last is None else (*earlier, last)
    return parts[0] if len(parts) == 1 else Sequence(parts)


def _joined(left: Remainder | None, right: Remainder | None) -> Remainder | None:
    if left is None or right is None:
        return right if left is None else left
    return Both((left, right))


def _both(parts: tuple[Remainder, ...]) -> Remainder:
    return parts[0] if len(parts) == 1 else Both(parts)


def _either(parts: tuple[Remainder, ...]) -> Remainder:
    return parts[0] if len(parts) == 1 else Either(parts)


# Conditions


def _reaches_trailing(condition: Condition, *, has_trailing: bool) -> bool:
    match condition:
        case Where():
            return False
        case Within(between=between):
            return between is not None and between.trailing
        case Without(between=None):
            return has_trailing
        case Without(between=between):
            assert between is not None
            return between.trailing
    assert_never(condition)


class _Placement:
    """Decides which transitions check a condition.

    A condition is checked as soon as it can be evaluated, and whenever its range grows. A range is
    checked as far as its names are bound: if a part fails, the whole fails. A condition that names
    an `or` term is checked only once that term is bound, so never if it stays unset.
    """

    def __init__(
        self,
        terms: tuple[Term, ...],
        conditions: tuple[Condition, ...],
        decided_late: tuple[int, ...],
        *,
        has_leading: bool,
    ) -> None:
        self._has_leading = has_leading
        self._needs = [
            (index, condition, _needed(condition, terms))
            for index, condition in enumerate(conditions)
            if index not in decided_late
        ]

    def checks(
        self, before: frozenset[int], after: frozenset[int], *, is_first: bool, is_last: bool
    ) -> tuple[int, ...]:
        """The conditions to check on a transition that extends the bound terms `before` to `after`.

        `is_first`: it binds the latest event; `is_last`: it completes the candidate.
        """
        found = []
        for index, condition, needed in self._needs:
            if needed <= after:
                is_new = is_first or not needed <= before
                if isinstance(condition, Where):
                    is_checked = is_new
                else:
                    is_checked = self._grows(
                        condition, before, after, is_first=is_first, is_new=is_new, is_last=is_last
                    )
                if is_checked:
                    found.append(index)
        return tuple(found)

    @property
    def mentioned(self) -> frozenset[int]:
        """The terms that some condition needs before it can be checked, or that its range names."""
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
        """Whether the condition's range becomes longer, or known for the first time."""
        between = condition.between
        if between is None:
            return not is_first or (isinstance(condition, Without) and self._has_leading and is_last)
        if between.leading:
            return is_last
        named = frozenset(between.terms)
        return len(named & after) > 1 and (is_new or bool(named & (after - before)))


def _needed(condition: Condition, terms: tuple[Term, ...]) -> frozenset[int]:
    """The terms that must be bound before the condition can be checked."""
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
    """All names of a range that begins with the leading wait, whose start is known last."""
    return set(between.terms) if between is not None and between.leading else set()
