"""The base class of all grammar rules: reporting mistakes, lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from querylang.dataclass import dataclass, field
from querylang.errors import Mistake, QueryError
from querylang.source import Source, Span
from querylang.syntax import ast

Parts = list[Any]
"""What a rule reads and writes: its node at 0, its parts from 1."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a query with its keyword.

    `node`: Metadata, Parameters, Inputs, Find, ActionDefinition, Broken.
    """

    keyword: str
    span: Span
    node: Any


@dataclass(frozen=True, slots=True)
class QueryParts:
    """A query whose sections are not checked yet; a bare body has no name."""

    span: Span
    name: ast.Name | None
    sections: tuple[Section, ...]


@dataclass(slots=True)
class Rules:
    """The state of one parse that rules may read and write."""

    source: Source
    mistakes: list[QueryError]
    package: ast.Package | None = None
    usings: list[ast.Using] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    """Event types, QueryParts, and sections outside of any query."""
    value: ast.Expression | None = None
    """Of a text that is one expression only."""

    def report(self, mistake: Mistake, span: Span, **facts: str | int) -> None:
        """Report a mistake that a rule has found."""
        self.mistakes.append(QueryError.of(mistake, span, **facts))


def grown(p: Parts) -> list[Any]:
    """The rule of a list: empty, its first element, or a longer list; separators are dropped."""
    match len(p):
        case 1:
            return []
        case 2:
            return [p[1]]
        case length:
            # Extended in place: a copy per element would make long lists slow.
            p[1].append(p[length - 1])
            longer: list[Any] = p[1]
            return longer


def of_kind(nodes: Iterable[Any], kind: type) -> tuple[Any, ...]:
    """The nodes of that class."""
    return tuple(node for node in nodes if isinstance(node, kind))
