"""A query as tables of numbers, for the compiled search: its automaton, its conditions, what a failure teaches.

Takes the plan; gives named tuples of arrays. Everything here is made once a query, nothing is compiled for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.automaton import ACCEPT, Automaton, Transition
from querylang.expression import terms_of
from querylang.plan import Condition, QueryPlan, Where, Within, Without, known
from runtime.controls import NEVER

Integers = NDArray[np.int64]


class AutomatonColumns(NamedTuple):
    """The transitions of state s are `first[s]` to `first[s + 1]`; what they bind and check stands in lists with ends alike.

    `equals[t]`: where the transitions end that take the same event for as many names as transition t: which of those is
    best shows at the end only. `need[s]`: how many events it takes at least from state s to the end. `alone[s]`,
    `memory[s]`: what a failure from state s says about other tries (`_independence`).
    """

    first: Integers
    input: Integers
    target: Integers
    equals: Integers
    bind_first: Integers
    binds: Integers
    check_first: Integers
    checks: Integers
    need: Integers
    alone: NDArray[np.bool_]
    memory: Integers


class Check(IntEnum):
    """What a condition is."""

    WHERE = 0
    WITHIN = 1
    WITHOUT = 2


class ConditionColumns(NamedTuple):
    """One entry a condition. `kind`: a `Check`. `program`: of a `where`, or of a `without`'s own `where` (-1: none).

    `length`: of a `within`, microseconds. `input`: of a `without`. The terms of its range are `terms[first[c]:first[c + 1]]`;
    `leading`: the range begins with the leading wait. `counted[c]`: the row of counts of a `without` whose own
    condition is about its event alone, -1: all events in the range are looked at.
    """

    kind: Integers
    program: Integers
    length: Integers
    input: Integers
    first: Integers
    terms: Integers
    leading: NDArray[np.bool_]
    counted: Integers


def automaton_columns(query: QueryPlan) -> AutomatonColumns:
    """The automaton. Whole `within`s are left out of its checks: the search goes no further back than they allow."""
    automaton = query.automaton
    alone, memory = _independence(query)
    transitions = [transition for state in automaton.states for transition in state.transitions]
    checks = [[check for check in item.checks if not is_whole(query.conditions[check])] for item in transitions]
    return AutomatonColumns(
        first=ends_of([len(state.transitions) for state in automaton.states]),
        input=np.array([item.input for item in transitions], np.int64),
        target=np.array([item.target for item in transitions], np.int64),
        equals=np.array(list(_equals(automaton)), np.int64),
        bind_first=ends_of([len(item.binds) for item in transitions]),
        binds=np.array([term for item in transitions for term in item.binds], np.int64),
        check_first=ends_of([len(item) for item in checks]),
        checks=np.array([check for item in checks for check in item] or [0], np.int64),
        need=_needs(automaton),
        alone=alone,
        memory=memory,
    )


def condition_columns(query: QueryPlan, programs: Sequence[int], counted: Sequence[int]) -> ConditionColumns:
    """The conditions; `programs`: the number of each one's expression, -1 for none; `counted` as in the columns."""
    everything = tuple(range(len(query.terms)))
    ranges = [
        everything if isinstance(item, Where) or item.between is None else item.between.terms
        for item in query.conditions
    ]
    return ConditionColumns(
        kind=np.array([_kind(item) for item in query.conditions] or [0], np.int64),
        program=np.array([*programs] or [0], np.int64),
        length=np.array(
            [known(item.duration) if isinstance(item, Within) else NEVER for item in query.conditions] or [0], np.int64
        ),
        input=np.array([item.input if isinstance(item, Without) else -1 for item in query.conditions] or [0], np.int64),
        first=ends_of([len(terms) for terms in ranges]),
        terms=np.array([term for terms in ranges for term in terms] or [0], np.int64),
        leading=np.array([_is_leading(item, query) for item in query.conditions] or [False]),
        counted=np.array([*counted] or [-1], np.int64),
    )


def is_whole(condition: Condition) -> bool:
    """Whether it is a `within` over the whole pattern."""
    return isinstance(condition, Within) and condition.between is None


def is_ambiguous(query: QueryPlan) -> bool:
    """Whether some event may serve different names, equally many, at one place of the search."""
    return any(end > number + 1 for number, end in enumerate(_equals(query.automaton)))


def _kind(condition: Condition) -> int:
    match condition:
        case Where():
            return Check.WHERE
        case Within():
            return Check.WITHIN
        case Without():
            return Check.WITHOUT


