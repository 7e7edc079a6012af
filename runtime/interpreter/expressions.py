"""Evaluation of checked expressions, value by value: the definition of what the language means.

The reference matcher and the statements use it, and every vectorised or compiled evaluator is
tested against it. The operators and methods of each type are in `numbers`, `decimals`, `strings`
and `containers`.

`and` and `or` of booleans evaluate their right side only if the left side does not decide. Strings
compare by code point.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from querylang.plan.expression import (
    NODES,
    Aggregate,
    Binary,
    Call,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    IndexOf,
    Invoke,
    Items,
    KeyOf,
    Literal,
    LocalOf,
    MemberOf,
    New,
    ParameterOf,
    PrevOf,
    SelectOf,
    Unary,
    children,
)
from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.value_types import Kind, Type
from runtime.interpreter.containers import element, value_at
from runtime.interpreter.context import Context
from runtime.interpreter.decimals import DECIMAL_OPERATORS, negated
from runtime.interpreter.folds import folded
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
    limit_parts,
)
from runtime.interpreter.work import NODE, PART, call_bytes, compared_bytes, text_bytes, value_bytes

Operator = Callable[[Any, Any], Any]


def _same(left: Value, right: Value) -> bool:
    limit_parts(left)
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
"""By the type of both sides and the operator: the function."""

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
    context.budget.spend(NODE)
    if isinstance(expression, Binary):
        return _binary(expression, context)
    return combine(expression, [evaluate(part, context) for part in children(expression)], context)


def holds(condition: Expression, context: Context) -> bool:
    """Whether a condition is true; one that fails to evaluate is false."""
    try:
        return bool(evaluate(condition, context))
    except EvaluationError:
        return False


def combine(node: Expression, parts: Sequence[Any], context: Context) -> Value:
    """The value of a node, given the values of its `children`; raises EvaluationError."""
    return _COMBINATIONS[type(node)](node, parts, context)


def _binary(node: Binary, context: Context) -> Value:
    """`and` and `or` of booleans do not evaluate the right side if the left side decides."""
    left = evaluate(node.left, context)
    if node.operator in ("and", "or") and isinstance(left, bool) and left is (node.operator == "or"):
        return left
    right, budget = evaluate(node.right, context), context.budget
    if isinstance(left, _LARGE) and node.operator != "+":
        budget.spend(compared_bytes(left, right, budget.bytes))
    value: Value = OPERATORS[value_type(node.left).kind][node.operator](left, right)
    return _made(value, context)


_LARGE = (str, list, Dictionary, Event)


def _made(value: Value, context: Context) -> Value:
    """A value that was computed, once it is counted."""
    if isinstance(value, str):
        context.budget.spend(text_bytes(value))
    return value


def _field(node: FieldOf, context: Context) -> Value:
    value = _event_of(context, node.term).get(node.field)
    return value if context.is_block else _unshared(value)


def _event(node: EventOf, context: Context) -> Value:
    event = context.events[node.term] if node.type.kind is Kind.OPTIONAL else _event_of(context, node.term)
    return event if context.is_block else _unshared(event)


def _prev(node: PrevOf, context: Context) -> Value:
    event = context.before[node.term]
    if event is None:
        raise EvaluationError("there is no event before")
    if not node.field:
        return _present(event.time, "the event has no time")
    return _unshared(event.get(node.field))


def _end(node: EndOf, context: Context) -> Value:
    run = context.runs[node.term]
    if not run and node.type.kind is not Kind.OPTIONAL:
        raise EvaluationError("the run is empty")
    event = run[0 if node.function == "first" else -1] if run else None
    return event if context.is_block else _unshared(event)


def _fold(node: Fold, context: Context) -> Value:
    """The value over the events of a run, or over runs of one group in pairs."""
    runs = [context.runs[term] for term in node.terms]
    if node.function == "count":
        return len(runs[0])
    known = context.events if isinstance(context.events, Mapping) else dict(enumerate(context.events))
    values = [
        evaluate(node.argument, replace(context, events={**known, **dict(zip(node.terms, events, strict=True))}))
        for events in zip(*runs, strict=True)
    ]
    value = folded(node.function, values, value_type(node.argument).kind)
    if value is None and node.type.kind is not Kind.OPTIONAL:
        raise EvaluationError(f"{node.function}() over no event has no value")
    return value


def _unshared(value: AnyValue) -> AnyValue:
    """The value, or a copy if it is mutable."""
    return clone(value) if isinstance(value, list | Dictionary | Event | Location) else value


def value_type(expression: Expression) -> Type:
    """The type of an expression that has a value."""
    assert expression.type is not None, "an action that returns nothing is not part of an expression"
    return expression.type


def _present(value: Value, problem: str) -> Value:
    if value is None:
        raise EvaluationError(problem)
    return value


def _selected(node: SelectOf, context: Context) -> Value:
    value = context.selects[node.index]
    return value if node.type.kind is Kind.OPTIONAL else _present(value, "the selected value is null")


def _event_of(context: Context, term: int) -> Event:
    event = context.events[term]
    if event is None:
        raise EvaluationError("the event is not set")
    return event


def _call(node: Call, parts: Sequence[Any], context: Context) -> Value:
    type_, budget = value_type(node.receiver), context.budget
    budget.spend(call_bytes(type_, node.method, parts, context.world, budget.bytes))
    return _made(bound_method(type_, node.method, context.world)(*parts), context)


def _member(node: MemberOf, parts: Sequence[Any], _context: Context) -> Value:
    """A field of an event, or a coordinate of a location."""
    (receiver,) = parts
    if isinstance(receiver, Location):
        return receiver.corners[LOCATION_FIELDS.index(node.field)]
    assert isinstance(receiver, Event), "only events and locations have members"
    return receiver.get(node.field)


def _element(_node: IndexOf, parts: Sequence[Any], context: Context) -> Value:
    container, place = parts
    if not isinstance(container, Dictionary):
        return element(container, place)
    context.budget.spend(value_bytes(place, context.budget.bytes))
    return value_at(container, place)


def _new(node: New, parts: Sequence[Any], context: Context) -> Value:
    """A new value made of its parts; without parts the type's default."""
    if not parts:
        value = default_value(node.type, context.world)
        context.budget.spend(value_bytes(value, context.budget.bytes))
        return value
    context.budget.spend(PART * len(parts))
    if node.type.kind is Kind.EVENT:
        return _new_event(node.type, parts, context.world)
    return Location(*parts) if node.type.kind is Kind.LOCATION else parts[0]


