"""What an expression is worth in a context: the meaning of the language, in plain Python.

Takes checked expression trees and a `Context`; gives a value or raises `EvaluationError`. The reference matcher, the
statements and every test of a faster reading of the tree lean on it. What operators and methods do to values stands in
`runtime.numbers`, `decimals`, `strings`, `containers`; here is what a node makes of its parts.

`and` and `or` of booleans look at their right side only if the left one does not decide. Strings compare by code point.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, assert_never

from querylang.expression import (
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
from querylang.value_types import Kind, Type
from runtime.containers import element, value_at
from runtime.decimals import decimal_arithmetic, negated
from runtime.evaluation import Context
from runtime.methods import bound_method
from runtime.numbers import float_arithmetic, integer_arithmetic, wrap
from runtime.strings import joined
from runtime.values import (
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
)

ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "and": operators.and_,
    "or": operators.or_,
    "xor": operators.xor,
}


def evaluate(expression: Expression, context: Context) -> Value:
    """The value of the expression; raises EvaluationError."""
    match expression:
        case Literal(value=value):
            return value
        case FieldOf(term=term, field=field):
            found = _bound(context, term).get(field)
            return found if context.is_block else own(found)
        case LocalOf(slot=slot):
            local: Value = context.locals[slot]
            return local
        case Binary(type=Type.BOOLEAN, operator="and", left=left, right=right):
            return bool(evaluate(left, context)) and bool(evaluate(right, context))
        case Binary(type=Type.BOOLEAN, operator="or", left=left, right=right):
            return bool(evaluate(left, context)) or bool(evaluate(right, context))
        case ParameterOf(name=name):
            raise AssertionError(f"parameter {name!r} has a value before a plan runs")
        case _:
            return combined(expression, [evaluate(part, context) for part in children(expression)], context)


def holds(condition: Expression, context: Context) -> bool:
    """Whether a condition is true; one that fails to evaluate is false."""
    try:
        return bool(evaluate(condition, context))
    except EvaluationError:
        return False


def combined(node: Expression, parts: Sequence[Any], context: Context) -> Value:
    """What a node is worth, given what the expressions right below it (`children`) are worth."""
    match node:
        case Literal(value=value):
            return value
        case EventOf(type=type_, term=term):
            event = context.bound[term] if type_.kind is Kind.OPTIONAL else _bound(context, term)
            return event if context.is_block else own(event)
        case FieldOf() | LocalOf() | ParameterOf():
            raise AssertionError(f"{node} has no parts")
        case KeyOf(index=index):
            return context.keys[index]
        case SelectOf(index=index):
            return _present(context.selects[index], "the selected value is null")
        case Unary(type=type_, operator=name):
            return unary(type_, name, parts[0])
        case Binary(operator=name, left=left):
            return binary(value_type(left), name, parts[0], parts[1])
        case Call(method=method, receiver=receiver):
            result: Value = bound_method(value_type(receiver), method, context.world)(*parts)
            return result
        case Invoke():
            return _invoked(node, parts, context)
        case MemberOf(field=field):
            return member(parts[0], field)
        case IndexOf():
            container, place = parts
            return value_at(container, place) if isinstance(container, Dictionary) else element(container, place)
        case New(type=type_):
            return _made(type_, parts, context.world)
        case Items(type=type_):
            return (
                Dictionary.of(zip(parts[::2], parts[1::2], strict=True)) if type_.kind is Kind.DICTIONARY else [*parts]
            )
        case Aggregate():
            return _present(context.aggregates[node], f"{node.function}() of nothing has no value")
    assert_never(node)


def own(value: AnyValue) -> AnyValue:
    """The value itself, or a copy if it could be changed."""
    return clone(value) if isinstance(value, list | Dictionary | Event) else value


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


def unary(type_: Type, operator: str, value: Any) -> Value:
    """`operator value`, both of that type."""
    match operator, type_.kind:
        case "not", Kind.BOOLEAN:
            return not value
        case "not", Kind.INTEGER:
            return ~int(value)
        case "-", Kind.INTEGER:
            return wrap(-int(value))
        case "-", Kind.FLOAT:
            return -float(value)
        case "-", Kind.DECIMAL:
            return negated(value)
    raise AssertionError(f"operator {operator!r} on {type_}")


def binary(type_: Type, operator: str, left: Any, right: Any) -> Value:
    """`left operator right`, where both sides are of that type."""
    if operator in ORDER:
        return ORDER[operator](left, right)
    if operator in LOGIC:
        value: Value = LOGIC[operator](left, right)
        return value
    if operator in ("=", "!="):
        return equal(left, right) is (operator == "=")
    match left:
        case float():
            return float_arithmetic(operator, left, right)
        case int():
            return integer_arithmetic(operator, left, right)
        case Decimal():
            return decimal_arithmetic(operator, left, right)
        case str():
            assert operator == "+", f"operator {operator!r} on {type_}"
            return joined(left, right)
    raise AssertionError(f"operator {operator!r} on {type_}")


def member(receiver: Event | Location, field: str) -> Value:
    """A field of an event, a corner's part of a location."""
    if isinstance(receiver, Location):
        return dict(zip(("x1", "y1", "x2", "y2"), receiver.corners, strict=True))[field]
    return receiver.get(field)


def _made(type_: Type, parts: Sequence[Any], world: World) -> Value:
    """A new value of its parts; without any, the type's default."""
    match type_.kind:
        case Kind.OPTIONAL if parts:
            value: Value = parts[0]
            return value
        case Kind.LOCATION if parts:
            return Location(*parts)
        case Kind.EVENT if parts:
            event = world.event_type(type_.name)
            return Event(event, {field.name: part for field, part in zip(event.fields, parts, strict=True)})
    return default_value(type_, world)


def _invoked(call: Invoke, parts: Sequence[Any], context: Context) -> Value:
    from runtime.statements import run_action  # statements evaluate expressions, expressions call actions

    owner = value_type(call.receiver).name if call.receiver is not None else None
    return run_action(context.world.action(owner, call.action), parts, context)
