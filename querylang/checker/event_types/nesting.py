"""Refuse event types that contain themselves or are nested too deeply.

A column has a type of finite depth, so an event type must not contain itself through sequences,
dictionaries and optionals either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from querylang.checker.names.schema import EventSchema
from querylang.errors import Mistake, QueryError
from querylang.plan.value_types import Kind, Type
from querylang.syntax import ast

DEEPEST = 20
"""Levels of events in events."""


def nesting_mistakes(
    schemas: Mapping[str, EventSchema], nodes: Mapping[str, ast.EventDefinition]
) -> dict[str, list[QueryError]]:
    """The mistakes of the definitions `nodes`, by the plan's names; those types are better left open."""
    search = _Search(schemas, nodes)
    for name in nodes:
        search.visit(name)
    return search.mistakes


class _Search:
    """Goes through all types depth first, with a stack of its own: chains may be long."""

    def __init__(self, schemas: Mapping[str, EventSchema], nodes: Mapping[str, ast.EventDefinition]) -> None:
        self._schemas = schemas
        self._nodes = nodes
        self._depths: dict[str, int] = {}
        self.mistakes: dict[str, list[QueryError]] = {}

    def visit(self, first: str) -> None:
        """Finds what is wrong with a type and those that it holds."""
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
                self._tell_cycle(name, field, [*path][[*path].index(held) :])
            elif held not in self._depths:
                path[held] = self._held(held)

    def _leave(self, name: str) -> None:
        below = [self._depths.get(held, 0) for _field, held in self._held(name)]
        self._depths[name] = 1 + max(below, default=0)
        if self._depths[name] > DEEPEST:
            self._depths[name] = 0
            span = self._nodes[name].name.span
            self._tell(name, QueryError.of(Mistake.EVENT_TOO_DEEP, span, event=name, limit=DEEPEST))

    def _tell_cycle(self, name: str, field: str, cycle: list[str]) -> None:
        members = self._nodes[name].members
        span = next(
            item.name.span for item in members if isinstance(item, ast.FieldDefinition) and item.name.text == field
        )
        path = " → ".join([*cycle, cycle[0]])
        self._tell(name, QueryError.of(Mistake.EVENT_IN_ITSELF, span, event=name, name=field, path=path))

    def _tell(self, name: str, mistake: QueryError) -> None:
        self.mistakes.setdefault(name, []).append(mistake)

    def _held(self, name: str) -> Iterator[tuple[str, str]]:
        """The fields that hold events of defined types, with these types."""
        for item in self._schemas[name].fields:
            for held in events_in(item.type):
                if held in self._nodes:
                    yield item.name, held


def events_in(type_: Type) -> list[str]:
    """The event types that a type is made of."""
    return [type_.name] if type_.kind is Kind.EVENT else [name for inner in type_.of for name in events_in(inner)]
