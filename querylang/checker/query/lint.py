"""What is looked at in a query that has no mistake so far: its size, and what it holds in vain.

Takes the tree and the checked query; tells a pattern that is too large, warns of inputs and parameters without a use.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from querylang.checker.checked import CheckedQuery, Pattern, Sequence, TermOf
from querylang.checker.names.namespaces import Namespace
from querylang.checker.query import automaton_builder as automata
from querylang.errors import Mistake, QueryError
from querylang.plan.model import Without
from querylang.source import Span
from querylang.syntax import ast


def look_again(query: ast.Query, checked: CheckedQuery, namespace: Namespace) -> None:
    """Tells and warns; mistakes and warnings go where the namespace's go."""
    match query:
        case ast.Query(inputs=ast.Inputs() as inputs, find=ast.Find(pattern=pattern)) if checked.pattern is not None:
            if _has_all_terms(checked) and _is_too_large(checked):
                namespace.mistakes.append(QueryError.of(Mistake.PATTERN_TOO_LARGE, pattern.span))
            namespace.warnings.extend(_unused_inputs(inputs, checked))
            namespace.warnings.extend(_unused_parameters(query))
        case _:
            pass


def _has_all_terms(checked: CheckedQuery) -> bool:
    """Whether all terms are of known inputs: those that are not are left out, which is told already."""
    waiting: list[Pattern | None] = [checked.pattern]
    while waiting:
        match waiting.pop():
            case TermOf(index=index):
                if index >= len(checked.terms):
                    return False
            case None:
                pass
            case joined:
                waiting += joined.parts
    return True


def _is_too_large(checked: CheckedQuery) -> bool:
    """Whether the pattern has no automaton of a bearable size; events in a row always have one."""
    if isinstance(checked.pattern, TermOf) or _is_row(checked.pattern):
        return False
    try:
        automata.build(checked)
    except automata.TooLargeError:
        return True
    return False


def _is_row(pattern: object) -> bool:
    return isinstance(pattern, Sequence) and all(isinstance(part, TermOf) for part in pattern.parts)


def _unused_inputs(inputs: ast.Inputs, checked: CheckedQuery) -> Iterator[QueryError]:
    """Events of such an input are kept for nothing."""
    used = {term.input for term in checked.terms}
    used |= {item.input for item in checked.conditions if isinstance(item, Without)}
    for index, node in enumerate(inputs.items):
        if index not in used and isinstance(node, ast.InputDefinition):
            yield QueryError.of(Mistake.UNUSED_INPUT, node.event.span, event=node.event.text)


def _unused_parameters(query: ast.Query) -> Iterator[QueryError]:
    if not isinstance(query.parameters, ast.Parameters):
        return
    used = set(_names(query.inputs, query.find, query.actions))
    for node in query.parameters.items:
        if isinstance(node, ast.ParameterDefinition) and node.name.text not in used:
            yield QueryError.of(Mistake.UNUSED_PARAMETER, node.name.span, name=node.name.text)


def _names(*parts: Any) -> Iterator[str]:
    """The names that stand for values anywhere in these parts of a tree."""
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
    """The fields of a kind of node that may hold other nodes."""
    if not is_dataclass(kind) or kind in (ast.Name, ast.Constant, Span):
        return ()
    return tuple(item.name for item in fields(kind) if item.name != "span")