def _is_leading(condition: Condition, query: QueryPlan) -> bool:
    if isinstance(condition, Where) or query.leading is None:
        return False
    if condition.between is None:
        return isinstance(condition, Without)
    return condition.between.leading


def _equals(automaton: Automaton) -> Iterator[int]:
    """By transition, where those end that are as good as it, so far."""
    first = 0
    for state in automaton.states:
        for place, item in enumerate(state.transitions):
            end = place
            while end < len(state.transitions) and _rank(state.transitions[end]) == _rank(item):
                end += 1
            yield first + end
        first += len(state.transitions)


def _rank(item: Transition) -> tuple[int, int]:
    return item.input, len(item.binds)


def _needs(automaton: Automaton) -> Integers:
    """The length of the shortest way from each state to the end; states only lead to later ones."""
    needs = [0] * len(automaton.states)
    for index in reversed(range(len(needs))):
        targets = [item.target for item in automaton.states[index].transitions]
        needs[index] = 1 + min(0 if target == ACCEPT else needs[target] for target in targets)
    return np.array(needs, np.int64)


def _independence(query: QueryPlan) -> tuple[NDArray[np.bool_], Integers]:
    """What a failure from a state means for other tries with the same latest event, so that none is made twice.

    Alone: nothing that is checked from here on asks for an event bound before, the latest of all left aside: that one is
    the same for all tries. Failing from a position, the search fails from
    every older one. Else with a row (by state, -1: none) in a memory by position: only the event bound last is asked for, as by a
    condition on a pair of neighbours; failing from a position, it fails from there. A pattern of n terms over a window of w events
    then costs n * w steps, or n * w * w, and not w to the n. States that are entered in one way only need no memory.
    """
    states = query.automaton.states
    before: list[set[int]] = [set() for _ in states]  # terms bound when a state is entered
    last: list[set[int] | None] = [None for _ in states]  # by the transition that enters it; none where they differ
    fixed: list[set[int] | None] = [None for _ in states]  # to the latest event, on every way to it
    asked = [
        {term for item in state.transitions for check in item.checks for term in _asks(query, query.conditions[check])}
        for state in states
    ]
    for index, state in enumerate(states):
        for item in state.transitions:
            if item.target != ACCEPT:
                before[item.target] |= before[index] | set(item.binds)
                known_fixed, ours = fixed[item.target], set(item.binds) if index == 0 else fixed[index] or set()
                fixed[item.target] = ours if known_fixed is None else known_fixed & ours
                known_last = last[item.target]
                last[item.target] = set(item.binds) if known_last is None or known_last == set(item.binds) else set()
    for index in reversed(range(len(states))):
        for item in states[index].transitions:
            if item.target != ACCEPT:
                asked[index] |= asked[item.target]
    repeated = _repeated(query.automaton)
    varying = [asked[index] & before[index] - (fixed[index] or set()) for index in range(len(states))]
    alone = np.array([index in repeated and not varying[index] for index in range(len(states))])
    paired = [
        index in repeated and not alone[index] and varying[index] <= (last[index] or set())
        for index in range(len(states))
    ]
    return alone, np.where(paired, np.cumsum(paired) - 1, -1).astype(np.int64)


def _repeated(automaton: Automaton) -> set[int]:
    """The states that a search for one latest event may enter more than once."""
    ways = [(index, item.target) for index, state in enumerate(automaton.states) for item in state.transitions]
    from_start = [target for index, target in ways if index == 0]
    once = {target for target in from_start if [to for _, to in ways].count(target) == 1}
    return set(range(1, len(automaton.states))) - once


def _asks(query: QueryPlan, condition: Condition) -> set[int]:
    """The terms whose events a check looks at; a range without names ends at the latest event and at the one bound last."""
    match condition:
        case Where(condition=expression):
            return set(terms_of(expression))
        case Within(between=between):
            if between is None:
                return set()
            return set(range(len(query.terms))) if between.leading else set(between.terms)
        case Without(input=taken, condition=expression, between=between):
            own = {index for index, term in enumerate(query.terms) if term.input == taken}
            named = set() if between is None else set(between.terms)
            leading = set(range(len(query.terms))) if _is_leading(condition, query) else set()
            return own | named | leading | (set() if expression is None else set(terms_of(expression)))
    raise AssertionError("a condition is of one of three kinds")


def ends_of(lengths: Sequence[int]) -> Integers:
    """Where each of so many lists one behind the other begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
