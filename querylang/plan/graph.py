"""A query's automaton as a graph: states, and transitions that say what they bind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from querylang.plan.automaton import ACCEPT, State, Transition
from querylang.plan.describe import condition_text
from querylang.plan.model import QueryPlan
from querylang.plan.text import Names

MATCH = "match"
"""The node that completes a match; the others are named by their numbers."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A transition from one node to another, with the lines of its text."""

    source: str
    target: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """The automaton of a query.

    late: the conditions that are checked when the trailing wait ends
    nodes: the first state, the others, MATCH
    """

    title: str
    late: tuple[str, ...]
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]


def graph_of(query: QueryPlan) -> Graph:
    """The graph of one query."""
    names = Names.of(query)
    states = query.automaton.states
    return Graph(
        title=query.title,
        late=tuple(condition_text(query.conditions[index], query, names) for index in query.decided_late),
        nodes=(*map(str, range(len(states))), MATCH),
        edges=tuple(edge for number, state in enumerate(states) for edge in _edges(str(number), state, query, names)),
    )


def _edges(number: str, state: State, query: QueryPlan, names: Names) -> Iterator[Edge]:
    """What a state leads to; the last edge is the end of a candidate that may end there."""
    for transition in state.transitions:
        yield Edge(number, _target(transition), _lines(transition, query, names))
    if state.accepts is not None:
        checks = (condition_text(query.conditions[check], query, names) for check in state.accepts)
        yield Edge(number, MATCH, ("nothing more", *checks))


def _target(transition: Transition) -> str:
    return MATCH if transition.target == ACCEPT else str(transition.target)


def _lines(transition: Transition, query: QueryPlan, names: Names) -> tuple[str, ...]:
    bound = ", ".join(names.terms[term] for term in transition.binds)
    checks = (condition_text(query.conditions[check], query, names) for check in transition.checks)
    behind = ", directly before" if transition.follows else ""
    return f"{bound} ← {query.inputs[transition.input].event}{behind}", *checks


def to_dot(query: QueryPlan) -> str:
    """The automaton as a graph for graphviz: states are circles."""
    graph = graph_of(query)
    label = [f"  label={_quoted(chr(10).join(['when the trailing wait ends:', *graph.late]))};"] if graph.late else []
    edges = (f"  {edge.source} -> {edge.target} [label={_quoted(chr(10).join(edge.lines))}];" for edge in graph.edges)
    lines = [
        f"digraph {_quoted(graph.title)} {{",
        *label,
        "  rankdir=LR;",
        '  node [shape=circle, fontname="sans-serif"];',
        '  edge [fontname="sans-serif"];',
        *(f"  {name};" for name in graph.nodes if name != MATCH),
        f"  {MATCH} [shape=doublecircle];",
        *edges,
        "}",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
