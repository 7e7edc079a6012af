"""Checked queries to the plan: the automaton is built and each condition placed on a transition.

Takes what the checker has accepted; so it has no failures that a user could see.
"""

from __future__ import annotations

from querylang.automaton import ACCEPT, Automaton, State, Transition
from querylang.checked import Checked, CheckedQuery
from querylang.expression import terms_of
from querylang.plan import Plan, QueryPlan


def compile_checked(checked: Checked) -> Plan:
    """The plan of a set of queries."""
    return Plan(checked.events, tuple(compile_query(query) for query in checked.queries))


def compile_query(query: CheckedQuery) -> QueryPlan:
    """The plan of one query."""
    return QueryPlan(
        name=query.name,
        keys=query.keys,
        inputs=query.inputs,
        terms=query.terms,
        automaton=backward_sequence(query),
        conditions=query.conditions,
        within=query.within,
        block=query.block,
    )


def backward_sequence(query: CheckedQuery) -> Automaton:
    """The automaton of terms in a row: state 0 consumes the last term, the final state the first one.

    A condition is checked as soon as all its names are bound: going back, that is at the earliest term it mentions.
    One that mentions none is checked at once.
    """
    last = len(query.terms) - 1
    decided_at = [min(terms_of(condition), default=last) for condition in query.conditions]
    states = []
    for term in range(last, -1, -1):
        checks = tuple(index for index, decided in enumerate(decided_at) if decided == term)
        target = ACCEPT if term == 0 else last - term + 1
        states.append(State((Transition(query.terms[term].input, (term,), checks, target),)))
    return Automaton(tuple(states))
