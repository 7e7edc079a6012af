"""What is known of a block before it is checked: declared and changed names, whether it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from querylang.syntax import ast

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
