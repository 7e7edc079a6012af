"""Find actions that cannot be used because an action that they call has mistakes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from querylang.checker.names.schema import EventSchema
from querylang.plan.expression import Invoke, Type
from querylang.plan.model import Action

_Place = tuple[str, str]
"""An event type and its action."""


def with_problems_of_callees(schemas: Mapping[str, EventSchema]) -> dict[str, EventSchema]:
    """The schemas with actions that call one with mistakes; they get these mistakes too."""
    problems = {
        (schema.name, action.name): dict.fromkeys(action.problems)
        for schema in schemas.values()
        for action in schema.actions
    }
    if not any(problems.values()):
        return {}
    callers = _callers(schemas)
    waiting = [place for place, found in problems.items() if found]
    changed: dict[str, EventSchema] = {}
    while waiting:
        place = waiting.pop()
        for caller in callers.get(place, []):
            if problems[place].keys() - problems[caller].keys():
                problems[caller].update(problems[place])
                waiting.append(caller)
                changed[caller[0]] = schemas[caller[0]]
    return {
        name: dataclasses.replace(
            schema,
            actions=tuple(
                dataclasses.replace(action, problems=tuple(problems[name, action.name])) for action in schema.actions
            ),
        )
        for name, schema in changed.items()
    }


def _callers(schemas: Mapping[str, EventSchema]) -> dict[_Place, list[_Place]]:
    callers: dict[_Place, list[_Place]] = {}
    for schema in schemas.values():
        for body in schema.bodies:
            for called in called_actions(body):
                callers.setdefault(called, []).append((schema.name, body.name))
    return callers


def called_actions(action: Action) -> Iterator[_Place]:
    """The actions of event types that the body calls."""
    for node in _nodes(action.body):
        if isinstance(node, Invoke) and node.receiver is not None:
            type_ = node.receiver.type
            assert isinstance(type_, Type), "a receiver is a value"
            yield type_.name, node.action


def _nodes(value: Any) -> Iterator[Any]:
    """All statements and expressions of a body."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple):
            waiting += item
        elif dataclasses.is_dataclass(item) and not isinstance(item, Type):
            yield item
            waiting += [getattr(item, part.name) for part in dataclasses.fields(item)]
