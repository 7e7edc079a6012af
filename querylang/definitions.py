"""Event definitions out of `.mon` files, which are programs in a larger language.

Takes the text of such a file; gives its event definitions. What is not an event definition is stepped over unread:
monitors, and inside of events constants and actions other than `{ return field; }`.
"""

from __future__ import annotations

from collections.abc import Iterator

from querylang import ast
from querylang.errors import QueryError
from querylang.lexer import tokenize
from querylang.parser import parse_tokens
from querylang.source import Source
from querylang.tokens import Token

_OPENING = {"LBRACE": "RBRACE", "LPAREN": "RPAREN"}


def parse_definitions(source: Source) -> tuple[ast.File, list[QueryError]]:
    """The events defined at the top of the text, and the mistakes within their definitions."""
    tokens, _elsewhere = tokenize(source)
    return parse_tokens(source, list(_definitions(tokens)), [])


def _definitions(tokens: list[Token]) -> Iterator[Token]:
    position = 0
    while position < len(tokens):
        match tokens[position].type:
            case "PACKAGE":
                end = _after(tokens, position, "SEMICOLON")
                yield from tokens[position:end]
            case "SIGN":
                end = _after_group(tokens, position, "LPAREN")
                yield from tokens[position:end]
            case "EVENT":
                end = _after_group(tokens, position, "LBRACE")
                yield from _event(tokens[position:end])
            case "LBRACE":
                end = _after_group(tokens, position, "LBRACE")
            case _:
                end = position + 1
        position = end


def _event(tokens: list[Token]) -> Iterator[Token]:
    """An event's tokens without the members that queries cannot use."""
    position = next((index + 1 for index, token in enumerate(tokens) if token.type == "LBRACE"), len(tokens))
    yield from tokens[:position]
    while position < len(tokens):
        first = tokens[position].type
        if first == "RBRACE":
            yield tokens[position]
            position += 1
            continue
        is_action = (
            first == "ACTION" and tokens[position + 1 : position + 2] != [] and tokens[position + 1].type != "LT"
        )
        end = _after_group(tokens, position, "LBRACE") if is_action else _after(tokens, position, "SEMICOLON")
        member = tokens[position:end]
        is_getter = [token.type for token in member[-5:]] == ["LBRACE", "RETURN", "NAME", "SEMICOLON", "RBRACE"]
        if (is_getter and is_action) or first not in {"ACTION", "CONSTANT"}:
            yield from member
        position = end


def _after(tokens: list[Token], position: int, kind: str) -> int:
    """The position behind the next token of that kind."""
    return next((index + 1 for index in range(position, len(tokens)) if tokens[index].type == kind), len(tokens))


def _after_group(tokens: list[Token], position: int, opening: str) -> int:
    """The position behind the next group in such brackets, inner ones included."""
    depth = 0
    for index in range(position, len(tokens)):
        if tokens[index].type == opening:
            depth += 1
        elif tokens[index].type == _OPENING[opening] and depth:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(tokens)
