"""What statements do: the blocks of queries and the bodies of actions.

Takes statements and a `Context`; puts what is printed and sent into its outputs and changes its local variables. A failure ends the
block with EvaluationError, and so do too many steps and calls too deep within each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, auto
from typing import Any, assert_never

from querylang.plan.expression import Expression, FieldOf, IndexOf, LocalOf, MemberOf
from querylang.plan.model import (
    Action,
    Assign,
    Break,
    Continue,
    Emit,
    Evaluate,
    For,
    If,
    IfPresent,
    Log,
    Print,
    Return,
    Route,
    Send,
    Statement,
    While,
)
from runtime.interpreter.containers import put
from runtime.interpreter.context import DEEPEST_CALLS, Context, Output
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.value_text import event_text
from runtime.interpreter.values import Dictionary, EvaluationError, Event, Location, Value, clone

_FRAMES = 40 * DEEPEST_CALLS
"""Python's frames that the deepest calls may need."""


class Flow(Enum):
    """What comes after a statement."""

    NEXT = auto()
    BREAK = auto()
    CONTINUE = auto()
    RETURN = auto()


def run_action(action: Action, arguments: Sequence[Value], context: Context) -> Value:
    """What the action returns, None for nothing. `arguments`: one a parameter, of an event's action the event first."""
    context.steps.take()
    if context.depth >= DEEPEST_CALLS:
        raise EvaluationError(f"more than {DEEPEST_CALLS} calls of actions within each other")
    slots = [*arguments, *[None] * (action.slots - len(arguments))]
    inner = replace(context, locals=slots, depth=context.depth + 1)
    if context.depth or context.is_block:
        return _run(action.body, inner)[1]
    with _room_for_calls():
        return _run(action.body, inner)[1]


@contextmanager
def _room_for_calls() -> Iterator[None]:
    """Python refuses calls deeper than its own limit, which depends on who called us; ours does not."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    except RecursionError as error:
        raise EvaluationError("calls of actions and expressions too deep within each other") from error
    finally:
        sys.setrecursionlimit(before)


def run_block(statements: Sequence[Statement], context: Context) -> None:
    """Runs the block of a query; EvaluationError if it fails, what it has put out before stays."""
    with _room_for_calls():
        _run(statements, context)


def _run(statements: Sequence[Statement], context: Context) -> tuple[Flow, Value]:
    """How the statements ended, and what a `return` gives."""
    for statement in statements:
        flow, value = _statement(statement, context)
        if flow is not Flow.NEXT:
            return flow, value
    return Flow.NEXT, None


def _statement(statement: Statement, context: Context) -> tuple[Flow, Value]:
    match statement:
        case Assign(target=target, value=value):
            _assign(target, value, context)
        case Evaluate(value=value):
            evaluate(value, context)
        case Print() | Log() | Send() | Emit() | Route():
            context.outputs.append(_output(statement, context))
        case If(condition=condition, then=then, otherwise=otherwise):
            return _run(then if evaluate(condition, context) else otherwise, context)
        case IfPresent():
            return _if_present(statement, context)
        case While(condition=condition, body=body):
            while evaluate(condition, context):
                flow, result = _round(body, context)
                if flow is not Flow.NEXT:
                    return _after_loop(flow, result)
        case For(slot=slot, sequence=sequence, body=body):
            for element in list(_sequence(sequence, context)):
                context.locals[slot] = element
                flow, result = _round(body, context)
                if flow is not Flow.NEXT:
                    return _after_loop(flow, result)
        case Break():
            return Flow.BREAK, None
        case Continue():
            return Flow.CONTINUE, None
        case Return(value=result_of):
            return Flow.RETURN, None if result_of is None else evaluate(result_of, context)
        case _:
            assert_never(statement)
    return Flow.NEXT, None


def _round(body: Sequence[Statement], context: Context) -> tuple[Flow, Value]:
    """One round of a loop; NEXT if another may follow."""
    context.steps.take()
    flow, result = _run(body, context)
    return (Flow.NEXT if flow is Flow.CONTINUE else flow), result


def _after_loop(flow: Flow, result: Value) -> tuple[Flow, Value]:
    return (Flow.NEXT, None) if flow is Flow.BREAK else (flow, result)


def _sequence(expression: Expression, context: Context) -> list[Any]:
    value = evaluate(expression, context)
    assert isinstance(value, list), "for goes through a sequence"
    return value


def _if_present(statement: IfPresent, context: Context) -> tuple[Flow, Value]:
    values = [evaluate(value, context) for value in statement.values]
    if any(value is None for value in values):
        return _run(statement.otherwise, context)
    for slot, value in zip(statement.slots, values, strict=True):
        context.locals[slot] = value
    return _run(statement.then, context)


def _assign(target: Expression, value: Expression, context: Context) -> None:
    match target:
        case LocalOf(slot=slot):
            context.locals[slot] = evaluate(value, context)
        case MemberOf(receiver=receiver, field=field):
            _put_member(evaluate(receiver, context), field, evaluate(value, context))
        case FieldOf(term=term, field=field):
            bound = context.bound[term]
            if bound is None:
                raise EvaluationError("the event is not set")
            bound.values[field] = evaluate(value, context)
        case IndexOf(receiver=receiver, index=index):
            container, place = evaluate(receiver, context), evaluate(index, context)
            if isinstance(container, Dictionary):
                container[place] = evaluate(value, context)
            else:
                assert isinstance(container, list), "what has places is a sequence"
                assert isinstance(place, int), "places are numbers"
                put(container, place, evaluate(value, context))
        case _:
            raise AssertionError(f"nothing can be assigned to {target}")


def _put_member(owner: Value, field: str, value: Value) -> None:
    """Another value for a member of a location or an event."""
    if isinstance(owner, Location):
        assert isinstance(value, float), "the members of a location are floats"
        owner.put(field, value)
    else:
        assert isinstance(owner, Event), "members belong to events and locations"
        owner.values[field] = value


def _output(statement: Print | Log | Send | Emit | Route, context: Context) -> Output:
    match statement:
        case Print(text=text):
            return Output("print", _text(text, context))
        case Log(text=text, level=level):
            return Output("log", _text(text, context), level)
        case Send(event=event, channel=channel):
            return _sent("send", event, channel, context)
        case Emit(event=event, channel=to):
            return _sent("emit", event, to, context)
        case Route(event=event):
            return _sent("route", event, None, context)


def _text(expression: Expression, context: Context) -> str:
    text = evaluate(expression, context)
    assert isinstance(text, str), "only text is printed"
    return text


def _sent(kind: str, expression: Expression, channel: Expression | None, context: Context) -> Output:
    event = evaluate(expression, context)
    if event is None:
        raise EvaluationError(f"there is no event to {kind}: the optional is empty")
    assert isinstance(event, Event), "only events are sent"
    to = None if channel is None else _text(channel, context)
    return Output(kind, event_text(event.type, event.values), to, clone(event))
