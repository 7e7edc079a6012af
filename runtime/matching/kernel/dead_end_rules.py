"""Which failures of the search are dead ends, so that nothing is searched twice.

Why nothing is lost. A state fails if no choice of older events completes the candidate. Which
choices there are depends on the position from which it searches. Whether they pass depends on the
events bound before that the conditions from here on read. Terms that are bound to the latest event
on every path are left aside: they have the same event in the whole search. So a state that failed
from a position fails from every older one, as it has a subset of the choices, as long as the events
read are the same ones.

A later search of the same key has another latest event, and windows that have moved on. A window
only loses what was in it, and from an older position newer events are never chosen. So the dead end
lasts, unless a condition reads the latest event. A `without` is another exception: the event that
blocked a candidate may have left its window before the candidate did.
With `find every` the limit of the whole pattern is counted from older events too, so it moves back.

A pattern of n terms over a window of w events then costs n * w steps, or n * w * w, not w to the n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from querylang.plan.expression import terms_of
from querylang.plan.model import ACCEPT, Automaton, Condition, QueryPlan, Where, Within, Without


@dataclass(frozen=True, slots=True)
class DeadEndRule:
    """What the dead ends of a state depend on.

    terms: on the events of these; of terms that always share an event, one is enough
    is_lasting: later searches of the key may use them
    """

    terms: tuple[int, ...]
    is_lasting: bool


def dead_end_rules(query: QueryPlan) -> list[DeadEndRule | None]:
    """By state; None: none are recorded, as the search would never use them."""
    states = query.automaton.states
    before, last, fixed = _bound_before(query.automaton)
    conditions = _conditions_from(query)
    repeated = _entered_repeatedly(query.automaton)
    is_limit_moving_back = query.every is not None and query.within is not None
    rules: list[DeadEndRule | None] = [None for _ in states]
    for index in range(1, len(states)):
        read = {term for check in conditions[index] for term in _terms_read(query, query.conditions[check])}
        # Terms that another name's event may be bound to, and those that the transition bound that
        # enters the state: these are one event.
        varying = read & before[index] - fixed[index]
        terms = sorted(varying)[:1] if varying <= last[index] else sorted(varying)
        has_without = any(isinstance(query.conditions[check], Without) for check in conditions[index])
        is_lasting = not (read & fixed[index] or has_without or is_limit_moving_back)
        # Within one search, all choices of the events bound before are different.
        is_met_again = index in repeated and (len(terms) <= 1 or varying < before[index] - fixed[index])
        if is_lasting or is_met_again:
            rules[index] = DeadEndRule(tuple(terms), is_lasting)
    return rules


def rows_of(rules: Sequence[DeadEndRule | None]) -> list[int]:
    """By state, the number of its dead ends, those that depend on one event at most first."""
    direct = [index for index, item in enumerate(rules) if item is not None and len(item.terms) <= 1]
    hashed = [index for index, item in enumerate(rules) if item is not None and len(item.terms) > 1]
    order = [*direct, *hashed]
    return [order.index(index) if item is not None else -1 for index, item in enumerate(rules)]


def _bound_before(automaton: Automaton) -> tuple[list[set[int]], list[set[int]], list[set[int]]]:
    """Three sets of terms, by state.

    - The terms that may be bound when it is entered.
    - Of these, the ones bound by the transition that enters it; none if transitions differ.
    - The ones bound to the latest event on every path.
    """
    states = automaton.states
    before: list[set[int]] = [set() for _ in states]
    last: list[set[int] | None] = [None for _ in states]
    fixed: list[set[int] | None] = [None for _ in states]
    for index, state in enumerate(states):
        for item in state.transitions:
            if item.target != ACCEPT:
                before[item.target] |= before[index] | set(item.binds)
                known_fixed, ours = fixed[item.target], set(item.binds) if index == 0 else fixed[index] or set()
                fixed[item.target] = ours if known_fixed is None else known_fixed & ours
                known_last = last[item.target]
                last[item.target] = set(item.binds) if known_last is None or known_last == set(item.binds) else set()
    return before, [item or set() for item in last], [item or set() for item in fixed]


def _conditions_from(query: QueryPlan) -> list[set[int]]:
    """By state, the conditions that it checks, or states after it; a target is a later state."""
    states = query.automaton.states
    found = [{check for item in state.transitions for check in item.checks} for state in states]
    for index in reversed(range(len(states))):
        for item in states[index].transitions:
            if item.target != ACCEPT:
                found[index] |= found[item.target]
    return found


def _entered_repeatedly(automaton: Automaton) -> set[int]:
    """The states that a search for one latest event may enter more than once."""
    edges = [(index, item.target) for index, state in enumerate(automaton.states) for item in state.transitions]
    from_start = [target for index, target in edges if index == 0]
    once = {target for target in from_start if [to for _, to in edges].count(target) == 1}
    return set(range(1, len(automaton.states))) - once


def _terms_read(query: QueryPlan, condition: Condition) -> set[int]:
    """The terms whose events a check reads.

    A range without names needs none of its own: it ends at the latest event and at the one bound
    last.
    """
    match condition:
        case Where(condition=expression):
            return set(terms_of(expression))
        case Within(between=between):
            if between is None:
                return set()
            return set(range(len(query.terms))) if between.leading else set(between.terms)
        case Without(input=item, condition=expression, between=between):
            own = {index for index, term in enumerate(query.terms) if term.input == item}
            named = set() if between is None else set(between.terms)
            leading = set(range(len(query.terms))) if is_leading(condition, query) else set()
            return own | named | leading | (set() if expression is None else set(terms_of(expression)))
    raise AssertionError("a condition is of one of three kinds")


def is_leading(condition: Condition, query: QueryPlan) -> bool:
    """Whether the range of a condition begins with the leading wait."""
    if not isinstance(condition, Within | Without) or query.leading is None:
        return False
    if condition.between is None:
        return isinstance(condition, Without)
    return condition.between.leading
