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
from dataclasses import replace
from typing import assert_never

from querylang.checker.query.pattern_tree import Pattern
from querylang.checker.query.placement import Placement, Progress
from querylang.checker.query.remainders import Remainder, Step, may_end, steps, terms_left
from querylang.plan.model import ACCEPT, Automaton, Condition, Gap, State, Term, Transition, Where, Within, Without

MOST_TRANSITIONS = 20_000
"""Limit of an automaton's size; `n` terms of one type joined by `and` need about 3 to the power of
`n`.
"""


class TooLargeError(ValueError):
    """A pattern with more than MOST_TRANSITIONS transitions."""


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
    placement = Placement(terms, conditions, decided_late, has_leading=has_leading)
    prevs = placement.prevs
    # A term that may be unset and that no condition names does not distinguish states.
    relevant = placement.mentioned | {
        index for index, term in enumerate(terms) if not term.is_optional and not term.may_be_empty
    }
    start: tuple[Remainder, frozenset[int], frozenset[int]] = (pattern, frozenset(), frozenset())
    # No transition leads back to the start, which consumes the latest event: a state where the same
    # is left, because an optional run has grown, checks more.
    numbers, found = dict[tuple[Remainder, frozenset[int], frozenset[int]], int](), [start]
    states, size = list[State](), 0
    while len(states) < len(found):
        remainder, bound, last = found[len(states)]
        transitions = []
        for step in _preferred(steps(remainder, terms)):
            after = (bound | step.binds) & relevant
            target = ACCEPT
            if step.remainder is not None:
                next_number = len(found)
                following = (step.remainder, after, step.binds & prevs)
                target = numbers.setdefault(following, next_number)
                if target == next_number:
                    found.append(following)
            progress = Progress(
                before=bound,
                after=after,
                binds=step.binds,
                last=last,
                open_before=terms_left(remainder),
                open_after=frozenset() if step.remainder is None else terms_left(step.remainder),
                is_first=not states,
                is_last=target == ACCEPT,
            )
            checks = placement.checks(progress)
            transitions.append(Transition(step.input, tuple(sorted(step.binds)), checks, target, step.follows))
        size += len(transitions)
        if size > MOST_TRANSITIONS or len(found) > MOST_TRANSITIONS:
            raise TooLargeError
        accepts = placement.at_end(bound, terms_left(remainder)) if states and may_end(remainder) else None
        states.append(State(tuple(transitions), accepts))
    return _in_order(states)


def decided_late(conditions: tuple[Condition, ...], *, has_trailing: bool) -> tuple[int, ...]:
    """The conditions whose range includes the trailing wait, so that only its end decides them."""
    return tuple(index for index, item in enumerate(conditions) if _reaches_trailing(item, has_trailing=has_trailing))


def _in_order(states: list[State]) -> Automaton:
    """Sort the states so that each leads only to later ones; drop those that cannot reach an end.

    Such a state is a Paired remainder whose sides cannot bind the same events to the end. With open
    repeats there are circles, and the states stay in the order in which they were found.
    """
    entries = Counter(item.target for state in states for item in state.transitions)
    order = [0]
    for number in order:
        for item in states[number].transitions:
            entries[item.target] -= 1
            if item.target != ACCEPT and not entries[item.target]:
                order.append(item.target)
    if len(order) < len(states):
        order = list(range(len(states)))
    accepting = {ACCEPT, *(number for number in order if states[number].accepts is not None)}
    size = 0
    while len(accepting) > size:
        size = len(accepting)
        for number in reversed(order):
            if any(item.target in accepting for item in states[number].transitions):
                accepting.add(number)
    kept = [number for number in order if number in accepting]
    place = {number: index for index, number in enumerate(kept)} | {ACCEPT: ACCEPT}
    return Automaton(tuple(_renumbered(states[number], place) for number in kept))


def _renumbered(state: State, place: dict[int, int]) -> State:
    left = (item for item in state.transitions if item.target in place)
    return replace(state, transitions=tuple(replace(item, target=place[item.target]) for item in left))


def _preferred(found: Iterator[Step]) -> list[Step]:
    """More names for one event first: the *recent* policy prefers that to an older second event."""
    each = dict.fromkeys(found)
    return sorted(each, key=lambda step: (step.input, -len(step.binds), sorted(step.binds)))


def _reaches_trailing(condition: Condition, *, has_trailing: bool) -> bool:
    match condition:
        case Where() | Gap():
            return False
        case Within(between=between):
            return between is not None and between.trailing
        case Without(between=None):
            return has_trailing
        case Without(between=between):
            assert between is not None
            return between.trailing
    assert_never(condition)
