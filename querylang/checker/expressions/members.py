"""Check names, members and indexes.

A path that does not begin with a name of the scope may begin with an event type:
`com.example.A.MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable

from querylang.checker.expressions.folds import is_prev, prev_member
from querylang.checker.expressions.inference_context import Inferring, type_of
from querylang.checker.names.namespaces import path_of
from querylang.checker.names.schema import EventSchema
from querylang.errors import Mistake, QueryError
from querylang.plan.expression import EventOf, Expression, FieldOf, IndexOf, Kind, Literal, MemberOf, Type
from querylang.plan.library import LOCATION_FIELDS, method_of
from querylang.syntax import ast


def name(inferring: Inferring, node: ast.Name, near: Iterable[str] = ()) -> Expression | None:
    """Check a name; `near`: further names to suggest for an unknown one."""
    scope, text = inferring.scope, node.text
    if text in scope.names:
        return scope.names[text]
    if text == "infinity":
        return Literal(Type.FLOAT, float("inf"))
    if text in scope.actions and text not in scope.forbidden:
        return inferring.report(QueryError.of(Mistake.ACTION_AS_VALUE, node.span, name=text))
    if text not in scope.forbidden and inferring.namespace.candidates(text):
        return inferring.report(QueryError.of(Mistake.EVENT_TYPE_AS_VALUE, node.span, name=text))
    missing = scope.missing(node, near)
    return None if missing is None else inferring.report(missing)


def receiver_of(inferring: Inferring, node: ast.Expression) -> Expression | None:
    """Check the receiver before a dot, which must be a value; suggest event types too."""
    if isinstance(node, ast.NameUse) and node.name.text not in inferring.scope.names:
        return name(inferring, node.name, inferring.namespace.types.suggested)
    return inferring.typed(node)


def type_path(inferring: Inferring, node: ast.Expression | None, *, is_plain_type: bool = False) -> ast.Name | None:
    """The event type's name that a dotted expression spells; None if it is something else.

    In a text without definitions, a capital letter after a package marks a type; with
    `is_plain_type` also without a package.
    """
    root = node
    while isinstance(root, ast.Member):
        root = root.receiver
    if not isinstance(root, ast.NameUse) or inferring.scope.has(root.name.text):
        return None
    path = path_of(node)
    if path is None or inferring.namespace.candidates(path.text):
        return path
    package, _, word = path.text.rpartition(".")
    may_be_unseen = not inferring.namespace.is_strict and bool(package or is_plain_type)
    return path if may_be_unseen and word[:1].isupper() else None


def unknown_type(inferring: Inferring, node: ast.Expression) -> QueryError | None:
    """The mistake of a dotted path that can only mean an event type: it ends with a capital."""
    path = path_of(node)
    if path is None or "." not in path.text or inferring.scope.has(path.text.partition(".")[0]):
        return None
    before, _, word = path.text.rpartition(".")
    if inferring.namespace.candidates(before):  # a constant of an event type
        return None
    is_type = inferring.scope.is_whole and word[:1].isupper()
    return inferring.namespace.unknown(path) if is_type else None


def member(inferring: Inferring, node: ast.Member) -> Expression | None:
    """Check `receiver.name`: a field, or a constant of an event type."""
    if isinstance(node.receiver, ast.Call) and is_prev(inferring, node.receiver):
        return prev_member(inferring, node.receiver, node.name, is_called=False)
    path = type_path(inferring, node.receiver, is_plain_type=node.name.text.isupper())
    if path is not None:
        return _type_constant(inferring, path, node.name)
    unknown = unknown_type(inferring, node.receiver)
    if unknown is not None:
        return inferring.report(unknown)
    receiver = receiver_of(inferring, node.receiver)
    if receiver is None:
        return None
    type_ = type_of(receiver)
    if type_.kind is Kind.EVENT:
        return _event_member(inferring, receiver, inferring.namespace.of(type_), node.name)
    if type_ == Type.LOCATION and node.name.text in LOCATION_FIELDS:
        return MemberOf(Type.FLOAT, receiver, node.name.text)
    return inferring.report(_no_member(type_, node.name).with_hint(_hint_of_run(inferring, node, type_)))


def _hint_of_run(inferring: Inferring, node: ast.Member, type_: Type) -> str | None:
    """What `up.price` was meant as, where `up` is a run and no single event."""
    repeats = inferring.scope.repeats
    if repeats is None or not isinstance(node.receiver, ast.NameUse) or node.receiver.name.text not in repeats.runs:
        return None
    run, field = node.receiver.name.text, node.name.text
    if type_.kind is not Kind.SEQUENCE or inferring.namespace.of(type_.of[0]).type_of(field) is None:
        return None
    return f"`{run}` is a run of events; write `last({run}).{field}`, or a fold as `max({run}.{field})`"


def index(inferring: Inferring, node: ast.Index) -> Expression | None:
    """Check `receiver[index]`: an element of a sequence, a value of a dictionary."""
    receiver = inferring.typed(node.receiver)
    if receiver is None:
        inferring.typed(node.index)
        return None
    type_ = type_of(receiver)
    if type_.kind is Kind.SEQUENCE:
        at, element = inferring.of_type(node.index, Type.INTEGER, "an index"), type_.of[0]
    elif type_.kind is Kind.DICTIONARY:
        at, element = inferring.of_type(node.index, type_.of[0], "a key of this dictionary"), type_.of[1]
    else:
        return inferring.report(QueryError.of(Mistake.NOT_INDEXED, node.receiver.span, found=str(type_)))
    return None if at is None else IndexOf(element, receiver, at)


_COLUMNS_OF_TIME = ("at", "ts")
"""Columns of event tables that are fields only if a definition has them."""


def no_field(schema: EventSchema, node: ast.Name) -> QueryError:
    """The mistake of a name that is not a field of this event type."""
    if schema.is_unseen:
        return QueryError.of(Mistake.UNSEEN_FIELD, node.span, event=schema.name, name=node.text)
    is_called = schema.action(node.text) is not None or method_of(schema.type, node.text) is not None
    if is_called:
        return QueryError.of(Mistake.FIELD_IS_METHOD, node.span, type=f"'{schema.name}'", name=node.text)
    mistake = QueryError.of(Mistake.UNKNOWN_FIELD, node.span, event=schema.name, name=node.text)
    constants = [constant for constant, _value in schema.constants]
    return mistake.suggesting(node.text, [*schema.field_names, *constants])


def _event_member(inferring: Inferring, receiver: Expression, schema: EventSchema, node: ast.Name) -> Expression | None:
    type_ = schema.type_of(node.text)
    if type_ is not None:
        if isinstance(receiver, EventOf):
            return FieldOf(type_, receiver.term, node.text)
        return MemberOf(type_, receiver, node.text)
    constants = dict(schema.constants)
    if node.text in constants:
        return constants[node.text]
    if schema.may_have(node.text):
        return None
    mistake = no_field(schema, node)
    is_time = node.text in _COLUMNS_OF_TIME and not mistake.message.endswith("?")
    return inferring.report(mistake.with_hint("the time of an event is `.getTime()`" if is_time else None))


def _type_constant(inferring: Inferring, path: ast.Name, node: ast.Name) -> Expression | None:
    schema = inferring.namespace.find(path)
    if schema is None:
        return None
    constants = dict(schema.constants)
    if node.text in constants:
        return constants[node.text]
    if schema.may_have(node.text):
        return None
    mistake = QueryError.of(Mistake.UNKNOWN_CONSTANT, node.span, type=f"'{schema.name}'", name=node.text)
    if schema.type_of(node.text) is not None:
        return inferring.report(mistake.with_hint("a field is read from an event, not from its type"))
    return inferring.report(mistake.suggesting(node.text, constants))


def _no_member(type_: Type, node: ast.Name) -> QueryError:
    if type_.kind is Kind.OPTIONAL and method_of(type_, node.text) is None:
        return QueryError.of(Mistake.UNSET_MEMBER, node.span, name=node.text)
    if method_of(type_, node.text) is not None:
        return QueryError.of(Mistake.FIELD_IS_METHOD, node.span, type=str(type_), name=node.text)
    mistake = QueryError.of(Mistake.NO_MEMBERS, node.span, type=str(type_), name=node.text)
    return mistake.suggesting(node.text, LOCATION_FIELDS if type_ == Type.LOCATION else ())
