"""Inline actions that only return an expression over their event.

An example is `action getTime() returns float { return ts; }`. A call of such an action on a bound
event becomes that expression, which can be evaluated over columns. All other actions are called.
"""

from __future__ import annotations

from collections.abc import Mapping

from querylang.plan.expression import EventOf, Expression, FieldOf, Invoke, LocalOf, MemberOf, rewritten, walk
from querylang.plan.model import Action, Return

LARGEST = 100
"""The most parts of an inlined expression; calls of calls could double it again and again."""


def inline_forms(actions: Mapping[str, Action]) -> dict[str, Expression]:
    """The inlined expressions of an event type's actions, over the event as term 0."""
    forms: dict[str, Expression] = {}
    waiting = {name: action for name, action in actions.items() if _returned(action) is not None}
    has_changed = True
    while has_changed:
        has_changed = False
        for name, action in list(waiting.items()):
            form = _form(action, forms)
            if form is not None:
                forms[name] = form
                del waiting[name]
                has_changed = True
    return forms


def applied(form: Expression, term: int) -> Expression:
    """The inlined expression over the event bound to a term."""

    def moved(node: Expression) -> Expression:
        match node:
            case FieldOf(type=type_, field=field):
                return FieldOf(type_, term, field)
            case EventOf(type=type_):
                return EventOf(type_, term)
            case _:
                return node

    return rewritten(form, moved)


def _returned(action: Action) -> Expression | None:
    match action:
        case Action(parameters=(), body=(Return(value=value),)):
            return value
        case _:
            return None


def _form(action: Action, forms: Mapping[str, Expression]) -> Expression | None:
    """The action's expression over the event as term 0; None if it cannot be inlined (yet)."""

    def over_the_event(node: Expression) -> Expression:
        match node:
            case LocalOf(slot=0):
                return EventOf(node.type, 0)
            case MemberOf(type=type_, receiver=EventOf(), field=field):
                return FieldOf(type_, 0, field)
            case Invoke(action=name, receiver=EventOf(), arguments=()) if name in forms:
                return forms[name]
            case _:
                return node

    value = _returned(action)
    assert value is not None, "only such actions are asked for"
    form = rewritten(value, over_the_event)
    parts = list(walk(form))
    is_plain = len(parts) <= LARGEST and not any(isinstance(part, Invoke) for part in parts)
    return form if is_plain else None
