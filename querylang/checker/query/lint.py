"""Warnings about inputs and parameters that a query does not use, and about keys that it keeps."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from querylang.checker.diagnostics import Diagnostics
from querylang.errors import Mistake
from querylang.plan.model import QueryPlan, Without
from querylang.source import Span
from querylang.syntax import ast


def warn_of_unused(query: ast.Query, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """Warn of unused inputs and parameters of a query without mistakes."""
    _warn_of_unused_inputs(query, plan, diagnostics)
    _warn_of_unused_parameters(query, diagnostics)
    _warn_of_kept_keys(query, plan, diagnostics)


def _warn_of_kept_keys(query: ast.Query, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """The first input whose events stay for every key, however old they are."""
    states = plan.automaton.states if plan.every is not None else plan.automaton.states[1:]
    kept = {transition.input for state in states for transition in state.transitions}
    kept |= {item.input for item in plan.conditions if isinstance(item, Without)}
    nodes = query.inputs.items if isinstance(query.inputs, ast.Inputs) else ()
    for index, node in enumerate(nodes):
        is_kept = index in kept and plan.inputs[index].within is None
        if plan.keys and is_kept and isinstance(node, ast.InputDefinition):
            diagnostics.warn(Mistake.KEPT_KEYS, node.event.span, event=node.event.text)
            return


def _warn_of_unused_inputs(query: ast.Query, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """Inputs that matter nowhere; those of a pattern with `=>` count between its events."""
    if any(item.follows for state in plan.automaton.states for item in state.transitions):
        return
    used = {term.input for term in plan.terms}
    used |= {item.input for item in plan.conditions if isinstance(item, Without)}
    nodes = query.inputs.items if isinstance(query.inputs, ast.Inputs) else ()
    for index, node in enumerate(nodes):
        if index not in used and isinstance(node, ast.InputDefinition):
            diagnostics.warn(Mistake.UNUSED_INPUT, node.event.span, event=node.event.text)


def _warn_of_unused_parameters(query: ast.Query, diagnostics: Diagnostics) -> None:
    if not isinstance(query.parameters, ast.Parameters):
        return
    used = set(_names(query.inputs, query.find, query.actions))
    for node in query.parameters.items:
        if isinstance(node, ast.ParameterDefinition) and node.name.text not in used:
            diagnostics.warn(Mistake.UNUSED_PARAMETER, node.name.span, name=node.name.text)


def _names(*parts: Any) -> Iterator[str]:
    """The names that are used as values anywhere in these parts of a tree."""
    waiting: list[Any] = list(parts)
    while waiting:
        part = waiting.pop()
        kind: Any = type(part)
        if kind is tuple:
            waiting += part
        elif kind is ast.NameUse:
            yield part.name.text
        else:
            waiting += [getattr(part, name) for name in _parts_of(kind)]


@cache
def _parts_of(kind: Hashable) -> tuple[str, ...]:
    """The fields of a node class that may hold other nodes."""
    if not is_dataclass(kind) or kind in (ast.Name, ast.Constant, Span):
        return ()
    return tuple(item.name for item in fields(kind) if item.name != "span")