def _new_event(type_: Type, parts: Sequence[Any], world: World) -> Event:
    event = world.event_type(type_.name)
    return Event(event, {field.name: part for field, part in zip(event.fields, parts, strict=True)})


def _items(node: Items, parts: Sequence[Any], context: Context) -> Value:
    context.budget.spend(PART * len(parts))
    if node.type.kind is Kind.DICTIONARY:
        return Dictionary.of(zip(parts[::2], parts[1::2], strict=True))
    return [*parts]


def _invoke(call: Invoke, parts: Sequence[Any], context: Context) -> Value:
    owner = None if call.receiver is None else value_type(call.receiver).name
    return context.invoke(context.world.action(owner, call.action), parts, context)


_LEAVES: Mapping[type, Callable[[Any, Context], Value]] = {
    Literal: lambda node, _context: node.value,
    LocalOf: lambda node, context: context.locals[node.slot],
    FieldOf: _field,
    EventOf: _event,
    KeyOf: lambda node, context: context.keys[node.index],
    SelectOf: _selected,
    PrevOf: _prev,
    EndOf: _end,
    Fold: _fold,
    Aggregate: lambda node, context: _present(context.aggregates[node], f"{node.function}() has no value here"),
}
"""Nodes without parts; without `ParameterOf`, because parameters have values before a plan runs."""

_COMBINATIONS: Mapping[type, Callable[[Any, Sequence[Any], Context], Value]] = {
    Unary: lambda node, parts, _context: UNARY_OPERATORS[node.type.kind, node.operator](parts[0]),
    Binary: lambda node, parts, _context: OPERATORS[node.left.type.kind][node.operator](*parts),
    Call: _call,
    MemberOf: _member,
    IndexOf: _element,
    New: _new,
    Items: _items,
    Invoke: _invoke,
}
assert {*_LEAVES, *_COMBINATIONS, ParameterOf} == set(NODES), "every node has a meaning"
