"""Check statements without blocks of their own; and what is known of a block before its check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from querylang.checker.expressions import literals
from querylang.checker.expressions.inference import Inference
from querylang.checker.expressions.members import no_field
from querylang.checker.namespaces import EventSchema
from querylang.checker.scope import type_of
from querylang.errors import Mistake, QueryError
from querylang.plan import model as plan
from querylang.plan.expression import Expression, Kind, Literal, New, Type
from querylang.plan.library import DEFAULT_LOG_LEVEL, LOG_LEVELS
from querylang.syntax import ast

SimpleStatement = ast.Print | ast.Log | ast.Send | ast.Emit | ast.Route | ast.VendorSend | ast.Evaluation

DEFAULT_CHANNEL = Literal(Type.STRING, "")
"""The channel of a `%send` without one."""


def simple_statement(node: SimpleStatement, inference: Inference) -> plan.Statement | None:
    """Check one of these statements."""
    match node:
        case ast.Print(text=text):
            value = _text(text, "the text of `print`", inference)
            return None if value is None else plan.Print(value)
        case ast.Log(text=text, level=level):
            value, name = _text(text, "the text of `log`", inference), _level(level, inference)
            return None if value is None or name is None else plan.Log(value, name)
        case ast.Send(event=sent, channel=to):
            event, channel = _event(sent, "send", inference), _text(to, "a channel", inference)
            return None if event is None or channel is None else plan.Send(event, channel)
        case ast.Emit(event=sent, channel=None):
            event = _event(sent, "emit", inference)
            return None if event is None else plan.Emit(event, None)
        case ast.Emit(event=sent, channel=to):
            assert to is not None, "the case above has the others"
            event, channel = _event(sent, "emit", inference), _text(to, "a channel", inference)
            return None if event is None or channel is None else plan.Emit(event, channel)
        case ast.Route(event=sent):
            event = _event(sent, "route", inference)
            return None if event is None else plan.Route(event)
        case ast.VendorSend():
            return _vendor_send(node, inference)
        case ast.Evaluation(value=call):
            return _evaluation(call, inference)
    assert_never(node)


def _text(node: ast.Expression, what: str, inference: Inference) -> Expression | None:
    return inference.value_of_type(node, Type.STRING, what)


def _level(level: ast.Name | None, inference: Inference) -> str | None:
    if level is None:
        return DEFAULT_LOG_LEVEL
    if level.text in LOG_LEVELS:
        return level.text
    mistake = QueryError.of(Mistake.UNKNOWN_LEVEL, level.span, name=level.text)
    inference.report(mistake.suggesting(level.text, LOG_LEVELS))
    return None


def _event(node: ast.Expression, word: str, inference: Inference) -> Expression | None:
    """The event that `send`, `emit` and `route` take."""
    value = inference.value(node)
    if value is None or type_of(value).kind is Kind.EVENT:
        return value
    mistake = QueryError.of(Mistake.NOT_SENT, node.span, word=word, found=str(value.type))
    is_unset = type_of(value).kind is Kind.OPTIONAL
    return inference.report(mistake.with_hint("what may be unset is taken out with `ifpresent`" if is_unset else None))


def _evaluation(node: ast.Expression, inference: Inference) -> plan.Statement | None:
    """A call as a statement; other expressions have no effect."""
    value = inference.effect(node)
    if value is None:
        return None
    if isinstance(node, ast.Call | ast.TypeCall):
        return plan.Evaluate(value)
    inference.report(QueryError.of(Mistake.NO_EFFECT, node.span))
    return None


def _vendor_send(node: ast.VendorSend, inference: Inference) -> plan.Statement | None:
    """`%send(...)`: fields by name, all others with their defaults.

    Without a channel, to the default one.
    """
    channel = DEFAULT_CHANNEL if node.channel is None else _text(node.channel, "a channel", inference)
    schema = inference.namespace.find(node.event)
    given: dict[str, Expression | None] = {}
    for name, value in node.fields:
        if name.text in given:
            inference.report(QueryError.of(Mistake.SENT_TWICE, name.span, name=name.text))
        given[name.text] = _sent_field(name, value, schema, inference)
    if schema is None or schema.is_open or channel is None:
        return None
    parts = [
        given[item.name] if item.name in given else literals.default(inference, item.type, node.event.span)
        for item in schema.fields
    ]
    values = tuple(part for part in parts if part is not None)
    return plan.Send(New(schema.type, values), channel) if len(values) == len(parts) else None


def _sent_field(
    name: ast.Name, value: ast.Expression, schema: EventSchema | None, inference: Inference
) -> Expression | None:
    type_ = None if schema is None else schema.type_of(name.text)
    if schema is None or type_ is None:
        if schema is not None and not schema.may_have(name.text):
            inference.report(no_field(schema, name))
        return inference.check_untyped(value)
    return inference.value_of_type(value, type_, f"'{name.text}' of '{schema.name}'")


# What is known of a block before it is checked: declared and changed names, whether it returns.

DEEPEST = 50
"""Levels of nested statements; all that reads statements may recurse."""


def declared_names(block: ast.Block) -> list[str]:
    """The names that the block itself declares, in order."""
    return [item.name.text for item in block.statements if isinstance(item, ast.Declaration)]


def changed_names(block: ast.Block) -> list[str]:
    """The names whose values the block may change: by assignment, by a call, or as an argument.

    Each once.
    """
    return list(dict.fromkeys(name for node in _touched(block) for name in _roots(node)))


def always_returns(block: ast.Block, level: int = 1) -> bool:
    """Whether no path reaches the block's end.

    Parts that could not be parsed, or are too deep, may return.
    """
    return level > DEEPEST or any(_returns(statement, level + 1) for statement in block.statements)


def inner_blocks(node: ast.Statement) -> tuple[ast.Block, ...]:
    """The direct inner blocks of a statement."""
    match node:
        case ast.Block():
            return (node,)
        case ast.If(then=then, otherwise=otherwise) | ast.IfPresent(then=then, otherwise=otherwise):
            return (then,) if otherwise is None else (then, otherwise)
        case ast.While(body=body) | ast.For(body=body) | ast.VendorCustom(body=body):
            return (body,)
        case _:
            return ()


def _returns(node: ast.Statement, level: int) -> bool:
    match node:
        case ast.Return() | ast.Broken() | ast.Refused():
            return True
        case ast.While(condition=ast.Constant(value=True), body=body):
            return not _breaks(body)
        case ast.While() | ast.For():
            return False
        case ast.If(otherwise=None) | ast.IfPresent(otherwise=None):
            return False
        case _:
            blocks = inner_blocks(node)
            return bool(blocks) and all(always_returns(block, level) for block in blocks)


def _breaks(body: ast.Block) -> bool:
    """Whether a `break` leaves the loop with this body."""
    waiting: list[ast.Statement] = list(body.statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Break):
            return True
        if not isinstance(node, ast.While | ast.For):
            waiting += [statement for block in inner_blocks(node) for statement in block.statements]
    return False


def _touched(block: ast.Block) -> Iterator[ast.Expression]:
    """The expressions through which values may be changed, anywhere in a block.

    Only an assignment to a part of a value, or a call as a statement, changes a value that another
    name shares.
    """
    shared: list[ast.Expression] = []
    may_change_parts = False
    for node in _inside(block):
        match node:
            case ast.Assignment(target=target, value=value):
                yield target
                shared.append(value)
                may_change_parts |= not isinstance(target, ast.NameUse)
            case ast.Evaluation(value=value):
                yield value
                may_change_parts = True
            case ast.Declaration(value=value) | ast.For(sequence=value) if value is not None:
                shared.append(value)
            case ast.IfPresent(bindings=bindings):
                shared += [value for value, _name in bindings]
    if may_change_parts:
        yield from shared


def _inside(block: ast.Block) -> Iterator[ast.Statement]:
    """All statements in a block, however deep."""
    waiting: list[ast.Statement] = [block]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [statement for inner in inner_blocks(node) for statement in inner.statements]


def _roots(node: ast.Expression) -> Iterable[str]:
    """The names at the beginning of an expression and of the arguments of its calls."""
    waiting = [node]
    while waiting:
        match waiting.pop():
            case ast.NameUse(name=name):
                yield name.text
            case ast.Member(receiver=inner) | ast.Index(receiver=inner):
                waiting.append(inner)
            case ast.Call(receiver=receiver, arguments=arguments):
                waiting += [*arguments, *([] if receiver is None else [receiver])]
            case ast.TypeCall(arguments=inside) | ast.SequenceLiteral(items=inside):
                waiting += inside
            case ast.DictionaryLiteral(items=pairs):
                waiting += [part for pair in pairs for part in pair]
