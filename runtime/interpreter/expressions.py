"""What an expression is worth in a context: the meaning of the language, in plain Python.

Takes checked expression trees and a `Context`; gives a value or raises `EvaluationError`. The reference matcher, the
statements and every test of a faster reading of the tree lean on it. What operators and methods do to values stands in
`runtime.interpreter.numbers`, `decimals`, `strings`, `containers`; here is what a node makes of its parts.

`and` and `or` of booleans look at their right side only if the left one does not decide. Strings compare by code point.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from querylang.plan.expression import (
    NODES,
    Aggregate,
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    IndexOf,
    Invoke,
    Items,
    KeyOf,
    Literal,
    LocalOf,
    MemberOf,
    New,
    ParameterOf,
    SelectOf,
    Unary,
    children,
)
from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.value_types import Kind, Type
from runtime.interpreter.containers import element, value_at
from runtime.interpreter.context import Context
from runtime.interpreter.decimals import DECIMAL_OPERATORS, negated
from runtime.interpreter.methods import bound_method
from runtime.interpreter.numbers import FLOAT_OPERATORS, INTEGER_OPERATORS, wrap
from runtime.interpreter.strings import joined
from runtime.interpreter.values import (
    AnyValue,
    Dictionary,
    EvaluationError,
    Event,
    Location,
    Value,
    World,
    clone,
    default_value,
    equal,
    weigh,
)

Operator = Callable[[Any, Any], Any]


def _same(left: Value, right: Value) -> bool:
    weigh(left)
    return equal(left, right)


_EQUALITY: dict[str, Operator] = {"=": _same, "!=": lambda left, right: not _same(left, right)}
_ORDER: dict[str, Operator] = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}

OPERATORS: Mapping[Kind, Mapping[str, Operator]] = {
    **dict.fromkeys(Kind, _EQUALITY),
    Kind.BOOLEAN: {
        "=": operators.eq,
        "!=": operators.ne,
        "and": operators.and_,
        "or": operators.or_,
        "xor": operators.xor,
    },
    Kind.INTEGER: {**_ORDER, **INTEGER_OPERATORS},
    Kind.FLOAT: {**_ORDER, **FLOAT_OPERATORS},
    Kind.DECIMAL: {**_ORDER, **DECIMAL_OPERATORS},
    Kind.STRING: {**_ORDER, "+": joined},
}
"""The type of both sides, the operator, what it does."""

UNARY_OPERATORS: Mapping[tuple[Kind, str], Callable[[Any], Any]] = {
    (Kind.BOOLEAN, "not"): operators.not_,
    (Kind.INTEGER, "not"): operators.invert,
    (Kind.INTEGER, "-"): lambda value: wrap(-value),
    (Kind.FLOAT, "-"): operators.neg,
    (Kind.DECIMAL, "-"): negated,
}


def evaluate(expression: Expression, context: Context) -> Value:
    """The value of the expression; raises EvaluationError."""
    found = _LEAVES.get(type(expression))
    if found is not None:
        return found(expression, context)
    if isinstance(expression, Binary):
        return _binary(expression, context)
    return combined(expression, [evaluate(part, context) for part in children(expression)], context)


def holds(condition: Expression, context: Context) -> bool:
    """Whether a condition is true; one that fails to evaluate is false."""
    try:
        return bool(evaluate(condition, context))
    except EvaluationError:
        return False


def combined(node: Expression, parts: Sequence[Any], context: Context) -> Value:
    """What a node with parts is worth, given what the expressions right below it (`children`) are worth."""
    return _COMBINED[type(node)](node, parts, context)


def _binary(node: Binary, context: Context) -> Value:
    """`and` and `or` of booleans stop where the left side decides."""
    left = evaluate(node.left, context)
    if node.operator in ("and", "or") and isinstance(left, bool) and left is (node.operator == "or"):
        return left
    value: Value = OPERATORS[value_type(node.left).kind][node.operator](left, evaluate(node.right, context))
    return value


def _field(node: FieldOf, context: Context) -> Value:
    value = _bound(context, node.term).get(node.field)
    return value if context.is_block else own(value)


def _event(node: EventOf, context: Context) -> Value:
    event = context.bound[node.term] if node.type.kind is Kind.OPTIONAL else _bound(context, node.term)
    return event if context.is_block else own(event)


def own(value: AnyValue) -> AnyValue:
    """The value itself, or a copy if it could be changed."""
    return clone(value) if isinstance(value, list | Dictionary | Event | Location) else value


def value_type(expression: Expression) -> Type:
    """The type of an expression that has a value."""
    assert expression.type is not None, "an action that returns nothing is no part of an expression"
    return expression.type


def _present(value: Value, problem: str) -> Value:
    if value is None:
        raise EvaluationError(problem)
    return value


def _bound(context: Context, term: int) -> Event:
    event = context.bound[term]
    if event is None:
        raise EvaluationError("the event is not set")
    return event


def _call(node: Call, parts: Sequence[Any], context: Context) -> Value:
    value: Value = bound_method(value_type(node.receiver), node.method, context.world)(*parts)
    return value


def _member(node: MemberOf, parts: Sequence[Any], _context: Context) -> Value:
    """A field of an event, a coordinate of a location."""
    (receiver,) = parts
    if isinstance(receiver, Location):
        return receiver.corners[LOCATION_FIELDS.index(node.field)]
    assert isinstance(receiver, Event), "members belong to events and locations"
    return receiver.get(node.field)


def _element(_node: IndexOf, parts: Sequence[Any], _context: Context) -> Value:
    container, place = parts
    return value_at(container, place) if isinstance(container, Dictionary) else element(container, place)


def _made(node: New, parts: Sequence[Any], context: Context) -> Value:
    """A new value of its parts; without any, the type's default."""
    if not parts:
        return default_value(node.type, context.world)
    if node.type.kind is Kind.EVENT:
        return _made_event(node.type, parts, context.world)
    value: Value = Location(*parts) if node.type.kind is Kind.LOCATION else parts[0]
    return value


