"""Checked queries to the plan: the automaton is built and each condition placed on its transitions.

Takes what the checker has accepted; so it has no failures that a user could see.
"""

from __future__ import annotations

from typing import assert_never

from querylang.checker.checked import Both, Checked, CheckedQuery, Either, Pattern, Sequence, TermOf
from querylang.checker.query import automaton_builder as automata
from querylang.plan.model import Plan, QueryPlan


def compile_checked(checked: Checked) -> Plan:
    """The plan of a set of queries."""
    return Plan(checked.events, tuple(compile_query(query) for query in checked.queries))


def compile_query(query: CheckedQuery) -> QueryPlan:
    """The plan of one query; with parameters it is a template (`querylang.parameters.binding`)."""
    assert query.pattern is not None, "a query without mistakes has a pattern"
    automaton, decided_late = automata.build(query)
    return QueryPlan(
        name=query.name,
        keys=query.keys,
        inputs=query.inputs,
        terms=query.terms,
        automaton=automaton,
        conditions=query.conditions,
        block=query.block,
        slots=query.slots,
        actions=query.actions,
        leading=query.leading,
        trailing=query.trailing,
        decided_late=decided_late,
        every=query.every,
        parameters=query.parameters,
        metadata=query.metadata,
        pattern=_text(query.pattern, query),
    )


def _text(pattern: Pattern, query: CheckedQuery) -> str:
    """The pattern as a user would write it: `A as a -> (B as b or C as c)`."""
    match pattern:
        case TermOf(index=index):
            term = query.terms[index]
            return f"{query.inputs[term.input].event} as {term.name}"
        case Sequence(parts=parts):
            return " -> ".join(_part(part, query, Sequence) for part in parts)
        case Either(parts=parts):
            return " or ".join(_part(part, query, Sequence, Either) for part in parts)
        case Both(parts=parts):
            return " and ".join(_part(part, query, Sequence, Either, Both) for part in parts)
    assert_never(pattern)


def _part(pattern: Pattern, query: CheckedQuery, *looser: type) -> str:
    """A part of a join; in parentheses if it binds no tighter than the join."""
    text = _text(pattern, query)
    return f"({text})" if isinstance(pattern, looser) else text
