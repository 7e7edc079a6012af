"""Read the event definitions of `.mon` files, which are programs in a larger language.

Monitors, aggregates and everything else are skipped. An action or constant that queries cannot use
is a `Refused` member.
"""

from __future__ import annotations

from collections.abc import Iterator

from querylang.errors import QueryError
from querylang.source import Source
from querylang.syntax import ast
from querylang.syntax.lexer import Token, tokenize
from querylang.syntax.parser import parse_tokens

_OPENING = {"LBRACE": "RBRACE", "LPAREN": "RPAREN"}
_FOREIGN = frozenset({"static", "import"})
"""Words that begin members only in the larger language."""


def parse_definitions(source: Source) -> tuple[ast.File, list[QueryError]]:
    """The events defined at the top level of the text, and the mistakes in their definitions."""
    return parse_tokens(source, list(_definitions(source, tokenize(source).tokens)), [])


def _definitions(source: Source, tokens: list[Token]) -> Iterator[Token]:
    position = 0
    while position < len(tokens):
        match tokens[position].type:
            case "PACKAGE" | "USING":
                end = _after(tokens, position, "SEMICOLON")
                yield from tokens[position:end]
            case "SIGN":
                end = _after_annotation(tokens, position)
                yield from tokens[position:end]
            case "EVENT":
                end = _after_group(tokens, position, "LBRACE")
                yield from _event(source, tokens[position:end])
            case "LBRACE":
                end = _after_group(tokens, position, "LBRACE")
            case _:
                end = position + 1
        position = end


def _event(source: Source, tokens: list[Token]) -> Iterator[Token]:
    """An event's tokens; each member that queries cannot use becomes one REFUSED."""
    position = next((index + 1 for index, token in enumerate(tokens) if token.type == "LBRACE"), len(tokens))
    head = tokens[:position]
    yield from head
    while position < len(tokens):
        if tokens[position].type == "RBRACE":
            yield tokens[position]
            position += 1
            continue
        end = _after_member(tokens, position)
        member = tokens[position:end]
        yield from [_refused(member)] if _is_foreign(source, head, member) else member
        position = end


def _after_member(tokens: list[Token], position: int) -> int:
    """The position after a member: an action's block, or the next `;`.

    A field may have an action's type.
    """
    kinds = [token.type for token in tokens[position : position + 3]]
    is_action = kinds[:1] == ["ACTION"] and kinds[1:2] != ["LT"]
    is_static = tokens[position].content == "static" and kinds[1:2] == ["ACTION"]
    if is_action or is_static:
        return _after_group(tokens, position, "LBRACE")
    return _after(tokens, position, "SEMICOLON")


def _is_foreign(source: Source, head: list[Token], member: list[Token]) -> bool:
    """Whether a member is probably legal only in the larger language; a field never is."""
    first = member[0]
    if first.content in _FOREIGN and first.type == "NAME":
        return True
    if first.type not in {"ACTION", "CONSTANT"}:
        return False
    closing = member[-1].replaced("RBRACE", "}", member[-1].end)
    _file, mistakes = parse_tokens(source, [*head, *member, closing], [])
    return bool(mistakes)


def _refused(member: list[Token]) -> Token:
    return member[0].replaced("REFUSED", "member", member[-1].end)


def _after(tokens: list[Token], position: int, kind: str) -> int:
    """The position after the next token of that kind."""
    return next((index + 1 for index in range(position, len(tokens)) if tokens[index].type == kind), len(tokens))


def _after_annotation(tokens: list[Token], position: int) -> int:
    """The position after an annotation, which may have no brackets."""
    kinds = (token.type for token in tokens[position + 1 :])
    length = next((index for index, kind in enumerate(kinds) if kind not in {"NAME", "DOT"}), len(tokens))
    end = position + 1 + length
    return _after_group(tokens, end, "LPAREN") if [token.type for token in tokens[end : end + 1]] == ["LPAREN"] else end


def _after_group(tokens: list[Token], position: int, opening: str) -> int:
    """The position after the next group in such brackets, nested ones included."""
    depth = 0
    for index in range(position, len(tokens)):
        if tokens[index].type == opening:
            depth += 1
        elif tokens[index].type == _OPENING[opening] and depth:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(tokens)