def _made_event(type_: Type, parts: Sequence[Any], world: World) -> Event:
    event = world.event_type(type_.name)
    return Event(event, {field.name: part for field, part in zip(event.fields, parts, strict=True)})


def _items(node: Items, parts: Sequence[Any], _context: Context) -> Value:
    if node.type.kind is Kind.DICTIONARY:
        return Dictionary.of(zip(parts[::2], parts[1::2], strict=True))
    return [*parts]


def _invoked(call: Invoke, parts: Sequence[Any], context: Context) -> Value:
    owner = None if call.receiver is None else value_type(call.receiver).name
    return context.invoke(context.world.action(owner, call.action), parts, context)


_LEAVES: Mapping[type, Callable[[Any, Context], Value]] = {
    Literal: lambda node, _context: node.value,
    LocalOf: lambda node, context: context.locals[node.slot],
    FieldOf: _field,
    EventOf: _event,
    KeyOf: lambda node, context: context.keys[node.index],
    SelectOf: lambda node, context: _present(context.selects[node.index], "the selected value is null"),
    Aggregate: lambda node, context: _present(context.aggregates[node], f"{node.function}() has no value here"),
}
"""Nodes that need nothing evaluated before them. A `ParameterOf` is none: parameters have values before a plan runs."""

_COMBINED: Mapping[type, Callable[[Any, Sequence[Any], Context], Value]] = {
    Unary: lambda node, parts, _context: UNARY_OPERATORS[node.type.kind, node.operator](parts[0]),
    Binary: lambda node, parts, _context: OPERATORS[node.left.type.kind][node.operator](*parts),
    Call: _call,
    MemberOf: _member,
    IndexOf: _element,
    New: _made,
    Items: _items,
    Invoke: _invoked,
}
assert {*_LEAVES, *_COMBINED, ParameterOf} == set(NODES), "every node has a meaning"
