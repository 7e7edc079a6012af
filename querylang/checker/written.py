"""What the statements of a query write, read from its text alone.

The plan of a query whose event types nothing defines lacks the statements that need their fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from querylang.checker.checked import Written
from querylang.checker.names.namespaces import Namespace
from querylang.checker.query.patterns import parts_of
from querylang.syntax import ast


def written_by(query: ast.Query, namespace: Namespace) -> tuple[Written, ...]:
    """The statements that write, in text order."""
    found: list[Written] = []
    if isinstance(query.find, ast.Find) and query.find.block is not None:
        parts = parts_of(query.find.pattern)
        terms = {part.name.text: part.event.text for part in parts if isinstance(part, ast.PatternTerm)}
        found += _of_block(query.find.block, terms, namespace)
    for action in query.actions:
        arguments = {item.name.text: item.type.word for item in action.parameters}
        found += _of_block(action.body, arguments, namespace)
    return tuple(found)


def _of_block(block: ast.Block, outer: Mapping[str, str], namespace: Namespace) -> Iterator[Written]:
    """Those of a block and of the blocks in it. `outer`: the types of the names that it sees."""
    names = dict(outer)
    for statement in block.statements:
        match statement:
            case ast.Declaration(name=name, type=type_):
                names[name.text] = type_.word
            case ast.If(then=then, otherwise=otherwise) | ast.IfPresent(then=then, otherwise=otherwise):
                yield from _of_block(then, names, namespace)
                if otherwise is not None:
                    yield from _of_block(otherwise, names, namespace)
            case ast.While(body=body) | ast.For(body=body) | ast.VendorCustom(body=body):
                yield from _of_block(body, names, namespace)
            case ast.Block():
                yield from _of_block(statement, names, namespace)
            case ast.Print():
                yield Written("print")
            case ast.Log():
                yield Written("log")
            case ast.Send(channel=channel):
                yield _to_channel("send", channel)
            case ast.VendorSend(channel=to):
                yield Written("send", "") if to is None else _to_channel("send", to)
            case ast.Emit(channel=to):
                yield Written("emit") if to is None else _to_channel("emit", to)
            case ast.Route(event=event):
                yield Written("route", event=_event_type(event, names, namespace))
            case _:  # the others write nothing
                pass


def _to_channel(word: str, channel: ast.Expression) -> Written:
    match channel:
        case ast.Constant(value=str(name)):
            return Written(word, name)
        case _:
            return Written(word, has_computed_channel=True)


def _event_type(event: ast.Expression, names: Mapping[str, str], namespace: Namespace) -> str | None:
    """The plan's name of the type of a routed event; None if the text does not say it plainly."""
    match event:
        case ast.NameUse(name=name):
            text = names.get(name.text)
        case ast.Call(receiver=None, name=name):
            text = name.text
        case ast.New(type=type_):
            text = type_.word
        case _:
            text = None
    found = [] if text is None else namespace.candidates(text)
    return namespace.types.plan_names[found[0]] if len(found) == 1 else None
