"""Expressions over an input's event, which is term 0: a field, or the result of an action."""

from __future__ import annotations

from querylang.checker.expressions.inference import Inference
from querylang.checker.names.schema import EventSchema
from querylang.checker.query.durations import Constants
from querylang.errors import Mistake
from querylang.plan.expression import EventOf, Expression, FieldOf
from querylang.syntax import ast

_THIS = ""
"""The event's name in its own expressions; users cannot write it."""


def event_field(schema: EventSchema, name: str) -> Expression | None:
    """A field of the event; None if there is no such field."""
    type_ = schema.type_of(name)
    return None if type_ is None else FieldOf(type_, 0, name)


def event_value(
    schema: EventSchema, name: ast.Name, arguments: tuple[ast.Expression, ...], constants: Constants
) -> Expression | None:
    """The result of an action or method of the event, called with constants and parameters."""
    scope = constants.scope(Mistake.NOT_CONSTANT).with_names({_THIS: EventOf(schema.type, 0)})
    receiver = ast.NameUse(ast.Name(_THIS, name.span))
    return Inference(scope, constants.namespace).value(ast.Call(name.span, receiver, name, arguments))
