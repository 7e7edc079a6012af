"""Refuse event types that contain themselves, are nested too deeply, or have too many parts.

A column has a type of finite depth, so an event type must not contain itself through sequences,
dictionaries and optionals either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from querylang.checker.names.schema import EventSchema
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import Kind, Type
from querylang.syntax import ast

DEEPEST = 20
"""Levels of events in events."""
MOST_PARTS = 1000
"""Parts of the fields of an event type, nested ones included: each of them is a column."""


def nesting_mistakes(
    schemas: Mapping[str, EventSchema], nodes: Mapping[str, ast.EventDefinition]
) -> dict[str, list[QueryError]]:
    """The mistakes of the definitions `nodes`, by plan name; those types should be left open."""
    search = _Search(schemas, nodes)
    for name in nodes:
        search.visit(name)
    return search.mistakes


class _Search:
    """A depth-first search through all types; it has its own stack, because chains may be long."""

    def __init__(self, schemas: Mapping[str, EventSchema], nodes: Mapping[str, ast.EventDefinition]) -> None:
        self._schemas = schemas
        self._nodes = nodes
        self._depths: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self.mistakes: dict[str, list[QueryError]] = {}

    def visit(self, first: str) -> None:
        """Find the mistakes of a type and of those that it contains."""
        if first in self._depths:
            return
        path = {first: self._held(first)}
        while path:
            name = next(reversed(path))
            field, held = next(path[name], (None, ""))
            if field is None:
                del path[name]
                self._leave(name)
            elif held in path:
                self._report_cycle(name, field, [*path][[*path].index(held) :])
            elif held not in self._depths:
                path[held] = self._held(held)

    def _leave(self, name: str) -> None:
        below = [self._depths.get(held, 0) for _field, held in self._held(name)]
        self._depths[name] = 1 + max(below, default=0)
        if self._depths[name] > DEEPEST:
            self._depths[name] = 0
            span = self._nodes[name].name.span
            self._report(name, QueryError.of(Mistake.EVENT_TOO_DEEP, span, event=name, limit=DEEPEST))
        self._check_size(name)

    def _check_size(self, name: str) -> None:
        """Report a type whose fields have too many parts; in other types it counts as one."""
        fields = self._schemas[name].fields
        parts = sum(self._parts_of(item.type) for item in fields)
        if parts - len(fields) > MOST_PARTS:
            parts = 0
            span = self._nodes[name].name.span
            self._report(name, QueryError.of(Mistake.FIELDS_TOO_LARGE, span, event=name, limit=MOST_PARTS))
        self._parts[name] = 1 + parts

    def _parts_of(self, type_: Type) -> int:
        if type_.kind is Kind.EVENT:
            return self._parts.get(type_.name, 1)
        return 1 + sum(map(self._parts_of, type_.of))

    def _report_cycle(self, name: str, field: str, cycle: list[str]) -> None:
        members = self._nodes[name].members
        span = next(
            item.name.span for item in members if isinstance(item, ast.FieldDefinition) and item.name.text == field
        )
        path = " → ".join([*cycle, cycle[0]])
        self._report(name, QueryError.of(Mistake.EVENT_IN_ITSELF, span, event=name, name=field, path=path))

    def _report(self, name: str, mistake: QueryError) -> None:
        self.mistakes.setdefault(name, []).append(mistake)

    def _held(self, name: str) -> Iterator[tuple[str, str]]:
        """The fields that contain events of defined types, with these types."""
        for item in self._schemas[name].fields:
            for held in events_in(item.type):
                if held in self._nodes:
                    yield item.name, held


def events_in(type_: Type) -> list[str]:
    """The event types that occur in a type."""
    return [type_.name] if type_.kind is Kind.EVENT else [name for inner in type_.of for name in events_in(inner)]
