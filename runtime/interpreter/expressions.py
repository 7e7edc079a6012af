"""Evaluation of checked expressions, value by value: the definition of what the language means.

The reference matcher and the statements use it, and every vectorised or compiled evaluator is
tested against it. The operators and methods of each type are in `numbers`, `decimals`, `strings`
and `containers`.

`and` and `or` of booleans evaluate their right side only if the left side does not decide. Strings
compare by code point.

None is a null. `and` and `or` decide with the side that decides, whatever the other one is; of all
else that has a null among its parts, the value is null, once all parts are evaluated. Methods of
optionals take nulls as they are. In a plan of an earlier version a null that is read is a failure
(`QueryPlan.nulls_fail`).
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
    Kind,
    Literal,
    LocalOf,
    Lookup,
    MemberOf,
    New,
    ParameterOf,
    PrevOf,
    SelectOf,
    Type,
    Unary,
    children,
    walk,
)
from querylang.plan.library import LOCATION_FIELDS
from querylang.plan.lookups import Subject, stored_name, subject_of
from runtime.exact_times import with_exact_sum
from runtime.interpreter.aggregates import folded
from runtime.interpreter.containers import Constant, bound_method, constant_receiver, element, value_at
from runtime.interpreter.context import NODE, PART, Context, call_bytes, compared_bytes, text_bytes, value_bytes
from runtime.interpreter.decimals import DECIMAL_OPERATORS, negated
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
    seconds,
)

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
    (Kind.BOOLEAN, "is null"): lambda value: value is None,
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
    if isinstance(expression, Call | IndexOf) and (known := constant_receiver(expression)) is not None:
        return _of_constant(expression, known, [evaluate(part, context) for part in children(expression)[1:]], context)
    return combine(expression, [evaluate(part, context) for part in children(expression)], context)


def required(expression: Expression, context: Context) -> Value:
    """The value of an expression where a statement needs one; raises EvaluationError for a null."""
    value = evaluate(expression, context)
    if value is None and is_null(value, expression):
        raise EvaluationError(_what_is_null(expression, context))
    return value


def run_call(call: Expression, context: Context) -> None:
    """Run a call that is a statement: what it is given must not be null."""
    context.budget.spend(NODE)
    value_of = evaluate if takes_nulls(call) else required
    combine(call, [value_of(part, context) for part in children(call)], context)


def holds(condition: Expression, context: Context) -> bool:
    """Whether a condition is true; one that is null or fails to evaluate is not."""
    try:
        return bool(evaluate(condition, context))
    except EvaluationError:
        return False


def combine(node: Expression, parts: Sequence[Any], context: Context) -> Value:
    """The value of a node, given the values of its `children`; raises EvaluationError."""
    if None in parts and _has_null(node, parts, context):
        return None
    return _COMBINATIONS[type(node)](node, parts, context)


def is_null(value: Value, expression: Expression) -> bool:
    """Whether the value of an expression is a null, and not an optional without a value."""
    return value is None and value_type(expression).kind is not Kind.OPTIONAL


def _of_constant(node: Call | IndexOf, known: Constant, arguments: Sequence[Any], context: Context) -> Value:
    """What a node reads in a constant container; the place of a value is looked up."""
    if isinstance(node, Call) and node.method in ("contains", "indexOf"):
        if is_null(arguments[0], node.arguments[0]):
            return None
        place = known.place_of(arguments[0])
        return place if node.method == "indexOf" else place >= 0
    return combine(node, [known.value, *arguments], context)


def _has_null(node: Expression, parts: Sequence[Any], context: Context) -> bool:
    """Whether a part is null, so that the value is null, too."""
    if isinstance(node, Binary) and value_type(node.left).kind is Kind.OPTIONAL:
        return not context.world.nulls_fail and any(part is None for part in parts)
    return not takes_nulls(node) and any(map(is_null, parts, children(node)))


def takes_nulls(node: Expression) -> bool:
    """Whether it has a value whatever its parts are: `is null`, a method of an optional."""
    if isinstance(node, Unary):
        return node.operator == "is null"
    return isinstance(node, Call) and value_type(node.receiver).kind is Kind.OPTIONAL


def _what_is_null(expression: Expression, context: Context) -> str:
    """Names the first part that is null of its own, without calling anything again."""
    for node in walk(expression):
        name = _name_of(node)
        if name is not None and not any(isinstance(part, Call | Invoke) for part in walk(node)):
            try:
                value = evaluate(node, context)
            except EvaluationError:
                continue
            if is_null(value, node):
                return f"{name} is null"
    return "the value is null"


def _name_of(node: Expression) -> str | None:
    match node:
        case FieldOf(field=field) | MemberOf(field=field):
            return f"field '{field}'"
        case SelectOf():
            return "the selected value"
        case Fold(function=function):
            return f"{function}()"
        case Lookup(table=table, field=field) if field:
            return f"'{field}' of table '{table}'"
    return None


def _binary(node: Binary, context: Context) -> Value:
    """`and` and `or` of booleans do not evaluate the right side if the left side decides.

    Times are added and compared in microseconds.
    """
    exact = with_exact_sum(node)
    if exact is not None:
        return evaluate(exact, context)
    left = evaluate(node.left, context)
    is_logical = node.operator in ("and", "or") and node.type.kind is Kind.BOOLEAN
    if is_logical and left is (node.operator == "or"):
        return left
    right, budget = evaluate(node.right, context), context.budget
    if is_logical:
        return None if left is None and right is not (node.operator == "or") else right
    if (left is None or right is None) and _has_null(node, (left, right), context):
        return None
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
    value = _read(_event_of(context, node.term).values.get(node.field), node, context, f"field '{node.field}'")
    return value if context.is_block else _unshared(value)


def _read(value: Value, node: Expression, context: Context, what: str) -> Value:
    """A value that may be null, which in a plan of an earlier version is a failure."""
    if value is None and context.world.nulls_fail and is_null(value, node):
        raise EvaluationError(f"{what} is null")
    return value


def _event(node: EventOf, context: Context) -> Value:
    event = context.events[node.term] if node.type.kind is Kind.OPTIONAL else _event_of(context, node.term)
    return event if context.is_block else _unshared(event)


def _prev(node: PrevOf, context: Context) -> Value:
    event = context.before[node.term]
    if event is None:
        raise EvaluationError("there is no event before")
    if not node.field:
        if event.time is None:
            raise EvaluationError("the event has no time")
        return event.time if node.type == Type.INTEGER else seconds(event.time)
    return _unshared(_read(event.values.get(node.field), node, context, f"field '{node.field}'"))


def _end(node: EndOf, context: Context) -> Value:
    run = context.runs[node.term]
    if not run and node.type.kind is not Kind.OPTIONAL:
        raise EvaluationError("the run is empty")
    event = run[0 if node.function == "first" else -1] if run else None
    return event if context.is_block else _unshared(event)


def _fold(node: Fold, context: Context) -> Value:
    """The value over the events of a run, or over runs of one group in pairs, without nulls."""
    runs = [context.runs[term] for term in node.terms]
    if node.function == "count":
        return len(runs[0])
    known = context.events if isinstance(context.events, Mapping) else dict(enumerate(context.events))
    values = [
        evaluate(node.argument, replace(context, events={**known, **dict(zip(node.terms, events, strict=True))}))
        for events in zip(*runs, strict=True)
    ]
    value = folded(node.function, [value for value in values if value is not None], value_type(node.argument).kind)
    if value is None and context.world.nulls_fail and is_null(value, node):
        raise EvaluationError(f"{node.function}() over no event has no value")
    return value


_NOT_STORED: Any = object()


def _lookup(node: Lookup, context: Context) -> Value:
    """What a table says of a key: at the arrival of its event, or of the candidate's latest one.

    What was stored with the event at its admission is not asked again.
    """
    context.budget.spend(NODE)
    subject, moment, stored = subject_of(node), context.as_of, _NOT_STORED
    if subject is not None:
        event = _event_about(subject, context)
        moment = context.as_of if event.arrival is None else event.arrival
        stored = (event.looked_up or {}).get(stored_name(node) or "", _NOT_STORED)
        if stored is not _NOT_STORED and not isinstance(stored, EvaluationError):
            return stored
    keys = [evaluate(key, context) for key in node.keys]
    if stored is not _NOT_STORED:
        raise no_row(node, keys)
    if None in keys:
        return None
    assert moment is not None, "who evaluates a lookup knows when"
    content = context.world.table(node.table)
    row = content.row_of(keys, moment)
    if not node.field:
        return row >= 0
    if row >= 0:
        return content.cell(node.field, row)
    if not node.has_default:
        raise no_row(node, keys)
    return default_value(node.type, context.world)


def no_row(node: Lookup, keys: Sequence[Value]) -> EvaluationError:
    """The failure of a lookup."""
    shown = ", ".join(repr(key) if isinstance(key, str) else str(key) for key in keys)
    return EvaluationError(f"table '{node.table}' has no row of {shown}")


def _event_about(subject: Subject, context: Context) -> Event:
    """The only event that a lookup is about."""
    kind, term = subject
    if kind == "":
        return _event_of(context, term)
    run = context.runs.get(term, ())
    event = context.before[term] if kind == "prev" else run[0 if kind == "first" else -1] if run else None
    if event is None:
        raise EvaluationError("there is no event before" if kind == "prev" else "the run is empty")
    return event


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
    return _read(context.selects[node.index], node, context, "the selected value")


def _event_of(context: Context, term: int) -> Event:
    event = context.events[term]
    if event is None:
        raise EvaluationError("the event is not set")
    return event


def _call(node: Call, parts: Sequence[Any], context: Context) -> Value:
    type_, budget = value_type(node.receiver), context.budget
    budget.spend(call_bytes(type_, node.method, parts, context.world, budget.bytes))
    return _made(bound_method(type_, node.method, context.world)(*parts), context)


def _member(node: MemberOf, parts: Sequence[Any], context: Context) -> Value:
    """A field of an event, or a coordinate of a location."""
    (receiver,) = parts
    if isinstance(receiver, Location):
        return receiver.corners[LOCATION_FIELDS.index(node.field)]
    assert isinstance(receiver, Event), "only events and locations have members"
    return _read(receiver.values.get(node.field), node, context, f"field '{node.field}'")


def _element(node: IndexOf, parts: Sequence[Any], context: Context) -> Value:
    container, place = parts
    if not isinstance(container, Dictionary):
        return _read(element(container, place), node, context, "the element")
    context.budget.spend(value_bytes(place, context.budget.bytes))
    return _read(value_at(container, place), node, context, "the element")


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
    Lookup: _lookup,
    Aggregate: lambda node, context: _read(context.aggregates[node], node, context, f"{node.function}()"),
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
