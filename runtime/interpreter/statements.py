"""Execution of statements: the blocks of queries and the bodies of actions.

Statements append to the context's outputs and change its variables. A failure, too many steps, or
calls nested too deeply end the block with EvaluationError. A condition that is null does not hold,
and a `return` gives a null to the expression that called the action; all other statements need a
value, and a null is a failure there.
"""

from __future__ import annotations

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
from querylang.system_limits import room_for
from runtime.interpreter.containers import put
from runtime.interpreter.context import DEEPEST_CALLS, NODE, OUTPUT, PART, Context, Output, text_bytes, value_bytes
from runtime.interpreter.expressions import evaluate, required, run_call
from runtime.interpreter.values import Dictionary, EvaluationError, Event, Location, Value, clone, event_text

_FRAMES = 40 * DEEPEST_CALLS
"""Python frames that the most deeply nested calls may need."""


class Flow(Enum):
    """Where execution continues after a statement."""

    NEXT = auto()
    BREAK = auto()
    CONTINUE = auto()
    RETURN = auto()


def run_action(action: Action, arguments: Sequence[Value], context: Context) -> Value:
    """Run an action and give what it returns; None = nothing. Raises EvaluationError.

    arguments: one per parameter; for an action of an event type the event comes first
    """
    context.budget.step()
    if context.depth >= DEEPEST_CALLS:
        raise EvaluationError(f"calls of actions nested more than {DEEPEST_CALLS} deep")
    slots = [*arguments, *[None] * (action.slots - len(arguments))]
    inner = replace(context, locals=slots, depth=context.depth + 1)
    if context.depth or context.is_block:
        return _run(action.body, inner)[1]
    with _room_for_calls():
        return _run(action.body, inner)[1]


@contextmanager
def _room_for_calls() -> Iterator[None]:
    try:
        with room_for(_FRAMES):
            yield
    except RecursionError as error:
        raise EvaluationError("calls of actions and expressions nested too deeply") from error


def run_block(statements: Sequence[Statement], context: Context) -> None:
    """Run the block of a query; raises EvaluationError if it fails.

    Outputs made before the failure are kept.
    """
    with _room_for_calls():
        _run(statements, context)


def _run(statements: Sequence[Statement], context: Context) -> tuple[Flow, Value]:
    """Run statements: where execution continues, and the value of a `return`."""
    for statement in statements:
        flow, value = _statement(statement, context)
        if flow is not Flow.NEXT:
            return flow, value
    return Flow.NEXT, None


def _statement(statement: Statement, context: Context) -> tuple[Flow, Value]:
    context.budget.spend(NODE)
    match statement:
        case Assign(target=target, value=value):
            _assign(target, value, context)
        case Evaluate(value=value):
            run_call(value, context)
        case Print() | Log() | Send() | Emit() | Route():
            output = _output(statement, context)
            context.budget.spend(OUTPUT + text_bytes(output.text))
            context.outputs.append(output)
        case If(condition=condition, then=then, otherwise=otherwise):
            return _run(then if evaluate(condition, context) else otherwise, context)
        case IfPresent():
            return _if_present(statement, context)
        case While(condition=condition, body=body):
            while evaluate(condition, context):
                flow, result = _iteration(body, context)
                if flow is not Flow.NEXT:
                    return _after_loop(flow, result)
        case For(slot=slot, sequence=sequence, body=body):
            for element in list(_sequence(sequence, context)):
                context.locals[slot] = element
                flow, result = _iteration(body, context)
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


def _iteration(body: Sequence[Statement], context: Context) -> tuple[Flow, Value]:
    """One iteration of a loop; NEXT = another may follow."""
    context.budget.step()
    flow, result = _run(body, context)
    return (Flow.NEXT if flow is Flow.CONTINUE else flow), result


def _after_loop(flow: Flow, result: Value) -> tuple[Flow, Value]:
    return (Flow.NEXT, None) if flow is Flow.BREAK else (flow, result)


def _sequence(expression: Expression, context: Context) -> list[Any]:
    value = required(expression, context)
    assert isinstance(value, list), "a for loop iterates over a sequence"
    context.budget.spend(NODE * len(value))  # the loop has its own copy
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
            context.locals[slot] = required(value, context)
        case MemberOf(receiver=receiver, field=field):
            _set_member(required(receiver, context), field, required(value, context))
        case FieldOf(term=term, field=field):
            event = context.events[term]
            if event is None:
                raise EvaluationError("the event is not set")
            event.values[field] = required(value, context)
        case IndexOf(receiver=receiver, index=index):
            container, place = required(receiver, context), required(index, context)
            if isinstance(container, Dictionary):
                context.budget.spend(PART + value_bytes(place, context.budget.bytes))
                container[place] = required(value, context)
            else:
                assert isinstance(container, list), "only sequences and dictionaries have elements"
                assert isinstance(place, int), "the index of a sequence is an integer"
                put(container, place, required(value, context))
        case _:
            raise AssertionError(f"{target} is not assignable")


def _set_member(owner: Value, field: str, value: Value) -> None:
    """Set a coordinate of a location, or a field of an event."""
    if isinstance(owner, Location):
        assert isinstance(value, float), "the coordinates of a location are floats"
        owner.set(field, value)
    else:
        assert isinstance(owner, Event), "only events and locations have members"
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
    text = required(expression, context)
    assert isinstance(text, str), "only text is printed"
    return text


def _sent(kind: str, expression: Expression, channel: Expression | None, context: Context) -> Output:
    event = required(expression, context)
    if event is None:
        raise EvaluationError(f"there is no event to {kind}: the optional is empty")
    assert isinstance(event, Event), "only events are sent"
    to = None if channel is None else _text(channel, context)
    context.budget.spend(value_bytes(event, context.budget.bytes))
    return Output(kind, event_text(event.type, event.values), to, clone(event))
