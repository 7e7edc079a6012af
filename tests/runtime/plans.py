"""Plans made by hand, for tests that need no query text."""

from __future__ import annotations

from collections.abc import Sequence

from querylang.automaton import ACCEPT, Automaton, State, Transition
from querylang.expression import Expression, Type, terms_of
from querylang.plan import EventType, Field, Input, Plan, QueryPlan, Term

A = EventType("A", (Field("id", Type.INTEGER), Field("city", Type.STRING)))


def an_input(event: str = "A", *, within: int | None = None, retain: int | None = None) -> Input:
    """An input without key, filter or wait."""
    return Input(
        event=event,
        keys=(),
        filter=None,
        within=within,
        retain=retain,
        wait=None,
        time_from=None,
        out_of_order=False,
        heartbeat=None,
    )


def chain(
    inputs: Sequence[Input], terms: Sequence[int], conditions: Sequence[Expression] = (), within: int | None = None
) -> QueryPlan:
    """`first -> ... -> last`; `terms` are indexes of inputs; each condition is checked when its oldest term is bound."""
    states: list[State] = []
    for number, term in enumerate(reversed(range(len(terms))), 1):
        checks = tuple(index for index, node in enumerate(conditions) if min(terms_of(node)) == term)
        target = ACCEPT if term == 0 else number
        states.append(State((Transition(terms[term], (term,), checks, target),)))
    named = tuple(Term(f"t{number}", term) for number, term in enumerate(terms, 1))
    return QueryPlan("Q", (), tuple(inputs), named, Automaton(tuple(states)), tuple(conditions), within, ())


def a_plan(query: QueryPlan) -> Plan:
    """A plan of this query over events of one shape."""
    return Plan(tuple(EventType(item.event, A.fields) for item in query.inputs), (query,))
