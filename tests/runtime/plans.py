"""Plans made by hand, for tests that need no query text."""

from __future__ import annotations

from collections.abc import Sequence

from querylang.plan.expression import Expression, Type, terms_of
from querylang.plan.model import (
    ACCEPT,
    Automaton,
    Condition,
    EventType,
    Field,
    Input,
    Plan,
    QueryPlan,
    State,
    Term,
    Transition,
    Where,
    Within,
)

A = EventType("A", (Field("id", Type.INTEGER), Field("city", Type.STRING)))


def an_input(
    event: str = "A", *, within: int | None = None, retain: int | None = None, keys: tuple[Expression, ...] = ()
) -> Input:
    """An input without filter or wait."""
    return Input(
        event=event,
        keys=keys,
        filter=None,
        within=within,
        retain=retain,
        unique=(),
        wait=None,
        time_from=None,
        out_of_order=False,
        heartbeat=None,
    )


def chain(
    inputs: Sequence[Input], terms: Sequence[int], conditions: Sequence[Expression] = (), within: int | None = None
) -> QueryPlan:
    """`first -> ... -> last`; `terms` are indexes of inputs; each condition is checked when its oldest term is bound."""
    wheres = [Where(node, tuple(terms_of(node))) for node in conditions]
    limits = [] if within is None else [Within(within, None)]
    states: list[State] = []
    for number, term in enumerate(reversed(range(len(terms))), 1):
        checks = [index for index, where in enumerate(wheres) if min(where.mentions) == term]
        is_last = term == 0
        checks += range(len(wheres), len(wheres) + len(limits)) if is_last else ()
        states.append(State((Transition(terms[term], (term,), tuple(checks), ACCEPT if is_last else number),)))
    return a_query(inputs, [(f"t{number}", term) for number, term in enumerate(terms, 1)], states, (*wheres, *limits))


def a_query(
    inputs: Sequence[Input],
    terms: Sequence[tuple[str, int]],
    states: Sequence[State],
    conditions: Sequence[Condition] = (),
) -> QueryPlan:
    """A query without keys and block; `terms`: names and indexes of inputs."""
    named = tuple(Term(name, index) for name, index in terms)
    parts = Automaton(tuple(states)), tuple(conditions)
    return QueryPlan("Q", (), tuple(inputs), named, *parts, (), nulls_fail=False)


def a_plan(query: QueryPlan) -> Plan:
    """A plan of this query over events of one shape."""
    return Plan(tuple(EventType(item.event, A.fields) for item in query.inputs), (query,))
