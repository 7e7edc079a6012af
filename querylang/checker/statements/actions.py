"""Check the actions of queries and event types: first their signatures, then their bodies.

Actions may call each other and themselves; the runtime limits the steps of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from querylang.checker.names.namespaces import Namespace
from querylang.checker.names.schema import ActionSignature, EventSchema
from querylang.checker.names.scope import Scope
from querylang.checker.statements.blocks import check_body
from querylang.checker.statements.control_flow import always_returns
from querylang.errors import Mistake
from querylang.plan.expression import Expression, LocalOf, MemberOf, Type
from querylang.plan.model import Action
from querylang.syntax import ast


def signatures(nodes: Iterable[ast.ActionDefinition], namespace: Namespace) -> dict[str, ActionSignature]:
    """The signatures of a query's actions, by name; reports duplicate names."""
    found: dict[str, ActionSignature] = {}
    for node in nodes:
        if node.name.text in found:
            namespace.diagnostics.report(Mistake.DUPLICATE_ACTION, node.name.span, name=node.name.text)
        found.setdefault(node.name.text, signature(node, namespace))
    return found


def signature(node: ast.ActionDefinition, namespace: Namespace) -> ActionSignature:
    """The signature of an action; reports unknown types and duplicate parameters."""
    seen: set[str] = set()
    for parameter in node.parameters:
        name = parameter.name
        if name.text in seen:
            namespace.diagnostics.report(Mistake.DUPLICATE_PARAMETER, name.span, name=name.text)
        seen.add(name.text)
    parameters = tuple((item.name.text, namespace.type_of(item.type)) for item in node.parameters)
    returns = None if node.returns is None else namespace.type_of(node.returns)
    return ActionSignature(node.name.text, parameters, returns, is_open=node.returns is not None and returns is None)


def check_actions(
    nodes: Iterable[ast.ActionDefinition],
    known: Mapping[str, ActionSignature],
    scope: Scope,
    namespace: Namespace,
    owner: Type | None = None,
) -> tuple[Action, ...]:
    """The actions of a query or of the event type `owner`, in order, each name once.

    `scope`: the scope of their bodies.
    """
    checked: dict[str, Action] = {}
    for node in nodes:
        if node.name.text not in checked:
            checked[node.name.text] = _checked(node, known[node.name.text], scope, namespace, owner)
    return tuple(checked.values())


def event_scope(schema: EventSchema) -> Scope:
    """The scope of an event type's actions: its fields, constants and actions, and `self`."""
    event = LocalOf(schema.type, 0)
    names: dict[str, Expression | None] = dict(schema.constants)
    names.update({item.name: MemberOf(item.type, event, item.name) for item in schema.fields})
    return Scope(
        names={**names, "self": event},
        actions={action.name: action for action in schema.actions},
        owner=event,
        unknown=Mistake.UNKNOWN_NAME_OF_EVENT,
        is_whole=not schema.is_open or schema.untyped is not None,
        ignored=frozenset(schema.untyped or ()),
    )


def _checked(
    node: ast.ActionDefinition, known: ActionSignature, scope: Scope, namespace: Namespace, owner: Type | None
) -> Action:
    first = 0 if owner is None else 1
    parameters: dict[str, Expression | None] = {}
    for slot, (name, type_) in enumerate(known.parameters, start=first):
        parameters.setdefault(name, None if type_ is None else LocalOf(type_, slot))
    slots = first + len(known.parameters)
    body = check_body(node.body, known, scope.with_names(parameters), namespace, slots, declared=parameters)
    if known.returns is not None and not always_returns(node.body):
        facts = {"name": known.name, "type": str(known.returns)}
        namespace.diagnostics.report(Mistake.RETURN_MISSING, node.name.span, **facts)
    types = tuple(type_ for _name, type_ in known.parameters if type_ is not None)
    return Action(known.name, types, body.slots, known.returns, body.statements)
