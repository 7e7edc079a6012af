"""Fold `{2,3}` behind a step or a group of a pattern into one token, before parsing.

So a brace with a number behind it is never taken for the beginning of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from querylang.syntax.tokens import Token

_MOST_DIGITS = 9
"""Of a number in a repeat; larger ones are read as this many nines, which is refused later."""
_LONGEST = 4
"""Tokens behind the brace: two numbers, a comma and a brace."""
_MOST_MEANT = 8
"""Tokens in braces that are meant as a repeat."""
_BEHIND_PATTERNS = frozenset({"ARROW", "NEXT", "AND", "OR", "WHERE", "WITHIN"})


def with_repeats(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with each `{2}`, `{2,}` and `{2,3}` as one REPEAT, without braces and spaces.

    So is what only looks like one, such as `{n} ->`, as it is written: the grammar refuses it.
    """
    kept: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        length = _length(tokens, position) if token.type == "LBRACE" else 0
        meant = 0 if length or token.type != "LBRACE" else _meant_length(tokens, position)
        if meant:
            text = token.source.text[token.end : tokens[position + meant - 1].start].strip()
            kept.append(token.replaced("REPEAT", text, tokens[position + meant - 1].end))
        elif length:
            parts = tokens[position + 1 : position + length - 1]
            content = "".join(part.content if part.type == "COMMA" else _digits(part) for part in parts)
            kept.append(token.replaced("REPEAT", content, tokens[position + length - 1].end))
        else:
            kept.append(token)
        position += max(length, meant, 1)
    return kept


def _length(tokens: Sequence[Token], position: int) -> int:
    """How many tokens the repeat has that begins with this brace; 0: it is another brace."""
    kinds = [token.type for token in tokens[position + 1 : position + 1 + _LONGEST]]
    match kinds:
        case ["INTEGER_LITERAL", "RBRACE", *_]:
            return 3
        case ["INTEGER_LITERAL", "COMMA", "RBRACE", *_]:
            return 4
        case ["INTEGER_LITERAL", "COMMA", "INTEGER_LITERAL", "RBRACE"]:
            return 5
    return 0


def _meant_length(tokens: Sequence[Token], position: int) -> int:
    """The same for braces that can be nothing but a wrong repeat; no block is in that place."""
    if position == 0 or tokens[position - 1].type not in {"NAME", "RPAREN"}:
        return 0
    for length, token in enumerate(tokens[position + 1 : position + 2 + _MOST_MEANT], start=2):
        if token.type in {"SEMICOLON", "LBRACE", "ARROW", "NEXT"}:
            return 0
        if token.type == "RBRACE":
            following = tokens[position + length : position + length + 1]
            return length if following and following[0].type in _BEHIND_PATTERNS else 0
    return 0


def _digits(token: Token) -> str:
    text = token.content.lower()
    if text.startswith("0x"):
        text = str(int(text[:20], 16))
    text = text.lstrip("0") or "0"
    return text if len(text) <= _MOST_DIGITS else "9" * _MOST_DIGITS
