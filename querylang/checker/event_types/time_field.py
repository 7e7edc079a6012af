"""Resolve `time from`: the action or field with the source time, in seconds since 1970 UTC."""

from __future__ import annotations

from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.schema import ActionSignature, EventSchema
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import EventOf, Expression, FieldOf, Invoke, Type
from querylang.syntax import ast

_SECONDS = (Type.FLOAT, Type.INTEGER)


def source_time(schema: EventSchema, name: ast.Name, namespace: Namespace) -> Expression | None:
    """The source time of an event in seconds: an action without arguments, or a field.

    None if it is neither, which is reported, or if its type is open.
    """
    action, type_ = schema.action(name.text), schema.type_of(name.text)
    if action is not None:
        return _of_action(schema, action, name, namespace)
    if type_ is not None:
        return FieldOf(type_, 0, name.text) if _is_time(type_, name, namespace) else None
    if not schema.may_have(name.text):
        near = [*schema.field_names, *(item.name for item in schema.actions)]
        mistake = QueryError.of(Mistake.UNKNOWN_TIME, name.span, event=schema.name, name=name.text)
        namespace.diagnostics.add(mistake.suggesting(name.text, near))
    return None


def _of_action(schema: EventSchema, action: ActionSignature, name: ast.Name, namespace: Namespace) -> Expression | None:
    namespace.diagnostics.extend(action.problems)
    if action.is_open:
        return None
    if action.parameters:
        namespace.diagnostics.report(Mistake.TIME_ARGUMENTS, name.span, name=name.text)
        return None
    if not _is_time(action.returns, name, namespace):
        return None
    return action.inline or Invoke(action.returns, action.name, EventOf(schema.type, 0), ())


def _is_time(type_: Type | None, name: ast.Name, namespace: Namespace) -> bool:
    if type_ in _SECONDS:
        return True
    shown = "nothing" if type_ is None else str(type_)
    namespace.diagnostics.report(Mistake.TIME_TYPE, name.span, name=name.text, type=shown)
    return False
